"""Revisions of a repository on the Hugging Face hub: one is downloaded, measured and removed at a time.

Published models have a branch for each checkpoint (``step1000``). The hub lists the hash of every file, so that equal
weights are known before they are downloaded.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from scansnap.checks import InputError, check_integer, digits
from scansnap.checks.extras import installed, missing_package
from scansnap.probe.checkpoints.find import Checkpoint, compile_steps, is_weights, preferred

HUB = "hf:"
STEP = r"step[-_]?(\d+)"
CONFIG_FILES = ("*.json", "*.txt", "*.model", "*.tiktoken")  # of the model and its tokenizer


@dataclass(frozen=True)
class HubRevision(Checkpoint):
    """A branch or tag whose name has a step."""

    repository: str = ""
    commit: str = ""
    weights: tuple[str, ...] = ()
    cache: Path | None = None

    @contextmanager
    def open(self) -> Iterator[Path]:
        """A folder with the files, which is removed at the end unless there is a cache."""
        from huggingface_hub import snapshot_download

        cache = self.cache or Path(tempfile.mkdtemp(prefix="scansnap-"))
        try:
            patterns = [*CONFIG_FILES, *self.weights]
            with _as_input_error(self.repository, self.name):
                folder = snapshot_download(
                    self.repository,
                    revision=self.commit,
                    cache_dir=cache,
                    allow_patterns=patterns,
                    endpoint=_endpoint(),
                )
            yield Path(folder)
        finally:
            if self.cache is None:
                shutil.rmtree(cache, ignore_errors=True)


def find_revisions(
    repository: str, revisions: str, steps: str | None, cache: Path | None
) -> tuple[list[Checkpoint], list[tuple[str, str]]]:
    """The chosen revisions by step, and those without weights with the reason."""
    if not installed("huggingface_hub"):
        raise missing_package("FOLDER", HUB + repository, "a folder", "huggingface_hub")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", repository):
        raise InputError("FOLDER", HUB + repository, "hf:ORGANISATION/NAME")
    choose = parse_revisions(revisions)
    from huggingface_hub import HfApi, RepoFile

    api = HfApi(endpoint=_endpoint())
    with _as_input_error(repository, "its branches"):
        refs = api.list_repo_refs(repository)
    pattern = compile_steps(steps or STEP)
    by_step: dict[int, Any] = {}
    for ref in [*refs.tags, *refs.branches]:  # a branch and a tag of one name are the same to the hub
        match = pattern.search(ref.name)
        step = digits(match[1]) if match else None
        if step is not None:
            by_step[step] = ref
    if not by_step:
        raise InputError("--steps", pattern.pattern, f"a pattern that matches a branch of {repository}", "pass --steps")
    missing: list[tuple[str, str]] = []
    checkpoints: list[Checkpoint] = []
    for step in choose(sorted(by_step), {ref.name: step for step, ref in by_step.items()}):
        ref = by_step[step]
        with _as_input_error(repository, ref.name):
            tree = list(api.list_repo_tree(repository, recursive=True, revision=ref.target_commit))
        files = {
            file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in tree if isinstance(file, RepoFile)
        }
        weights = preferred([PurePosixPath(name) for name in files if "/" not in name and is_weights(name)])
        if not weights:
            missing.append((ref.name, "the revision has no weights"))
            continue
        text = " ".join(f"{file}={files[str(file)]}" for file in sorted(weights))
        sha = hashlib.sha256(text.encode()).hexdigest()[:16]
        names = tuple(str(file) for file in weights)
        checkpoints.append(HubRevision(step, ref.name, sha, repository, ref.target_commit, names, cache))
    return checkpoints, missing


Choice = Callable[[list[int], dict[str, int]], list[int]]


def parse_revisions(text: str) -> Choice:
    """``all``, ``log:N`` (N per decade of steps, with the first and the last), or names separated by commas."""
    kind, colon, number = text.partition(":")
    if kind == "log" and colon:
        per_decade = check_integer("--revisions", digits(number), least=1)
        return lambda steps, names: log_spaced(steps, per_decade)
    if text == "all":
        return lambda steps, names: steps

    def by_name(steps: list[int], names: dict[str, int]) -> list[int]:
        wanted = text.split(",")
        for name in wanted:
            if name not in names:
                expected = f"all, log:N, or names of revisions, such as {', '.join(list(names)[:3])}"
                raise InputError("--revisions", name, expected)
        return sorted(names[name] for name in wanted)

    return by_name


def log_spaced(steps: list[int], per_decade: int) -> list[int]:
    """The first of the steps in each of ``per_decade`` parts of a decade, and the last step."""
    chosen = {part_of_decade(step, per_decade): step for step in reversed(steps)}
    return sorted({*chosen.values(), steps[-1]})


def part_of_decade(step: int, per_decade: int) -> int:
    return -1 if step == 0 else math.floor(per_decade * math.log10(step) + 1e-9)


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT")


@contextmanager
def _as_input_error(repository: str, what: str) -> Iterator[None]:
    """The hub's and the network's errors as one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".: ")
        raise InputError("FOLDER", HUB + repository, f"a repository whose {what} can be read", reason) from None
