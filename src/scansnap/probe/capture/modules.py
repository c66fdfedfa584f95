"""Find the attention modules of a model by their names, and count those in which attention was captured.

A softmax counts as attention only inside an attention module: elsewhere it may be over words or experts.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

# Patterns of class names and of the last part of a path. Parts of an attention (its norm, dropout, softmax) carry its
# name but are no attention; neither is anything that chooses among experts or words.
_ATTENTION = re.compile(r"attn|(?<!fl)atten|mha|multi_?head")
_PART = re.compile(
    r"(norm|drop(out)?|linear|conv1d|proj(ection)?|embed(ding)?s?|rope|softmax|bias|mask|cache|out|output|scale)\d*$"
)
_OTHER = re.compile(r"(router|gate|gating|moe|mlp|experts?|ffn|feed_?forward|lm_?head|classifier|pooler)\d*$")
_CROSS = re.compile(r"cross|enc_?dec|encoder_att|src_att")  # between two sequences
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")  # not part of a path


class Modules:
    """The modules of a model by path, and which are attention.

    attention  paths of attention modules that contain no other, with those of the layers around each
    scripted   paths of scripted ones, whose forward passes cannot be observed
    """

    def __init__(self, model: nn.Module) -> None:
        by_path = dict(model.named_modules())
        self.paths = {id(module): _without_wrappers(path) for path, module in by_path.items()}
        named = [path for path, module in by_path.items() if _is_attention(_words(path, module))]
        inside = {path: [inner for inner in named if inner != path and _within(inner, path)] for path in named}
        leaves = [path for path in named if not inside[path]]
        self.scripted = {
            _without_wrappers(path) for path in leaves if isinstance(by_path[path], torch.jit.ScriptModule)
        }
        # A layer around one attention may compute its softmax; a stack of layers, or the model, computes others.
        layers = [path for path in named if len(inside[path]) < 2 and (path or not inside[path])]
        self._attention_ids = {id(by_path[path]) for path in layers}
        self.attention = {
            _without_wrappers(leaf): {_without_wrappers(path) for path in layers if leaf in inside[path]}
            for leaf in leaves
        }

    def current_attention(self, stack: list[nn.Module]) -> nn.Module | None:
        """The innermost attention among the modules that run; None if another kind of module is further inside."""
        for module in reversed(stack):
            if id(module) in self._attention_ids:
                return module
            if any(_OTHER.search(word) for word in _words(self.paths[id(module)], module)):
                return None
        return None

    def is_cross(self, module: nn.Module) -> bool:
        """Whether an attention takes its keys from another sequence, by its attribute or name."""
        if getattr(module, "is_cross_attention", False) is True:
            return True
        return any(_CROSS.search(word) for word in _words(self.paths[id(module)], module))


@cache  # called for every module in every measurement
def _is_attention(words: tuple[str, str]) -> bool:
    part = any(_PART.search(word) or _OTHER.search(word) for word in words)
    return not part and any(_ATTENTION.search(word) for word in words)


def _words(path: str, module: nn.Module) -> tuple[str, str]:
    """Its name and its class, in lower case."""
    kind = getattr(module, "original_name", type(module).__name__)  # that of a scripted module
    return path.rpartition(".")[-1].lower(), str(kind).lower()


def _without_wrappers(path: str) -> str:
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS)


def _within(path: str, container: str) -> bool:
    return not container or path.startswith(f"{container}.")


NAMED = 3  # missing modules in the message
_BLIND = "it cannot capture a sigmoid, a hand-written exp, log_softmax, a custom kernel or scripted code"
_HINT = "call ss.probe.record(p, name) where attention is computed, or pass a forward= that computes it differently"


@dataclass(frozen=True)
class Coverage:
    """How many of the attention modules that ran in a pass were captured.

    Modules are attention by their names. Attention computed in other modules is captured too, and counts with them.
    """

    captured: int
    modules: int
    missing: tuple[str, ...]  # paths

    @classmethod
    def of(cls, modules: Modules, ran: set[str], captured: Collection[str]) -> Coverage:
        """From the paths of modules that ran, and of those with captured attention."""
        by_module = {
            path: {capture for capture in captured if _inside(capture, path) or capture in around}
            for path, around in modules.attention.items()
            if path in ran | modules.scripted
        }
        missing = tuple(path for path, captures in by_module.items() if not captures)
        n = len(by_module) + len(set(captured) - set().union(*by_module.values()))
        return cls(n - len(missing), n, missing)

    @property
    def complete(self) -> bool:
        """Whether there is attention and all of it was captured."""
        return self.modules > 0 and not self.missing

    def sentence(self) -> str:
        """The counts; if something is missing, why and what to do."""
        if self.complete:
            return f"the probe captured all {self.modules} attention modules"
        if not self.modules:
            return f"the probe captured no attention, and no module has such a name: {_BLIND}; {_HINT}"
        names = ", ".join(path or "the model itself" for path in self.missing[:NAMED])
        names += f" and {len(self.missing) - NAMED} more" if len(self.missing) > NAMED else ""
        some = f"{self.captured} of {self.modules} attention modules" if self.captured else "no attention"
        return f"the probe captured {some} (missing: {names}): {_BLIND}; {_HINT}"


def _inside(path: str, module: str) -> bool:
    return not module or path == module or path.startswith(f"{module}.")
