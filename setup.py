"""The compiled CPU kernels; everything else is in pyproject.toml.

They are plain shared libraries loaded through ctypes, and optional: without a compiler the package installs and
runs without them.
"""

from setuptools import Extension, setup

KERNELS = "src/scansnap/kernels"

setup(
    ext_modules=[
        Extension(
            "scansnap.kernels._sampling",
            [f"{KERNELS}/sampling.c"],
            extra_compile_args=["-O3", "-ffp-contract=off"],  # rounds like torch, so both draw the same data
            libraries=["m"],
            optional=True,
        ),
        Extension(
            "scansnap.kernels._fused",
            [f"{KERNELS}/fused.c"],
            extra_compile_args=["-O3", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi"],
            optional=True,
        ),
    ]
)
