"""Any words on the command line: every option of every command, found by asking the application itself.

What a command does after it has looked at its input is cut short; looking is real.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import resource
import shutil
import socket
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.cli import app as cli

CALLS = max(300, settings.default.max_examples)  # some hundreds, and as many as the profile says for a long search
NASTY = (
    "", " ", "/", ".", "..", "-", "--", "-0", "-1", "0", "1", "2", "1e400", "nan", "inf", "-inf", "1e-400", "9" * 60,
    "-" + "9" * 60, str(2**31), str(2**63), str(2**64), "1.5", "0x10", "1_000", "١٢", "η", "日本", "\U0001f600", "a\nb",
    "\udcff.zarr", "n" * 5000, "n" * 250 + ".zarr", "n" * 250 + ".png", "x.zarr/y.zarr", "t.zarr/y.zarr", "t.zarr",
    "x.zarr", "x.nc", "x.png", "x.safetensors", "x.json", "taken.png", "taken.zarr", "taken.nc", "taken.safetensors",
    "folder", "folder.png", "c.toml/x.png", "c.toml/x.zarr", "new/er/x.zarr", "new/er/x.png", "/dev/null", "/dev/full",
    "/proc/x.zarr", "/proc/x.png", "~", "c.toml", "r.toml", "s.toml", "m.safetensors", "text", "broken.toml",
    "[/].zarr", "[bold]x.png", "%s{0}.json", "0:3", "3:0", "0:" + "9" * 30, ":", "1,2", "1,,2", ",", "=", "a=b", "a=1",
    "n_queries=3", "n_queries=" + "9" * 30, "vocab=1e9", "ratio=1:10", "overlap=0.1:0.5:log", "ratio=nan:inf",
    "log:0", "log:5", "linear:" + "9" * 30, "all", "normal(1)", "normal(nan)", "the", "4GB", "9" * 60 + "GB",
)  # fmt: skip


def commands() -> dict[tuple[str, ...], Any]:
    """All commands with their parameters."""
    by_words: dict[tuple[str, ...], Any] = {}

    def visit(command: Any, words: tuple[str, ...]) -> None:
        if hasattr(command, "commands"):
            for name, below in command.commands.items():
                visit(below, (*words, name))
        else:
            by_words[words] = command

    visit(typer.main.get_command(cli.commands()), ())
    return by_words


COMMANDS = commands()


def values(parameter: Any) -> st.SearchStrategy[str]:
    """Strings for one option: its default, what its help speaks of, numbers, and what nobody should say."""
    help_words = [word for word in re.split(r"[^\w.:+-]+", getattr(parameter, "help", None) or "") if word]
    default = parameter.default
    usual = [*help_words, "1", "2", "0.5", "the"] + [str(default)] * (
        3 if isinstance(default, str | int | float | Path) else 0
    )
    numbers = st.one_of(st.integers(-3, 300).map(str), st.floats(0, 10).map(str))
    anything = st.one_of(st.sampled_from(NASTY), numbers, st.text(st.characters(exclude_characters="\0"), max_size=8))
    files = {"toml": ["c.toml", "r.toml", "s.toml"], "trajectory": ["t.zarr"], "model": ["m.safetensors"],
             "measurements": ["t.zarr"], "checkpoints": ["checkpoints", "folder"]}  # fmt: skip
    if parameter.param_type_name == "argument" and parameter.nargs != -1:  # a file that is there
        described = (parameter.help or "").lower()
        usual = [name for word, names in files.items() if word in described for name in names]
        assert usual, f"{parameter.name}: its help names no kind of file: {described}"
    return st.integers(0, 2).flatmap(lambda n: anything if n == 0 else st.sampled_from(usual))


@st.composite
def calls(draw: st.DrawFn) -> list[str]:
    words = draw(st.sampled_from(sorted(COMMANDS)))
    parameters = COMMANDS[words].params
    line = list(words)
    chosen = draw(st.lists(st.sampled_from(parameters), max_size=5))  # some twice
    chosen += [p for p in parameters if p.required and draw(st.integers(0, 9))]
    for p in chosen:
        flag = getattr(p, "is_flag", False)
        if p.param_type_name == "argument":
            line += draw(st.lists(values(p), min_size=1, max_size=2 if p.nargs == -1 else 1))
            continue
        option = draw(st.sampled_from([*p.opts, *p.secondary_opts]))
        if flag or draw(st.integers(0, 39)) == 0:  # now and then without its value
            line.append(option)
        elif draw(st.booleans()):
            line.append(f"{option}={draw(values(p))}")
        else:
            line += [option, draw(values(p))]
    return line + draw(st.sampled_from([[]] * 20 + [["--nope"], ["nope"], ["-x"], ["--help"]]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One thing of each kind, as a copy to start from."""
    place = tmp_path_factory.mktemp("fuzz") / "original"
    (place / "folder").mkdir(parents=True)
    (place / "folder.png").mkdir()
    classes = ss.SequenceClasses.syn_small()
    classes.to_toml(place / "c.toml")
    ss.simulate(classes, eta_y=1.0, eta_z=1.0, steps=1, save_to=place / "t.zarr")
    (place / "r.toml").write_text('[classes]\npreset = "syn-small"\n[run]\nsteps = 1\n')
    (place / "s.toml").write_text(
        '[classes]\npreset = "syn-small"\n[grid]\neta_z = [1, 2]\nratio = 1\n[run]\nsteps = 1\n'
    )
    (place / "broken.toml").write_text("[run]\nsteps = 'ten'\n")
    for name in ("taken.png", "taken.nc", "taken.safetensors"):
        (place / name).write_text("somebody's")
    (place / "taken.zarr").mkdir()
    (place / "checkpoints").mkdir()
    (place / "checkpoints" / "step_1.pt").write_text("somebody's")
    (place / "text").mkdir()
    for split in ("train", "valid", "test"):
        (place / "text" / f"{split}.txt").write_text("the cat sat on the mat\nthe dog ran\n" * 20)
    return place


