"""Every lemma and theorem as an executable claim: measured against exact dynamics, with a margin and a verdict."""
