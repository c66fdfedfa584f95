"""Which modules of a model compute attention, by what they are called.

A softmax is attention only inside one of them: elsewhere it may be over words or experts. Coverage counts them.
"""

from __future__ import annotations

import re
from functools import cache

import torch
from torch import nn

# What a class or the last part of a path says of a module. A part of an attention (its norm, its dropout, its softmax)
# is called after it, and is none; what chooses among experts or words is none wherever it stands.
_ATTENTION = re.compile(r"attn|(?<!fl)atten|mha|multi_?head")
_PART = re.compile(
    r"(norm|drop(out)?|linear|conv1d|proj(ection)?|embed(ding)?s?|rope|softmax|bias|mask|cache|out|output|scale)\d*$"
)
_ELSEWHERE = re.compile(r"(router|gate|gating|moe|mlp|experts?|ffn|feed_?forward|lm_?head|classifier|pooler)\d*$")
_CROSS = re.compile(r"cross|enc_?dec|encoder_att|src_att")  # between two sequences
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")  # a model is known by its own names


class Modules:
    """The modules of a model by path, and which are attention.

    attention  paths of those that contain no other, and of the layers around each
    scripted   those of which nobody is told when they run
    """

    def __init__(self, model: nn.Module) -> None:
        by_path = dict(model.named_modules())
        self.paths = {id(module): _own(path) for path, module in by_path.items()}
        named = [path for path, module in by_path.items() if _attention(_words(path, module))]
        inside = {path: [other for other in named if other != path and _within(other, path)] for path in named}
        leaves = [path for path in named if not inside[path]]
        self.scripted = {_own(path) for path in leaves if isinstance(by_path[path], torch.jit.ScriptModule)}
        # A layer around one attention may do its softmax itself; a stack of them, or the model, does others.
        layers = [path for path in named if len(inside[path]) < 2 and (path or not inside[path])]
        self._named = {id(by_path[path]) for path in layers}
        self.attention = {_own(leaf): {_own(path) for path in layers if leaf in inside[path]} for leaf in leaves}

    def attending(self, stack: list[nn.Module]) -> nn.Module | None:
        """The attention that is at work, among the modules that are, if it is one."""
        for module in reversed(stack):
            if id(module) in self._named:
                return module
            if any(_ELSEWHERE.search(word) for word in _words(self.paths[id(module)], module)):
                return None
        return None

    def to_others(self, module: nn.Module) -> bool:
        """Whether an attention looks at another sequence, by what it says or how it is called."""
        said = getattr(module, "is_cross_attention", False) is True
        return said or any(_CROSS.search(word) for word in _words(self.paths[id(module)], module))


@cache  # asked of every module in every measurement
def _attention(words: tuple[str, str]) -> bool:
    part = any(_PART.search(word) or _ELSEWHERE.search(word) for word in words)
    return not part and any(_ATTENTION.search(word) for word in words)


def _words(path: str, module: nn.Module) -> tuple[str, str]:
    """What it is called, and what its class is."""
    kind = getattr(module, "original_name", type(module).__name__)  # that of a scripted module
    return path.rpartition(".")[-1].lower(), str(kind).lower()


def _own(path: str) -> str:
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS)


def _within(path: str, container: str) -> bool:
    return not container or path.startswith(f"{container}.")