class Reached(typer.Exit):
    """The input was accepted; the work is left out."""


@pytest.fixture(scope="module")
def short(folder: Path) -> Any:
    """Everything long is cut short, and memory is bounded."""
    import matplotlib

    # matplotlib's own list of them, which a process beside the command may write late
    fonts = matplotlib.get_cachedir()
    with pytest.MonkeyPatch.context() as patch:
        _cut_short(patch)
        patch.setenv("SCANSNAP_CACHE", str(folder.parent / "cache"))
        patch.setenv("SCANSNAP_DATA", str(folder / "text"))
        patch.setenv("HOME", str(folder.parent / "home"))
        patch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
        patch.setenv("MPLCONFIGDIR", fonts)
        from scansnap.text.training import train
        from scansnap.text.yz.model import YZTransformer
        from scansnap.text.yz.settings import YZSettings

        patch.chdir(folder)
        assert call(["text", "train", "--steps", "1", "--batch", "2", "--out", "m.safetensors"])[0] == 0
        assert train(YZTransformer(YZSettings(5)), [0, 1, 2, 3] * 10, steps=1, batch=2, length=3).is_complete
        before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
        most = pages * resource.getpagesize() + (4 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_AS, before)


def _cut_short(patch: pytest.MonkeyPatch) -> None:
    from scansnap.claims import regime_map, three_way, verify
    from scansnap.claims.survey import late_attention
    from scansnap.cli import benchmark
    from scansnap.dial import study
    from scansnap.dynamics import loop
    from scansnap.paper.report import make, parallel
    from scansnap.sweep import backends
    from scansnap.sweep import run as sweep
    from scansnap.text import sample as sample_text
    from scansnap.text import training

    def reached(*_: Any, **__: Any) -> Any:
        raise Reached

    run, fit, draw = loop.Loop.run, training._TrainingLoop.run, sample_text._sample

    def few_steps(loop: Any, *args: Any) -> None:
        small = loop.settings.steps <= 3 and len(loop.trainer.runs) <= 10 and (loop.settings.batch_size or 0) <= 300
        if not small or loop.settings.context not in (float("inf"), *range(300)):
            raise Reached
        run(loop, *args)

    def few_updates(loop: Any, resume: bool) -> Any:
        if loop.result.steps > 3:
            raise Reached
        return fit(loop, resume)

    drawn = Counter[str]()

    def few_words(*args: Any) -> int:
        drawn["words"] += 1
        if drawn["words"] % 20 == 0:
            raise Reached
        return draw(*args)

    looked_up = socket.getaddrinfo

    def local_names(host: str, *args: Any, **options: Any) -> Any:
        host.encode("idna")
        if not re.fullmatch(r"[\d.:a-f]*|localhost", host):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return looked_up(host, *args, **options)

    evidence = verify.gather_evidence(
        ss.SequenceClasses.syn_small(), eta_y=0.9, eta_z=0.02, context=float("inf"), t_end=2.0
    )
    report = verify.judge_evidence(evidence)
    patch.setattr(verify, "from_flow", lambda *_, **__: evidence)
    patch.setattr(verify, "judge_evidence", lambda *_: report)
    patch.setattr(loop.Loop, "run", few_steps)
    patch.setattr(training._TrainingLoop, "run", few_updates)
    patch.setattr(sample_text, "_sample", few_words)
    patch.setattr(socket, "getaddrinfo", local_names)
    patch.setattr(benchmark, "measure", reached)
    patch.setattr(three_way, "three_way", reached)
    patch.setattr(regime_map, "killable_pool", reached)
    patch.setattr("scansnap.claims.survey.run.CHECKS", (late_attention.DECAY._replace(judge=reached),))
    patch.setattr(make, "make", reached)
    patch.setattr(parallel, "draw_in_parallel", reached)
    patch.setattr(study, "run_cells", reached)
    patch.setattr(sweep, "_fill", reached)
    patch.setattr(backends, "estimate_seconds", lambda *_: 1.0)
    patch.setattr("scansnap.explorer.lab.server.LabServer.serve_forever", reached)
    patch.setattr("webbrowser.open", lambda *_: None)


