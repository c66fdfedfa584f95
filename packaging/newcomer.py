"""Follow the README and the test plan as a newcomer: a fresh clone in an empty folder with an empty HOME.

python packaging/newcomer.py [--quick] [--keep FOLDER] [--only readme|tasks] [--write]

Every shell line and every Python snippet of README.md runs unchanged and in order, then the commands of its findings
that need no data and no GPU; large numbers of a finding must be printed. The sentence on corpora is tried with a small
folder. The first line that fails ends the run with its output. --quick installs instead of the two long commands, and
leaves the findings out. The clone has the last commit.

Then the ten tasks of docs/contributing/afternoon.md: their files are written and their commands run as they stand
there. The minutes of each are printed; --write puts them into the page.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
PAGE = "README.md"
TASKS = "docs/contributing/afternoon.md"
LONG = ("make reproduce", "make test")
PASSED = ("CPU", "UV", "PYTHON", "OMP_NUM_THREADS")  # settings of make, and of a machine that others use
SENTENCE = "the small dog and the old cat saw a bird in the tree by the river of the town\n"
# a warning of what the page shows is an error, one of another package in its own code is not
STRICT = r"import warnings; warnings.filterwarnings('error', module=r'(__main__|scansnap)(\.|$)')" + "\n"
MINUTES = re.compile(r"<!-- minutes -->\n(?:.*?<!-- end of minutes -->\n)?", re.S)
TAIL = 60  # lines of output that a failure shows


@dataclass(frozen=True)
class Snippet:
    """Something to run: ``language`` sh or python, and the line of the page it begins at."""

    line: int
    language: str
    text: str


def snippets(page: str) -> Iterator[Snippet]:
    """The fenced blocks of a page: a shell block line by line, a Python block whole."""
    for block in re.finditer(r"^```(sh|bash|python)\n(.*?)^```$", page, flags=re.M | re.S):
        line = page.count("\n", 0, block.start()) + 2
        if block[1] == "python":
            yield Snippet(line, "python", block[2])
            continue
        for more, text in enumerate(block[2].splitlines()):
            if command := text.split("  #")[0].strip().removeprefix("$ "):
                yield Snippet(line + more, "sh", command)


@dataclass(frozen=True)
class Task:
    """A section of the test plan: files to write, commands to type, what is printed, and which files there are then."""

    title: str
    files: dict[str, str]
    commands: str
    seen: list[str]
    made: list[str]


def tasks(page: str) -> list[Task]:
    """The numbered sections of the test plan."""
    found = []
    for title, body in re.findall(r"^## (\d+\. [^\n]+)\n(.*?)(?=^## |\Z)", page, flags=re.M | re.S):
        text = re.sub(r"^```.*?^```$", "", body, flags=re.M | re.S)
        files = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', body, flags=re.M | re.S))
        commands = "".join(re.findall(r"^```sh\n(.*?)^```$", body, flags=re.M | re.S))
        seen, made = (
            [name for part in re.findall(rf"{verb} (.+?)\.(?=\s|$)", text) for name in re.findall(r"`([^`]+)`", part)]
            for verb in ("You see", "You get")
        )
        found.append(Task(title, files, commands, seen, made))
    return found


def findings(page: str) -> Iterator[tuple[str, str]]:
    """Sentence and command of each numbered finding that needs no data of others and no GPU."""
    for sentence, command in re.findall(r"^\d+\. ((?:.+\n)*?.*)\(`([^`]+)`\)\.$", page, flags=re.M):
        if not {"--data", "--device"} & set(command.split()):
            yield " ".join(sentence.split()), " ".join(command.split())


def unprinted(sentence: str, output: str) -> list[str]:
    """Numbers with a thousands separator that the command of a finding did not print."""
    return [number for number in re.findall(r"\d{1,3}(?:,\d{3})+", sentence) if number.replace(",", "") not in
            output.replace(",", "")]  # fmt: skip


class Newcomer:
    """A clone, an empty HOME, and nothing of the environment but what the network needs."""

    def __init__(self, folder: Path):
        self.clone, self.home = folder / "scansnap", folder / "home"
        self.home.mkdir(parents=True)
        kept = {
            k: v
            for k, v in os.environ.items()
            if k.lower().startswith("pip_") or k.lower().endswith("_proxy") or k in PASSED
        }
        self.environment = {**kept, "HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        if config := os.environ.get("PIP_CONFIG_FILE") or next(iter(Path.home().glob(".config/pip/pip.conf")), None):
            self.environment["PIP_CONFIG_FILE"] = str(config)
        self.run("the clone", ["git", "clone", "--quiet", str(HERE), str(self.clone)], folder)

    def run(self, where: str, words: list[str], folder: Path | None = None, **more: str) -> str:
        """Its output; if it fails, the end."""
        said = words[-1] if words[0] == "bash" else " ".join(words[:4]).split("\n")[0]
        print(f"{where}: {said}", flush=True)
        began = time.monotonic()
        done = subprocess.run(words, cwd=folder or self.clone, env={**self.environment, **more}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        if done.returncode:
            print("\n".join(done.stdout.splitlines()[-TAIL:]))
            raise SystemExit(f"{where} failed: {said} (exit code {done.returncode})")
        print(f"    {time.monotonic() - began:.0f} s", flush=True)
        return done.stdout

    @property
    def bin(self) -> Path:
        return self.clone / ".venv" / ("Scripts" if os.name == "nt" else "bin")


def follow(newcomer: Newcomer, *, quick: bool) -> None:
    """The page from top to bottom, then what it says in sentences."""
    page = (newcomer.clone / PAGE).read_text(encoding="utf-8")
    if quick:
        newcomer.run("in place of the two long commands", ["make", "install"])
    for snippet in snippets(page):
        where = f"{PAGE}:{snippet.line}"
        if snippet.language == "python":
            newcomer.run(where, [str(newcomer.bin / "python"), "-c", STRICT + snippet.text])
        elif not (quick and snippet.text in LONG):
            newcomer.run(where, ["bash", "-c", snippet.text])
    for name in re.findall(r"\]\(([^)#:]+)[)#]", page):
        if not (newcomer.clone / name).exists():
            raise SystemExit(f"{PAGE} links to {name}, which is not in the clone")
    path = f"{newcomer.bin}{os.pathsep}{newcomer.environment['PATH']}"
    if not quick:
        for sentence, command in findings(page):  # exit code 1 of verify: a statement fails, as the finding says
            allowed = " || test $? = 1" if "verify" in command else ""
            output = newcomer.run(f"{PAGE}, the findings", ["bash", "-c", command + allowed], PATH=path)
            if wrong := unprinted(sentence, output):
                raise SystemExit(f"{PAGE} gives {', '.join(wrong)}, which `{command}` did not print: {sentence}")
        if not (newcomer.clone / "out" / "report.html").exists():
            raise SystemExit("`make reproduce` made no out/report.html")
    corpus = newcomer.home / "corpus"
    corpus.mkdir()
    for split in ("train", "valid", "test"):
        (corpus / f"wiki.{split}.tokens").write_text(SENTENCE * 200, encoding="utf-8")
    words = [str(newcomer.bin / "scansnap"), "text", "train", "--steps", "2", "--out", "small.safetensors"]
    newcomer.run(f"{PAGE}, the corpus", words, SCANSNAP_DATA=str(corpus))


def processor_time() -> float:
    """Seconds of processor time that ended child processes have used: a busy machine changes them little."""
    used = os.times()
    return used.children_user + used.children_system


def perform(newcomer: Newcomer) -> dict[str, tuple[float, float]]:
    """All tasks of the test plan, in order; the minutes of each, and of processor time."""
    minutes = {}
    for task in tasks((newcomer.clone / TASKS).read_text(encoding="utf-8")):
        began, worked = time.monotonic(), processor_time()
        for name, text in task.files.items():
            (newcomer.clone / name).write_text(text, encoding="utf-8")
        path = f"{newcomer.bin}{os.pathsep}{newcomer.environment['PATH']}"  # the environment is active
        where = f"{TASKS}, {task.title}"
        output = newcomer.run(where, ["bash", "-e", "-o", "pipefail", "-c", task.commands], PATH=path)
        for text in task.seen:
            if text not in output:
                raise SystemExit(f"{where}: {text!r} was not printed:\n{output[-2000:]}")
        for name in task.made:
            if not (newcomer.clone / name).exists():
                raise SystemExit(f"{where}: {name} was not made")
        minutes[task.title] = ((time.monotonic() - began) / 60, (processor_time() - worked) / 60)
    return minutes


def table(minutes: dict[str, tuple[float, float]]) -> str:
    """The minutes as the page shows them."""
    total = tuple(map(sum, zip(*minutes.values(), strict=True)))
    rows = "".join(
        f"| {title} | {wall:.1f} | {work:.1f} |\n" for title, (wall, work) in {**minutes, "all": total}.items()
    )
    head = "| Task | Minutes | Minutes of processor time |\n|---|---|---|\n"
    return f"<!-- minutes -->\n\n{head}{rows}\n<!-- end of minutes -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without the two long commands")
    parser.add_argument("--keep", type=Path, help="a new folder that stays, to look at what happened")
    parser.add_argument("--only", choices=("readme", "tasks"), help="one of the two")
    parser.add_argument("--write", action="store_true", help=f"write the minutes into {TASKS} of this repository")
    given = parser.parse_args()
    state = ["git", "status", "--porcelain", "--untracked-files=no"]
    if subprocess.run(state, cwd=HERE, capture_output=True, text=True, check=True).stdout:
        print("Changes that are not committed are not in the clone.", file=sys.stderr)
    with tempfile.TemporaryDirectory() as temporary:
        newcomer = Newcomer((given.keep or Path(temporary)).resolve())
        if given.only != "tasks":
            follow(newcomer, quick=given.quick)
            print("A newcomer gets what the README says.")
        if given.only != "readme":
            minutes = perform(newcomer)
            print(table(minutes))
            if given.write:
                page = HERE / TASKS
                text = page.read_text(encoding="utf-8")
                page.write_text(MINUTES.sub(lambda _: table(minutes), text, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
