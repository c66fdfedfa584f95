"""Build the sdist, the wheel from it, and try the wheel as somebody who has only that: no compiler, no repository.

python packaging/try_wheel.py [--into dist] [--constraints constraints.txt] [--cpu]

A new environment in an empty folder, an empty HOME, and a PATH with nothing but that environment. There it is installed
with the extra probe, in the versions of the constraints (--cpu: torch from PyTorch's CPU index). It runs, verifies,
trains on text, reproduces a figure, writes the explorer and probes a model; the first failure ends it. The explorer it
wrote, explorer.html, lies beside the packages at the end. Before anything is built, the newest entry of the changelog
and the citation must be of the version.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
import zipfile
from pathlib import Path

from install import CPU_INDEX

HERE = Path(__file__).resolve().parent.parent
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
# what a wheel must not need, and where it must come from: nothing compiles here, and no repository is near
ALONE = """
import pathlib, shutil, subprocess, sys, sysconfig, tempfile
for compiler in {"cc", "gcc", "clang", "c99", "cl", *sysconfig.get_config_var("CC").split()[:1]}:
    assert shutil.which(compiler) is None, compiler
from setuptools import Distribution, Extension
pathlib.Path("x.c").write_text("int x(void) { return 1; }")
build = Distribution({"name": "x", "ext_modules": [Extension("x", ["x.c"])]}).get_command_obj("build_ext")
build.build_temp, build.build_lib = "temp", "lib"
build.ensure_finalized()
try:
    build.run()
except Exception as error:
    print("nothing compiles here:", error)
else:
    raise SystemExit("there is a compiler here")
pathlib.Path("x.c").unlink()
import scansnap
assert pathlib.Path(scansnap.__file__).is_relative_to(sys.prefix), scansnap.__file__
from scansnap.kernels.cpu.library import available, find
assert available()
print("the kernels are", find("fused").name, "and", find("sampling").name)
"""


def names_the_version() -> None:
    """The changelog begins with the version of the package, and the citation is of it and of the same day."""

    def found(name: str, pattern: str) -> tuple[str, ...]:
        match = re.search(pattern, (HERE / name).read_text(encoding="utf-8"), re.M)
        return match.groups() if match else ("nothing",)

    version = found("src/scansnap/__init__.py", r'__version__ = "(.+?)"')[0]
    changelog = found("CHANGELOG.md", r"^## (\d\S*)\W+(\d{4}-\d\d-\d\d)\)?$")
    citation = found("CITATION.cff", r"^version: (\S+)\ndate-released: (\S+)$")
    if not version == changelog[0] == citation[0] or changelog != citation:
        raise SystemExit(
            f"version {version}: expected in CHANGELOG.md and CITATION.cff, got {changelog} and {citation}"
        )


def build(into: Path) -> Path:
    """The sdist, and from it the wheel; a kernel that does not compile is an error."""
    into.mkdir(parents=True, exist_ok=True)
    for old in (*into.glob("scansnap-*.whl"), *into.glob("scansnap-*.tar.gz")):
        old.unlink()
    make = f"import setuptools.build_meta as b; b.build_sdist({str(into)!r})"
    run([sys.executable, "-c", make], cwd=HERE, stdout=subprocess.DEVNULL)
    sdist = next(into.glob("scansnap-*.tar.gz"))
    environment = {**os.environ, "SCANSNAP_KERNELS": "required"}
    run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", into, sdist],
        env=environment)  # fmt: skip
    return next(into.glob("scansnap-*.whl"))


def holds_everything(wheel: Path) -> None:
    """Whatever is tracked under src/ is in the wheel, beside it each kernel for each instruction set, and no more."""
    tracked = subprocess.run(["git", "ls-files", "src/scansnap"], cwd=HERE, capture_output=True, text=True, check=True)
    wanted = {name.removeprefix("src/") for name in tracked.stdout.split("\n") if name}
    for kind in (".css", ".html", ".js", ".svg", ".toml", ".bin", ".cu", ".c", "py.typed"):
        if not any(name.endswith(kind) for name in wanted):
            raise SystemExit(f"the repository has no {kind} under src: this check has lost its sight")
    script = runpy.run_path(str(HERE / "setup.py"))
    target = (platform.machine(), sysconfig.get_platform(), os.environ.get("ARCHFLAGS", ""))
    for kernel in script["KERNEL_FLAGS"]:
        for name in script["instruction_sets"](*target):
            wanted.add(f"scansnap/kernels/cpu/_{kernel}_{name}{script['EXTENSION_SUFFIXES'][-1]}")
    with zipfile.ZipFile(wheel) as opened:
        inside = {name for name in opened.namelist() if ".dist-info/" not in name}
    for problem, names in (("lacks", wanted - inside), ("has besides", inside - wanted)):
        if names:
            raise SystemExit(f"{wheel.name} {problem} {', '.join(sorted(names))}")
    version = re.search(r'__version__ = "(.+?)"', (HERE / "src/scansnap/__init__.py").read_text(encoding="utf-8"))
    if version is None or not wheel.name.startswith(f"scansnap-{version[1]}-py3-none-"):
        raise SystemExit(f"{wheel.name} is of another version, or for one Python only")
    print(f"{wheel.name}: {wheel.stat().st_size / 2**20:.2f} MiB, {len(inside)} files, all there", flush=True)


def tried(wheel: Path, constraints: Path, *, cpu: bool) -> None:
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
            print("$", *(str(word).strip().partition("\n")[0] for word in words), flush=True)
            began = time.monotonic()
            run([bin_ / words[0], *words[1:]], fine, cwd=empty, env=environment)
            print(f"  {time.monotonic() - began:.1f} s", flush=True)

        pip = ("python", "-m", "pip", "install", "--quiet", "-c", constraints)
        if cpu:
            here(*pip, "--no-deps", "--index-url", CPU_INDEX, "torch")
        here(*pip, f"{wheel}[probe]", "setuptools")
        here("python", "-c", ALONE)
        here("scansnap", "--version")
        here("python", "-m", "scansnap", "--version")
        here("scansnap", "run", "--steps", "20", "--out", "run.zarr")
        here(
            "scansnap", "verify", "--preset", "textbook", "--eta-y", "0.9", "--eta-z", "0.02", fine=(0, 1)
        )  # 1: a claim fails
        here("scansnap", "text", "train", "--steps", "5", "--max-words", "500", "--out", "model.safetensors")
        here("scansnap", "reproduce", "fig4", "--quick", "--out", "out")
        here("python", "-c", PROBE)
        here("scansnap", "explorer", "--out", "explorer.html")
        for file in ("run.zarr", "run.png", "model.safetensors", "out/fig4.png", "probe.html", "explorer.html"):
            if not (empty / file).exists():
                raise SystemExit(f"{file} was not made")
        shutil.copy(empty / "explorer.html", wheel.parent)


def run(words: list[str | Path], fine: tuple[int, ...] = (0,), **more: object) -> None:
    done = subprocess.run([str(word) for word in words], **more)  # type: ignore[call-overload]
    if done.returncode not in fine:
        raise SystemExit(f"{' '.join(str(word) for word in words[:6])} … ended with {done.returncode}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=HERE / "dist")
    parser.add_argument("--constraints", type=Path, default=HERE / "constraints.txt")
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    names_the_version()
    wheel = build(given.into.resolve())
    holds_everything(wheel)
    tried(wheel, given.constraints.resolve(), cpu=given.cpu)
    for left in (HERE / "build", HERE / "src" / "scansnap.egg-info"):
        shutil.rmtree(left, ignore_errors=True)
    print(f"{wheel.name}: everything is there and works; explorer.html lies beside it")
