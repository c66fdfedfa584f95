"""How much of a model's attention a probe saw, in one sentence with what to do about the rest."""

from __future__ import annotations

from dataclasses import dataclass

from scansnap.probe.capture.watching import Watching

NAMED = 3  # missing modules that are named
_BLIND = "a sigmoid, an exp written by hand, log_softmax, a kernel of one's own and scripted code cannot be seen"
_CURE = "call ss.probe.record(p, name) where it is computed, or give a forward= that computes it another way"


@dataclass(frozen=True)
class Coverage:
    """Attention modules that ran in a pass, and those in which attention was seen.

    A module is attention by its name. Attention that is computed outside of any such module is seen all the same, and
    counts with the module that did it.
    """

    seen: int
    modules: int
    missing: tuple[str, ...]  # paths

    @classmethod
    def of(cls, watched: Watching) -> Coverage:
        """Of what was watched, after the pass."""
        ran = watched.ran | watched.modules.scripted
        by = {
            path: {seen for seen in watched.calls if _inside(seen, path) or seen in around}
            for path, around in watched.modules.attention.items()
            if path in ran
        }
        missing = tuple(path for path, seen in by.items() if not seen)
        n = len(by) + len(set(watched.calls) - set().union(*by.values()))
        return cls(n - len(missing), n, missing)

    @property
    def complete(self) -> bool:
        """Whether there is some attention and all of it was seen."""
        return self.modules > 0 and not self.missing

    def sentence(self) -> str:
        """What was seen; where that is not all, why and what helps."""
        if self.complete:
            return f"the probe saw all of the {self.modules} attention modules"
        if not self.modules:
            return f"the probe saw no attention, and no module is called so: {_BLIND}; {_CURE}"
        names = ", ".join(path or "the model itself" for path in self.missing[:NAMED])
        names += f" and {len(self.missing) - NAMED} more" if len(self.missing) > NAMED else ""
        some = f"saw {self.seen} of {self.modules} attention modules" if self.seen else "saw no attention"
        return f"the probe {some} (missing: {names}): {_BLIND}; {_CURE}"


def _inside(path: str, module: str) -> bool:
    return not module or path == module or path.startswith(f"{module}.")
