"""Which warnings are errors: those that our code raises or that are attributed to it.

A warning belongs to the module that ``stacklevel`` points to. What another package warns of in its own code is reported
and fails nothing. Where it points to its caller, the warning is about our use and fails the test. With ``--newest``
(``make test-newest``) a deprecation of the latter kind is reported only.

NumPy and SciPy warn inside their own functions of numbers that we passed (the mean of an empty slice). Their
RuntimeWarning is therefore an error too, except with ``--newest``. So are pytest's own warnings, which include what
cannot be raised: an unclosed file, an exception in a thread.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# the modules of files that tests load by path
PREFIXES = ("test_", "_script_")
DEPRECATIONS = ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning")
# the same for a separate process: the first line of `python -c`
STRICT = "import warnings; warnings.filterwarnings('error', module=r'(__main__|scansnap)(\\.|$)')\n"


def our_modules() -> str:
    """A regular expression, without a colon, which separates the fields of a filter."""
    helpers = sorted(path.stem for path in Path(__file__).parent.rglob("*.py"))
    names = [name for name in helpers if not name.startswith(PREFIXES)]
    scripts = sorted(path.stem for folder in ("benchmarks", "packaging") for path in ROOT.joinpath(folder).glob("*.py"))
    whole = "|".join(["scansnap", "__main__", *names, *scripts])
    return rf"((({'|'.join(PREFIXES)})\w*)|{whole})(\.|$)"


def rules(newest: bool) -> list[str]:
    """Filters for pytest; a later one wins."""
    ours = our_modules()
    if newest:
        reported = [f"default::{category}:{ours}" for category in DEPRECATIONS]
        return ["default", f"error:::{ours}", "error::pytest.PytestWarning", *reported]
    numbers = r"error::RuntimeWarning:(numpy|scipy)(\.|$)"
    return ["default", f"error:::{ours}", "error::pytest.PytestWarning", numbers]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--newest", action="store_true", help="report deprecations of what we call, and do not fail")


def pytest_configure(config: pytest.Config) -> None:
    for rule in rules(config.getoption("--newest")):
        config.addinivalue_line("filterwarnings", rule)
