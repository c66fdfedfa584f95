"""What a corpus says of a batch's tokens: how distinct they are, and which stand before which."""

from scansnap.probe.corpus.facts import Facts, facts

__all__ = ["Facts", "facts"]
