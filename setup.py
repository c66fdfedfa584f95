"""The compiled CPU kernels; everything else is in pyproject.toml.

They are plain shared libraries loaded through ctypes, and optional: without a compiler the package installs and
runs without them. Each is built once for every instruction set it can use and chosen when it is loaded, so that a
build made on one machine runs on another.
"""

import platform

from setuptools import Extension, setup

KERNELS = "src/scansnap/kernels/cpu"
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl"]

instruction_sets = {"default": []}
if platform.machine() in ("x86_64", "AMD64"):
    instruction_sets |= {"avx2": AVX2, "avx512": AVX512}

KERNEL_FLAGS = {
    "attention": ["-O3", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi"],
    "fused": ["-O3", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi"],
    "step": ["-O3", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi"],
    "sampling": ["-O3", "-ffp-contract=off"],  # rounds like torch, so that both draw the same data
}

setup(
    ext_modules=[
        Extension(
            f"scansnap.kernels.cpu._{kernel}_{name}",
            [f"{KERNELS}/{kernel}.c"],
            extra_compile_args=[*flags, *extra],
            libraries=["m"],
            optional=True,
        )
        for kernel, flags in KERNEL_FLAGS.items()
        for name, extra in instruction_sets.items()
    ]
)
