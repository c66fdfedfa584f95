"""Optional packages, the extra that installs each, and the error if a package is missing.

A test compares them with ``[project.optional-dependencies]`` and with the imports of the source.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from scansnap.checks import InputError

EXTRAS = {
    "cluster": ("ray", "s3fs", "botocore"),
    "text": ("datasets", "tensorboard", "tokenizers"),
    "probe": ("transformers", "huggingface_hub"),
}


def how(package: str) -> str:
    """The command that installs a package."""
    extra = next(extra for extra, packages in EXTRAS.items() if package in packages)
    return f"pip install 'scansnap[{extra}]'"


def installed(package: str) -> bool:
    """Whether a package is installed; it is not imported."""
    return find_spec(package) is not None


def missing_package(field: str, value: object, otherwise: str, package: str) -> InputError:
    """Return the error of an option that needs a package; ``otherwise`` is what works without it."""
    return InputError(field, value, otherwise, f"other values need the package {package}: {how(package)}")


def require(packages: Iterable[str]) -> None:
    """Raise InputError unless all packages are installed."""
    for package in packages:
        if not installed(package):
            raise InputError.conflict(package, f"not installed; install it with {how(package)}", None)
