"""The compiled CPU kernels; everything else is in pyproject.toml.

They are plain shared libraries loaded through ctypes, and optional: without a compiler the package installs and
runs without them. Each is built once for every instruction set it can use and chosen when it is loaded, so that a
build made on one machine runs on another. None of them knows Python: one wheel of a platform fits every version of it.

SCANSNAP_KERNELS=required makes a kernel that does not compile an error, as a wheel for others should have them.
"""

import os
import platform
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

KERNELS = "src/scansnap/kernels/cpu"
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl"]


def instruction_sets(machine: str, target: str, arch_flags: str = "") -> dict[str, list[str]]:
    """The builds of each kernel, named as torch names what a CPU can do, with the flags they take.

    machine is that of the compiler, target what the result is for (as sysconfig.get_platform() says it), arch_flags
    macOS's -arch options. x86-64 has three. Elsewhere the base of the machine is all there is (NEON on aarch64 and
    Apple's), and a build for two machines at once, or for the other one, must not name instructions of one of them.
    """
    sets: dict[str, list[str]] = {"default": []}
    x86 = machine in ("x86_64", "AMD64") and not any(a in f"{target} {arch_flags}" for a in ("arm64", "universal2"))
    return sets | {"avx2": AVX2, "avx512": AVX512} if x86 else sets


REORDERED = ["-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"]  # sums in vectors; NaN stays NaN

KERNEL_FLAGS = {
    "adam": ["-O3", "-ffp-contract=fast", "-fno-math-errno"],
    "attention": ["-O3", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi"],
    "dropout": ["-O3"],
    "flow": ["-O3", "-ffp-contract=fast", "-fno-math-errno", *REORDERED],
    "fused": ["-O3", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi"],
    "step": ["-O3", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi"],
    "sampling": ["-O3", "-ffp-contract=off", "-fno-math-errno"],  # rounds like torch, so that both draw the same data
}


class Kernels(build_ext):
    """Libraries without the interpreter's name in theirs, and without its entry point."""

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + EXTENSION_SUFFIXES[-1]

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return list(ext.export_symbols)


class PlatformWheel(bdist_wheel):
    """For every Python of the platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def kernels() -> list[Extension]:
    """Every kernel for every instruction set."""
    sets = instruction_sets(platform.machine(), sysconfig.get_platform(), os.environ.get("ARCHFLAGS", ""))
    return [
        Extension(
            f"scansnap.kernels.cpu._{kernel}_{name}",
            [f"{KERNELS}/{kernel}.c"],
            depends=[f"{KERNELS}/vectors.h"],
            extra_compile_args=[*flags, *extra],
            libraries=[] if os.name == "nt" else ["m"],
            optional=os.environ.get("SCANSNAP_KERNELS") != "required",
        )
        for kernel, flags in KERNEL_FLAGS.items()
        for name, extra in sets.items()
    ]


if __name__ == "__main__":
    setup(cmdclass={"build_ext": Kernels, "bdist_wheel": PlatformWheel}, ext_modules=kernels())
