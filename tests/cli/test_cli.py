"""The command line as a person meets it: output, files, exit codes and messages."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import scansnap as ss
from scansnap.cli import console


def test_run_writes_a_trajectory_and_a_figure(scansnap, tmp_path):
    code, out, _ = scansnap("run", "--steps", 5, "--momentum", 0.9, "--out", "a/b.zarr")
    assert code == 0
    assert "1 run of 5 steps" in out
    data = ss.load(tmp_path / "a/b.zarr")
    assert data.sizes["step"] == 6
    assert float(data.momentum[0]) == 0.9
    assert (tmp_path / "a/b.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["b.png", "b.zarr"]


def test_run_equals_simulate(scansnap, tmp_path):
    scansnap("run", "--preset", "syn-medium", "--set", "n_queries=2", "--eta-z", "0.5,1", "--ratio", 2,
             "--seed", "0:3", "--steps", 7, "--record", "0,7", "--init", "uniform",
             "--out", "x.nc", "--no-figure")  # fmt: skip
    direct = ss.simulate(
        ss.SequenceClasses.syn_medium(2), ss.grid(eta_z=[0.5, 1], ratio=2, seed=range(3)), steps=7, record=[0, 7],
        init="uniform",
    )  # fmt: skip
    data = ss.load(tmp_path / "x.nc")
    np.testing.assert_array_equal(data.attention, direct.attention)
    np.testing.assert_array_equal(data.eta_y, direct.eta_y)
    assert not (tmp_path / "x.png").exists()


def test_run_file_and_options_on_top(scansnap, tmp_path):
    (tmp_path / "r.toml").write_text(
        '[classes]\npreset = "zipf"\nvocab = 50\nclasses = 3\n[run]\neta_z = [0.1, 0.2]\neta_y = 1.0\nsteps = 4\n'
        'optimizer = { name = "adam", beta2 = 0.99 }\ncontext = "inf"\nrecord = "all"\n'
    )
    assert scansnap("run", "r.toml", "--ratio", 3, "--steps", 2, "--json")[0] == 0
    data = ss.load(tmp_path / "out/run.zarr")
    assert data.sizes["run"] == 2
    assert data.step.values.tolist() == [0, 1, 2]
    np.testing.assert_allclose(data.eta_y, [0.3, 0.6])
    settings = json.loads(data.attrs["settings"])
    assert settings["context"] == "inf"
    assert settings["optimizer_y"]["beta2"] == 0.99


def test_json_is_one_document(scansnap):
    code, out, _ = scansnap("run", "--steps", 1, "--json")
    assert code == 0
    assert json.loads(out)["steps"] == 1
    assert json.loads(scansnap("info", "--preset", "syn-small", "--json")[1])["n_classes"] == 2
    assert json.loads(scansnap("info", "--json")[1])["versions"]["scansnap"] == ss.__version__
    assert json.loads(scansnap("info", "out/run.zarr", "--json")[1])["settings"]["steps"] == 1


def test_info_shows_the_classes(scansnap, tmp_path):
    code, out, _ = scansnap("info", "--preset", "syn-medium", "--set", "n_queries=12")
    assert code == 0
    assert "24 classes" in out
    assert "common tokens 0–9" in out
    assert "4 more classes" in out
    assert "more classes" not in scansnap("info", "--preset", "syn-medium", "--set", "n_queries=12", "--all")[1]
    ss.SequenceClasses.syn_small().to_toml(tmp_path / "c.toml")
    assert "20–29" in scansnap("info", "c.toml")[1]
    assert "compiled_kernels" in scansnap("info")[1]


BAD = {
    "context": (["run", "--context", "1"], "context"),
    "context word": (["run", "--context", "long"], "context"),
    "rate": (["run", "--eta-y", "nan"], "eta_y"),
    "rate word": (["run", "--eta-z", "fast"], "eta_z"),
    "both rates": (["run", "--eta-y", "1", "--ratio", "2"], "eta_y and ratio"),
    "preset": (["run", "--preset", "syn-tiny"], "preset"),
    "knob": (["run", "--preset", "syn-small", "--set", "n_queries=3"], "the setting 'n_queries' of preset syn-small"),
    "knob form": (["info", "--preset", "zipf", "--set", "vocab"], "--set"),
    "optimizer": (["run", "--optimizer", "sdg"], "optimizer"),
    "record": (["run", "--record", "sometimes"], "record"),
    "record late": (["run", "--steps", "5", "--record", "9"], "record"),
    "batch": (["run", "--batch-size", "none"], "batch_size"),
    "seed": (["run", "--seed", "5:1"], "seed"),
    "device": (["run", "--device", "tpu"], "device"),
    "suffix": (["run", "--out", "x.csv"], "--out"),
    "no file": (["run", "nowhere.toml"], ("the TOML file", "nowhere.toml")),
    "no trajectory": (["info", "nowhere.zarr"], ("the result path", "nowhere.zarr")),
}


@pytest.mark.parametrize(("words", "field"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_sentence_and_code_2(refuses, tmp_path, words, field):
    refuses(field, *words)
    assert list(tmp_path.iterdir()) == []  # no partial files


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("run --eta-z -1", "--eta-z"),
        ("run --eta-z=-1", "--eta-z"),
        ("run negative.toml", "eta_z"),  # a key of the file
        ("verify --map theorem-9", "--map"),
        ("verify --finite-T 0", "--finite-T"),
        ("text explain none.safetensors --query a", "MODEL"),
    ],
)
def test_an_error_names_what_was_typed(scansnap, tmp_path, words, name):
    (tmp_path / "negative.toml").write_text("[run]\neta_z = -1\n")
    code, out, err = scansnap(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"Error: {name}: "), err


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[run]\nsteps = 'ten'\n", "steps"), ("[run]\nstep = 10\n", "step"),
        ("[classes]\npreset = 'syn-small'\n[runs]\nsteps = 1\n", "runs"), ("run = 3\n", "run"),
        ("[run]\neta_z = [1, 'x']\n", "eta_z"), ("[run]\noptimizer = {name = 'adam', beta = 0.9}\n", "beta"),
        ("not toml", ("the TOML file", "bad.toml")),
    ],
)  # fmt: skip
def test_bad_run_files(refuses, tmp_path, text, field):
    (tmp_path / "bad.toml").write_text(text)
    refuses(field, "run", "bad.toml")


def test_a_result_is_not_overwritten_by_accident(scansnap, refuses, tmp_path):
    assert scansnap("run", "--steps", 1, "--out", "a.zarr")[0] == 0
    before = (tmp_path / "a.png").stat().st_mtime_ns
    refuses("--out", "run", "--steps", 2, "--out", "a.zarr", names="--overwrite")
    refuses("preset", "run", "--preset", "nonsense", "--out", "a.zarr")  # what was typed before clashes of files
    refuses("record", "run", "--record", "never", "--out", "a.zarr")
    assert (tmp_path / "a.png").stat().st_mtime_ns == before
    assert scansnap("run", "--steps", 2, "--out", "a.zarr", "--overwrite")[0] == 0
    assert ss.load(tmp_path / "a.zarr").step[-1] == 2


def test_default_outputs_are_numbered(scansnap, tmp_path):
    for steps, name in ((1, "run"), (2, "run-2"), (3, "run-3")):
        assert json.loads(scansnap("run", "--steps", steps, "--json")[1])["trajectory"] == f"out/{name}.zarr"
    assert json.loads(scansnap("run", "--steps", 3, "--json", "--resume")[1])["trajectory"] == "out/run-3.zarr"
    assert json.loads(scansnap("run", "--steps", 4, "--json", "--overwrite")[1])["trajectory"] == "out/run.zarr"
    assert len(list((tmp_path / "out").iterdir())) == 6  # three trajectories with their figures


def test_starting_is_quick_because_torch_is_loaded_late():
    steps = ("import scansnap", "import scansnap.cli.app", "scansnap.SequenceClasses.syn_small()")
    code = "import sys\n" + "".join(f"{step}\nprint('torch' in sys.modules)\n" for step in steps)
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert dict(zip(steps, process.stdout.split(), strict=True)) == dict.fromkeys(steps, "False")


def test_the_core_imports_only_torch_numpy_scipy_and_xarray():
    absent = ["zarr", "h5netcdf", "matplotlib", "typer", "rich", "triton"]
    code = (
        "import sys\n"
        f"for name in {absent}: sys.modules[name] = None\n"
        "import scansnap as ss, scansnap.theory, scansnap.measure\n"
        "data = ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=1.0, steps=2)\n"
        "print(float(data.loss[0, 0]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(np.log(34), rel=1e-6)


HELP = [("run",), ("info",), ("verify",), ("survey",), ("reproduce",), ("sweep",), ("bench",), ("explorer",),
        ("lecture",), ("text", "train"), ("text", "explain"), ("text", "sample"), ("text", "evaluate")]  # fmt: skip


def test_every_command_has_help_with_an_example_and_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from scansnap.cli.app import commands\n"
        f"for words in {[(), *HELP]!r}: commands()([*words, '--help'], standalone_mode=False)\n"
        "print([name for name in ('torch', 'scipy', 'xarray', 'zarr', 'matplotlib') if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for words in HELP:
        assert re.search(rf"Example: scansnap {' '.join(words)}\s", process.stdout), words
    assert process.stdout.splitlines()[-1] == "[]"


def test_progress_off_a_terminal_is_a_line_with_pace_and_time_left(monkeypatch, capsys):
    monkeypatch.setattr(console, "SILENT", 0)
    times = iter([0.0, 1.0, 1.0, 1.0, 11.0, 11.0, 11.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(times))
    with console.progress_bar("runs") as report:
        report(10, 100)  # done before
        report(30, 100)  # 20 in ten seconds, 70 to do
    assert capsys.readouterr().err == "runs: 10/100\nruns: 30/100, 2/s, about 35 s left\n"


def test_the_version_is_told(scansnap):
    assert scansnap("--version") == (0, f"scansnap {ss.__version__}\n", "")


@pytest.mark.parametrize(("words", "completed"), [("scansnap rep", "reproduce"), ("scansnap run --mom", "--momentum")])
def test_the_shell_completes_commands_and_options(monkeypatch, words, completed):
    program = "import sys; sys.argv[:] = ['scansnap']; from scansnap.__main__ import main; main()"
    asked = {"_SCANSNAP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [completed], done.stderr
