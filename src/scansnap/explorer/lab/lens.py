"""The text lens: trained text models in one folder, and what they attend to and vote for.

A model is a checkpoint of ``scansnap text train``, its words in it. Only files in the folder of
``--folder`` is served.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from scansnap.checks import InputError
from scansnap.explorer.lab.refusal import Refused

LARGEST = 2 << 30  # bytes of a checkpoint that is opened for a page
_MOST = 200  # models listed


def models(folder: Path | None) -> list[dict[str, Any]]:
    """The models of a folder."""
    from scansnap.text.model_files import read_header

    entries = []
    for name, path in _files(folder).items():
        try:
            header = read_header(path)
        except InputError:  # some other file of that kind, or one that is being written
            continue
        if not header.vocabulary:  # trained on numbers: there are no words to ask about
            continue
        entries.append({"name": name, "title": f"{name} ({header.model.get('kind', 'model')}, {header.step:,} steps)"})
    return entries


def check(folder: Path | None, name: str, query: str) -> Path:
    """The file of a model; refuses unknown models, bad queries and files that are too large."""
    files = _files(folder)
    if name not in files:
        where = "the folder holds " + (", ".join(files) or "no trained text model")
        if folder is None:
            where = "there is no folder of models: start with scansnap explorer --folder DIR"
        raise Refused(404, "lens", f"There is no text model {name[:60]!r}; {where[:500]}.")
    if not query or len(query) > 100:
        raise Refused(422, "query", "The query must be a word of 1 to 100 letters.")
    size = files[name].stat().st_size
    if size > LARGEST:
        raise Refused(422, "lens", f"The model is {size >> 20} MiB; the page opens up to {LARGEST >> 20} MiB.")
    return files[name]


def explain(path: Path, query: str) -> dict[str, Any]:
    """What the model does with a query word, as ``LensAnswer`` of static/js/messages.d.ts."""
    from scansnap.text.explanation import explain as explain_word

    try:
        trained = _open(path, path.stat().st_mtime_ns)
    except InputError as error:
        raise InputError("lens", path.name, error.expected) from None
    except OSError as error:
        raise InputError("lens", path.name, f"a file that can be read ({error.strerror})") from None
    try:
        explanation = explain_word(trained.model, trained.vocabulary, query, top=20)
    except InputError as error:
        raise error.with_field("query") from None
    over = trained.measured.get("entropy", {})
    return {
        "query": explanation.query,
        "entropy": explanation.entropy,
        "uniform_entropy": explanation.uniform_entropy,
        "exact": explanation.exact,
        "attended": [{"word": a.word, "attention": a.attention, "z": a.z, "count": a.count,
                      "votes": [{"word": word, "vote": vote} for word, vote in a.votes]} for a in explanation.attended],
        "votes": [{"word": word, "vote": p} for word, p in explanation.predicted],
        "entropy_over_training": [{"step": step, "entropy": value} for step, value in over.items()],
    }  # fmt: skip


@lru_cache(maxsize=1)
def _open(path: Path, changed: int) -> Any:
    """Caches the last model; ``changed`` is the time of its file."""
    from scansnap.text.model_files import load_model

    return load_model(path)


def _files(folder: Path | None) -> dict[str, Path]:
    """Checkpoints, by their path in the folder; links that lead out of it are left out."""
    if folder is None:
        return {}
    from scansnap.text.model_files import SUFFIX

    root = folder.resolve()
    inside = {}
    for path in sorted(root.rglob(f"*{SUFFIX}")):
        if path.resolve().is_relative_to(root):
            inside[path.relative_to(root).as_posix().removesuffix(SUFFIX)] = path
        if len(inside) == _MOST:
            break
    return inside
