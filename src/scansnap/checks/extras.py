"""Packages that not every installation has, the extra that brings each, and the sentence where one is missing.

They are those of ``[project.optional-dependencies]``, and what they bring along and is imported by name; a test
compares both with every import of the source.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from scansnap.checks import InputError

EXTRAS = {
    "cluster": ("ray", "s3fs", "botocore"),
    "text": ("datasets", "tensorboard", "tokenizers"),
    "probe": ("transformers",),
}


def how(package: str) -> str:
    """The command that brings a package."""
    extra = next(extra for extra, packages in EXTRAS.items() if package in packages)
    return f"pip install 'scansnap[{extra}]'"


def installed(package: str) -> bool:
    """Whether it could be imported; it is not."""
    return find_spec(package) is not None


def lacking(field: str, value: object, otherwise: str, package: str) -> InputError:
    """Return the error of an option that needs a package; ``otherwise`` is what works without it."""
    return InputError(field, value, otherwise, f"other values need the package {package}: {how(package)}")


def require(packages: Iterable[str]) -> None:
    """Refuse a whole command that cannot be done here, before it begins."""
    for package in packages:
        if not installed(package):
            raise InputError.conflict(package, f"not installed; install it with {how(package)}", None)
