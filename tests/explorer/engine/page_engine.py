"""The page's engine, asked from Python: one call of node answers many questions."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

import scansnap
from scansnap.explorer.declared import declared
from scansnap.explorer.page import as_json

FOLDER = Path(scansnap.__file__).parent / "explorer" / "static" / "js" / "engine"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="NO NODE: the page's engine is not compared with Python's")


class Refused(Exception):
    """The engine's InputError."""

    def __init__(self, field, message):
        super().__init__(message)
        self.field = field


def answers(questions):
    """The engine's answer to each question, or the Refused that it gave."""
    assert NODE is not None
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "questions.json"), Path(folder, "answers.json")
        asked.write_text(as_json({"declared": declared(), "asked": list(questions)}))
        script = Path(__file__).with_name("answer.mjs")
        done = subprocess.run([NODE, script, FOLDER, asked, answered], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return [
            one["answer"] if "answer" in one else Refused(one["field"], one["message"])
            for one in json.loads(answered.read_text())
        ]


def answer(**question):
    """The engine's answer to one question."""
    (found,) = answers([question])
    return found


def sample(strategy, examples):
    """Examples of a strategy, for one call of node."""
    collected = []
    settings(max_examples=examples)(given(strategy)(lambda example: collected.append(example)))()
    return collected


def spelled_out(classes):
    """Classes as the tables that the engine reads: the same numbers to the last bit."""
    rows = [classes.support(n) for n in range(classes.n_classes)]
    return {
        "tokens": [tokens for tokens, _ in rows], "probs": [probs for _, probs in rows],
        "vocab_size": classes.vocab_size, "query": classes.query, "next_token": classes.next_token,
        "p_class": classes.p_class, "words": None if classes.words is None else list(classes.words),
        "shared_next": classes.shares_next,
    }  # fmt: skip
