"""Numbers that no computer can take, and digits that are none: one sentence with the field, exit code 2."""

from __future__ import annotations

import pytest
import torch

from scansnap.checks import LARGEST, InputError, digits
from scansnap.cli import run as run_command
from scansnap.dynamics.settings import record_steps

ENDLESS, HEX = "9" * 5000, "0x" + "f" * 5000  # Python reads the latter, and cannot write it
DECK = """
title = {title}
[[beat]]
to = 10
sentence = {sentence}
setup = {{ preset = {preset}, eta_y = {eta_y} }}
"""
PLAIN = {"title": '"x"', "sentence": '"a"', "preset": '"textbook"', "eta_y": "1"}
RUN = '[classes]\npreset = "syn-small"\n[run]\neta_y = 1\neta_z = {}\n'
SWEEP = '[classes]\npreset = "syn-small"\n[grid]\neta_z = {}\nratio = 1\n[run]\nsteps = 1\n'
OPTIONS = ("run", "--eta-z", "1", "--eta-y", "1", "--steps", "5", "--no-figure")
MAP = ("verify", "--map", "theorem-1", "--points", "3")


def refused(scansnap, tmp_path, field: str, *words: str) -> str:
    before = set(tmp_path.iterdir())
    code, out, err = scansnap(*words)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    option = "--" + field.replace("_", "-")
    assert err.startswith(f"Error: {option if option in words else field}: "), err
    assert set(tmp_path.iterdir()) == before
    return err


@pytest.mark.parametrize("command", ["lecture", "run", "sweep"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [(ENDLESS, "too many digits (at line 7)"), ("[" * 20_000 + "]" * 20_000, "too deeply"), ("²", "(at line 7")],
    ids=["5,000 digits", "20,000 lists", "superscript"],
)
def test_a_file_that_cannot_be_read(scansnap, tmp_path, command, value, reason) -> None:
    (tmp_path / "a.toml").write_text("\n" * 6 + f"x = {value}\n", encoding="utf-8")
    err = refused(scansnap, tmp_path, "deck" if command == "lecture" else "the TOML file", command, "a.toml")
    assert reason in err


@pytest.mark.parametrize(
    ("command", "text", "field"),
    [
        ("run", RUN, "eta_z"),
        ("run", RUN.format(1) + "steps = {}\n", "steps"),
        ("sweep", SWEEP, "eta_z"),
        ("sweep", SWEEP.format(1) + "[measure.top_mass]\nk = {}\n", "k of top_mass in [measure]"),
        ("lecture", "beat = {}\n", "beat"),
        *(("lecture", DECK.format(**PLAIN | {name: "{}"}).replace("{ p", "{{ p").replace(" }\n", " }}\n"), field)
          for name, field in (("title", "title of the deck"), ("sentence", "sentence of beat 1"),
                              ("preset", "setup of beat 1"), ("eta_y", "eta_y in setup of beat 1"))),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [HEX, "1979-05-27"], ids=["5,000 hexadecimal digits", "date"])
def test_a_file_with_a_value_that_cannot_be_used(scansnap, tmp_path, command, text, field, value) -> None:
    (tmp_path / "a.toml").write_text(text.format(value))
    refused(scansnap, tmp_path, field, command, "a.toml")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        *(("record", (*OPTIONS, "--record", f"{kind}:{number}")) for kind in ("linear", "log")
          for number in ("10³⁰", str(10**30), "10**30", "²", "٣", ENDLESS, "1", "")),
        *(("record", (*OPTIONS, "--record", number)) for number in (ENDLESS, HEX, "²", "٣")),
        ("context", (*OPTIONS, "--context", ENDLESS)),
        ("context", (*OPTIONS, "--context", "1e999")),
        ("eta_z", (*OPTIONS, "--eta-z", "٣")),
        ("seed", (*OPTIONS, "--seed", "0:²")),
        ("n_queries", ("run", "--preset", "syn-medium", "--set", "n_queries=²")),
        ("the axis ratio", (*MAP, "--x", "ratio=٣:9")),
        ("the axis ratio", (*MAP, "--x", f"ratio=1:{ENDLESS}")),
        ("component", ("dial", "--component", ENDLESS)),
        ("component", ("dial", "--component", "٣")),
    ],
)  # fmt: skip
def test_an_option(scansnap, tmp_path, field, words) -> None:
    refused(scansnap, tmp_path, field, *words)


def test_only_plain_digits_are_a_number() -> None:
    assert [digits(text) for text in ("0", "007", str(LARGEST))] == [0, 7, LARGEST]
    for text in ("", "-1", "+1", "1.0", "1_000", " 1", "²", "٣", str(LARGEST + 1), ENDLESS):
        assert digits(text) is None


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 10, 50])
@pytest.mark.parametrize("kind", ["linear", "log"])
def test_more_records_than_steps_are_all_steps(steps, kind) -> None:
    for number in (5 * steps**2 + 5, 10**18):
        assert record_steps(f"{kind}:{number}", steps) == tuple(range(steps + 1))


def test_a_value_that_cannot_be_shown() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (int(HEX, 16), [int(HEX, 16)], nested):
        assert InputError("x", value, "less").field == "x"


def test_memory_that_torch_cannot_have_is_one_sentence(scansnap, tmp_path, monkeypatch) -> None:
    def starved(*_: object) -> None:
        torch.empty(10**17, dtype=torch.uint8)

    monkeypatch.setattr(run_command, "find_classes", starved)
    code, out, err = scansnap(*OPTIONS)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("Error: there is not enough memory (torch tried to allocate 100000000000000000 bytes)")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 3 GiB"),
     RuntimeError("Storage size calculation overflowed with sizes=[4611686018427387904]"), MemoryError()],
    ids=["gpu", "overflow", "python"],
)  # fmt: skip
def test_memory_that_others_cannot_have(scansnap, monkeypatch, error) -> None:
    def starved(*_: object) -> None:
        raise error

    monkeypatch.setattr(run_command, "find_classes", starved)
    code, out, err = scansnap(*OPTIONS)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("Error: there is not enough memory (")


def test_another_failure_of_torch_is_not_taken_for_it(scansnap, monkeypatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(run_command, "find_classes", fails)
    with pytest.raises(RuntimeError, match="multiplied"):
        scansnap(*OPTIONS)