def call(line: list[str]) -> tuple[int, str, str]:
    """The command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["scansnap", *line])
        with pytest.raises(SystemExit) as end:
            cli.main()
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything there; files with size and time of change."""
    entries_by_path = {}
    for root, folders, files in os.walk(folder):
        entries_by_path |= {os.path.join(root, name): (0, 0) for name in folders}
        entries = {place: os.lstat(place) for place in (os.path.join(root, name) for name in files)}
        entries_by_path |= {place: (entry.st_size, entry.st_mtime_ns) for place, entry in entries.items()}
    return entries_by_path


@pytest.mark.parametrize(
    "line",
    [
        "run --steps 9 --out new.zarr", "text train --data text --steps 9 --out new.safetensors", "bench --quick",
        "verify --map theorem-1 --x ratio=1:2 --y overlap=0.1:0.2 --points 2 --out x.png", "survey --quick --out new",
        "reproduce fig1 --out new", "reproduce all --out new", "sweep s.toml --out new.zarr",
        "dial --quick --out new", "serve --no-open",
    ],
)  # fmt: skip
def test_what_is_long_is_cut_short(
    folder: Path, short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    shutil.copytree(folder, tmp_path / "work", symlinks=True)
    monkeypatch.chdir(tmp_path / "work")
    code, out, err = call(line.split())
    assert (code, out) == (0, ""), (code, out, err)  # a command that came to its end would have a result to tell


@pytest.mark.integration
@settings(
    max_examples=CALLS, deadline=None, derandomize=CALLS <= 300, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(line=calls())
def test_any_words_end_in_a_result_or_in_one_sentence(
    folder: Path, short: None, monkeypatch: pytest.MonkeyPatch, line: list[str]
) -> None:
    work = folder.parent / "work"
    if not work.exists():
        shutil.copytree(folder, work, symlinks=True)
    monkeypatch.chdir(work)
    before = contents(folder.parent)
    try:
        code, out, err = call(line)
    except BaseException:
        pytest.fail(f"scansnap {line}\n{traceback.format_exc()}", pytrace=False)
    event(f"exit code {code}")
    assert code in (0, 1, 2, 130), (line, code, err)
    assert "Traceback" not in err, (line, err)
    if code == 2:
        assert err.startswith(("Error: ", "Usage: ")), (line, err)
        assert err.startswith("Usage: ") or re.fullmatch(r"Error: .+\n", err), (line, err)
        assert out == "", (line, out)
        assert {**contents(folder.parent)} == before, (line, set(contents(folder.parent).items()) ^ set(before.items()))
    elif contents(work) != {k: v for k, v in before.items() if k.startswith(f"{work}/")}:
        monkeypatch.chdir(folder)
        shutil.rmtree(work)
