"""Build the sdist, the wheel from it, and try the wheel as somebody who has only that: no compiler, no repository.

python packaging/try_wheel.py [--into dist] [--constraints constraints.txt]

A new environment in an empty folder, an empty HOME, and a PATH with nothing but that environment. There it is installed
with the extras web and probe and runs, verifies, reproduces a figure, serves its page and probes a model; the first
failure ends it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import venv
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
KERNELS = ("attention", "fused", "sampling", "step")
PROBE = """
import torch, scansnap as ss
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))
ids = torch.randint(0, 64, (4, 12))
rule = torch.optim.SGD(model.parameters(), lr=0.1)
probe = ss.Probe(model, ids, out="probe.zarr")
for step in range(3):
    rule.zero_grad()
    model(ids, labels=ids).loss.backward()
    rule.step()
    probe.step(step)
probe.report("probe.html")
"""
KERNEL_CHECK = "from scansnap.kernels.cpu.library import available; raise SystemExit(not available())"


def build(into: Path) -> Path:
    """The sdist, and from it the wheel; a kernel that does not compile is an error."""
    into.mkdir(parents=True, exist_ok=True)
    for old in (*into.glob("scansnap-*.whl"), *into.glob("scansnap-*.tar.gz")):
        old.unlink()
    make = f"import setuptools.build_meta as b; b.build_sdist({str(into)!r})"
    run([sys.executable, "-c", make], cwd=HERE)
    sdist = next(into.glob("scansnap-*.tar.gz"))
    environment = {**os.environ, "SCANSNAP_KERNELS": "required"}
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", into, sdist], env=environment)
    return next(into.glob("scansnap-*.whl"))


def holds_everything(wheel: Path) -> None:
    """Whatever is tracked under src/ is in the wheel, and the kernels beside it."""
    tracked = subprocess.run(["git", "ls-files", "src/scansnap"], cwd=HERE, capture_output=True, text=True, check=True)
    wanted = {name.removeprefix("src/") for name in tracked.stdout.split("\n") if name}
    inside = set(zipfile.ZipFile(wheel).namelist())
    if missing := sorted(wanted - inside):
        raise SystemExit(f"{wheel.name} lacks {', '.join(missing)}")
    built = {m[1] for name in inside if (m := re.fullmatch(r"scansnap/kernels/cpu/_(\w+)_default\.\w+", name))}
    if built != set(KERNELS):
        raise SystemExit(f"{wheel.name} has the kernels {sorted(built)}; it should have {sorted(KERNELS)}")
    if "-py3-none-" not in wheel.name:
        raise SystemExit(f"{wheel.name} is for one Python only")


def tried(wheel: Path, constraints: Path) -> None:
    """Install and use it where there is nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        empty, home, place = Path(folder) / "work", Path(folder) / "home", Path(folder) / "venv"
        empty.mkdir()
        home.mkdir()
        venv.create(place, with_pip=True)
        bin_ = place / ("Scripts" if os.name == "nt" else "bin")
        kept = {k: v for k, v in os.environ.items() if k.lower().startswith("pip_") or k.lower().endswith("_proxy")}
        environment = {**kept, "HOME": str(home), "PATH": str(bin_), "MPLBACKEND": "agg"}
        if config := os.environ.get("PIP_CONFIG_FILE") or next(iter(Path.home().glob(".config/pip/pip.conf")), None):
            environment["PIP_CONFIG_FILE"] = str(config)

        def here(*words: str | Path, fine: tuple[int, ...] = (0,)) -> None:
            print("$", *words, flush=True)
            run([bin_ / words[0], *words[1:]], fine, cwd=empty, env=environment)

        here("python", "-m", "pip", "install", "--quiet", "-c", constraints, f"{wheel}[web,probe]")
        here("python", "-c", KERNEL_CHECK)
        here("scansnap", "--version")
        here("scansnap", "run", "--steps", "20", "--out", "run.zarr")
        here(
            "scansnap", "verify", "--preset", "textbook", "--eta-y", "0.9", "--eta-z", "0.02", fine=(0, 1)
        )  # 1: a claim fails
        here("scansnap", "reproduce", "fig4", "--quick", "--out", "out")
        here("python", "-c", PROBE)
        served(bin_, empty, environment)
        for file in ("run.zarr", "run.png", "out/fig4.png", "probe.html"):
            if not (empty / file).exists():
                raise SystemExit(f"{file} was not made")


def served(bin_: Path, empty: Path, environment: dict[str, str]) -> None:
    """The explorer says where it is, and its page and all that it loads are there."""
    print("$ scansnap serve --no-open --port 0", flush=True)
    words = [bin_ / "scansnap", "serve", "--no-open", "--port", "0"]
    with subprocess.Popen(
        words, cwd=empty, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if found := re.search(r"http://[\w.:]+/\S*", line):
                    break
            else:
                raise SystemExit("the explorer ended without saying where it is")
            at = found[0]
            page = urllib.request.urlopen(at, timeout=120).read().decode()
            parts = re.findall(r'(?:src|href)="([^"#]+\.(?:js|css|svg))"', page)
            if not parts:
                raise SystemExit("the explorer's page loads nothing")
            for part in parts:
                urllib.request.urlopen(urllib.parse.urljoin(at, part), timeout=120).read()
        finally:
            server.terminate()


def run(words: list[str | Path], fine: tuple[int, ...] = (0,), **more: object) -> None:
    done = subprocess.run([str(word) for word in words], **more)  # type: ignore[call-overload]
    if done.returncode not in fine:
        raise SystemExit(f"{' '.join(str(word) for word in words[:6])} … ended with {done.returncode}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=HERE / "dist")
    parser.add_argument("--constraints", type=Path, default=HERE / "constraints.txt")
    given = parser.parse_args()
    wheel = build(given.into.resolve())
    holds_everything(wheel)
    tried(wheel, given.constraints.resolve())
    shutil.rmtree(HERE / "build", ignore_errors=True)
    print(f"{wheel.name}: everything is there and works")
