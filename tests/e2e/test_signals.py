"""Ctrl-C and SIGTERM at every stage of a command: nothing is lost, and the exit code says which it was.

Signals are raised in the thread itself: one sent to the process may be taken by another thread and come too late.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import scansnap as ss
from scansnap.cli import run as run_command
from scansnap.cli import sweep as sweep_command
from scansnap.cli.text import predict as predict_command
from scansnap.cli.text import train as text_command
from scansnap.dynamics import checkpoint
from scansnap.interrupt import DelayedInterrupt, block_signals_in_children, handle_sigterm, signal_exit_code

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
RUN = ("run", "--optimizer", "adam", "--eta-y", 0.1, "--eta-z", 0.01, "--steps", 40, "--record", "all", "--no-figure")


TEXT = ("--data", "t.txt", "--steps", 6, "--batch", 2, "--length", 5, "--device", "cpu", "--json")
SWEEP = '[classes]\npreset = "syn-small"\n[grid]\neta_z = [1, 2, 3]\nratio = 1\n[run]\nsteps = 2\n[groups]\nruns = 1\n'
# words, the module whose progress is interrupted, the name of the result, and what of it must be the same
COMMANDS = {
    "run": (RUN, run_command, "zarr", lambda path, out: ss.load(path).z.values.tobytes()),
    "prediction": (("text", "predict", *TEXT), predict_command, "safetensors",
                   lambda path, out: json.loads(out)["predicted"]),
    "training": (("text", "train", *TEXT, "--eta-y", 5, "--eta-z", 1), text_command, "safetensors",
                 lambda path, out: json.loads(out)["perplexity"]),
    "sweep": (("sweep", "s.toml", "--device", "cpu"), sweep_command, "zarr",
              lambda path, out: ss.load(path / "classes-0.zarr").loss.values.tobytes()),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_done_is_kept_and_continued(scansnap, monkeypatch, tmp_path, name, number):
    """The signal comes at the first word of progress of the work itself."""
    words, module, suffix, result = COMMANDS[name]
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "s.toml").write_text(SWEEP)
    (tmp_path / "t.txt").write_text("the cat sat on the mat\nthe dog ran in the park\n" * 30)
    usual, sent = module.progress_bar, []

    @contextmanager
    def bar(label):
        def report(*_):
            if not sent:
                sent.append(number)
                signal.raise_signal(number)

        yield report

    code, whole, err = scansnap(*words, "--out", f"whole.{suffix}")
    assert code == 0, err
    with monkeypatch.context() as patch:
        patch.setattr(module, "progress_bar", lambda label: (usual if label == "reading the text" else bar)(label))
        code, out, err = scansnap(*words, "--out", f"a.{suffix}")
    assert (code, out) == (128 + number, ""), err
    assert "--resume" in err
    if name == "run":
        assert checkpoint.read(tmp_path / "a.zarr.partial").values["step"] > 0
    code, out, err = scansnap(*words, "--out", f"a.{suffix}", "--resume")
    assert code == 0, err
    assert result(tmp_path / f"a.{suffix}", out) == result(tmp_path / f"whole.{suffix}", whole)
    left = {path.name for path in tmp_path.iterdir()} - {"cache", "s.toml", "t.txt"}
    assert left == {f"a.{suffix}", f"whole.{suffix}"}


@BOTH
def test_a_reproduction_keeps_what_is_finished_and_says_how_to_go_on(scansnap, monkeypatch, tmp_path, number):
    from scansnap.paper.report import make

    original = make.make

    def second_is_ended(name, *rest):
        if name == "table1":
            signal.raise_signal(number)
        return original(name, *rest)

    monkeypatch.setattr(make, "make", second_is_ended)
    code, _, err = scansnap("reproduce", "fig3", "table1", "--quick", "--device", "cpu", "--out", "o ut")
    assert code == 128 + number
    assert "scansnap reproduce table1 --quick --device cpu --out 'o ut'" in err
    assert sorted(p.name for p in (tmp_path / "o ut").iterdir()) == [
        "fig3.csv",
        "fig3.pdf",
        "fig3.png",
        "manifest.json",
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["o ut"]


def test_no_verdict_on_half_a_run(scansnap, monkeypatch):
    """The claims look at whatever simulate returns, and Ctrl-C makes that a part."""
    from scansnap.dynamics import loop as training

    record = training.Loop._record

    def pressed(loop, always=False):
        if loop.state.step == 0:
            signal.raise_signal(signal.SIGINT)
        record(loop, always)

    monkeypatch.setattr(training.Loop, "_record", pressed)
    code, out, _ = scansnap("verify", "--preset", "syn-small", "--finite-T", 16, "--t-end", 50)
    assert code == 130
    assert out == ""


LOADING = """
import signal, sys
module, number = sys.argv[1:3]
class AtLoading:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            signal.raise_signal(int(number))
sys.meta_path.insert(0, AtLoading())
sys.argv[1:] = ["run", "--steps", "1"]
from scansnap.__main__ import main
main()
"""


@BOTH
@pytest.mark.parametrize("module", ["typer", "rich.console", "torch"])
def test_while_modules_load_it_ends_at_once_and_without_a_word(tmp_path, module, number):
    done = subprocess.run([sys.executable, "-c", LOADING, module, str(int(number))], cwd=tmp_path, check=False,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_a_signal_somebody_else_handles_or_ignores_is_left_alone():
    before = signal.getsignal(signal.SIGINT)
    try:
        for handler in (signal.SIG_IGN, lambda *_: None):
            signal.signal(signal.SIGINT, handler)
            with handle_sigterm(), DelayedInterrupt() as interrupt:
                signal.raise_signal(signal.SIGINT)
                assert not interrupt.requested
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_signal_raises_and_all_is_as_before_afterwards():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with handle_sigterm(), DelayedInterrupt() as interrupt:
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal_exit_code() == 143
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_python_users_still_get_what_was_done():
    def press(done, total):
        signal.raise_signal(signal.SIGINT)

    classes = ss.SequenceClasses.syn_small()
    with pytest.raises(ss.Interrupted) as interrupted:
        ss.simulate(classes, eta_y=0.1, eta_z=0.1, steps=100_000, optimizer="adam", progress=press)
    data = interrupted.value.partial
    assert data.attrs["complete"] == 0
    assert 0 < int(data.step[-1]) < 100_000


def test_children_do_not_hear_what_is_for_their_parent():
    code = "from signal import *; raise_signal(SIGINT); raise_signal(SIGTERM); print('alive')"
    with block_signals_in_children():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "alive\n"


def test_a_map_ends_at_once_and_leaves_no_process(scansnap, monkeypatch, tmp_path):
    from multiprocessing import active_children

    from scansnap.claims import regime_map

    def press(jobs):
        signal.raise_signal(signal.SIGTERM)
        return iter(jobs)

    monkeypatch.setattr(regime_map, "as_completed", press)
    others = set(active_children())
    code, out, err = scansnap("verify", "--map", "theorem-1", "--points", 3, "--out", "m.png")
    assert code == 143
    assert (out, err) == ("", "")
    assert set(active_children()) == others
    assert list(Path(tmp_path).iterdir()) == []
