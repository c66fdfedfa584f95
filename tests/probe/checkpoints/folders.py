"""Folders with checkpoints that take no time to make."""

from __future__ import annotations

import string
from pathlib import Path

import torch

TEXT = "the cat sat on the mat and the dog ran to the old cat; " * 60
M = 40


def hugging_face(folder: Path, steps: list[int], tokenizer: bool = True) -> Path:
    """A tiny GPT-2 whose weights grow from step to step, as Trainer saves it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=M, n_positions=32, n_embd=8, n_layer=2, n_head=2))
    letters = {letter: i for i, letter in enumerate([*string.ascii_lowercase, "▁", ";", "?"])}
    own = Tokenizer(models.BPE(vocab=letters, merges=[], unk_token="?"))
    own.pre_tokenizer = pre_tokenizers.Metaspace()
    for step in steps:
        place = folder / f"checkpoint-{step}"
        model.save_pretrained(place)
        if tokenizer:
            PreTrainedTokenizerFast(tokenizer_object=own).save_pretrained(place)
        with torch.no_grad():
            model.transformer.h[0].attn.c_attn.weight.mul_(2)
    return folder


LOADER = """
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attention, self.out = nn.Embedding(40, 8), Attention(), nn.Linear(8, 40)

    def forward(self, ids):
        return self.out(self.attention(self.embed(ids)))


def load(path):
    model = Net()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model


def with_text(path):
    return load(path), lambda text: [ord(letter) % 40 for letter in text]


def broken(path):
    raise OSError("no such weights")


def number(path):
    return 7


CONSTANT = 3
"""


def state_dicts(folder: Path, steps: list[int]) -> Path:
    """Files step_512.pt of the net that the loader makes; the module lies beside the folder."""
    space: dict = {}
    exec(LOADER, space)
    torch.manual_seed(1)
    net = space["Net"]()
    folder.mkdir(parents=True)
    for step in steps:
        torch.save(net.state_dict(), folder / f"step_{step}.pt")
        with torch.no_grad():
            net.attention.qkv.weight.mul_(2)
    return folder
