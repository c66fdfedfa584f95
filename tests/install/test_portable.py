"""Without what only POSIX systems have: everything imports, and a result is made, written and read."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Only our own imports are refused: the standard library has other ways on a system without them, and takes those there
PROGRAM = """
import builtins, importlib, pkgutil, sys
from unittest.mock import patch
ABSENT = {"fcntl", "resource", "grp", "pwd", "termios", "syslog"}
real, refused = builtins.__import__, []

def importing(name, globals=None, locals=None, fromlist=(), level=0):
    if name in ABSENT and (globals or {}).get("__name__", "").startswith("scansnap"):
        refused.append(name)
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real(name, globals, locals, fromlist, level)

patch.object(builtins, "__import__", importing).start()
import scansnap as ss
for module in pkgutil.walk_packages(ss.__path__, "scansnap."):
    if not module.name.endswith("__main__") and ".cpu._" not in module.name:  # libraries, for ctypes
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # a package of an extra, such as triton
            if error.name in ABSENT or error.name.startswith("scansnap"):
                raise
data = ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1, eta_z=1, steps=3)
ss.save(data, "x.zarr")
ss.save(data, "x.zarr", overwrite=True)
assert ss.load("x.zarr").equals(data)
from scansnap.processes import peak_memory
assert peak_memory() is None
print(*sorted(set(refused)))
"""


@pytest.mark.integration
def test_everything_imports_without_the_modules_of_posix(tmp_path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "fcntl" in done.stdout.split()  # it was asked for, and its absence taken
