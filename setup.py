"""The compiled CPU kernels; everything else is in pyproject.toml.

They are plain shared libraries loaded through ctypes, and optional: without a compiler the package installs and
runs without them. The fused kernel is built once for each instruction set it can use and chosen when it is loaded,
so that a build made on one machine runs on another.
"""

import platform

from setuptools import Extension, setup

KERNELS = "src/scansnap/kernels"
FAST = ["-O3", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi"]
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl"]

fused = {"default": []}
if platform.machine() in ("x86_64", "AMD64"):
    fused |= {"avx2": AVX2, "avx512": AVX512}

setup(
    ext_modules=[
        Extension(
            "scansnap.kernels._sampling",
            [f"{KERNELS}/sampling.c"],
            extra_compile_args=["-O3", "-ffp-contract=off"],  # rounds like torch, so both draw the same data
            libraries=["m"],
            optional=True,
        ),
        *[
            Extension(
                f"scansnap.kernels._fused_{name}",
                [f"{KERNELS}/fused.c"],
                extra_compile_args=[*FAST, *flags],
                optional=True,
            )
            for name, flags in fused.items()
        ],
    ]
)
