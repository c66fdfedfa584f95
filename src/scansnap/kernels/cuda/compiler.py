"""Compile CUDA C at first use with the NVRTC of torch and the driver, both through ctypes.

Machine code is cached in the user's cache folder under a hash of its source and options. No CUDA toolkit is needed.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_CLOCK_KHZ = 13  # CU_DEVICE_ATTRIBUTE_CLOCK_RATE
_ATTRIBUTES = {"registers": 4, "local_bytes": 3, "shared_bytes": 1}


class CudaError(RuntimeError):
    """An error of the compiler or the driver."""


def available() -> bool:
    """Whether torch has CUDA and NVRTC, and the device is Volta or newer."""
    there = torch.cuda.is_available() and torch.version.cuda is not None
    return there and torch.cuda.get_device_capability() >= (7, 0) and _nvrtc() is not None


@cache
def kernel(source: str, name: str, options: tuple[str, ...], shared_bytes: int, device: torch.device) -> Kernel:
    """A compiled function, cached for the process."""
    with torch.cuda.device(device):
        return Kernel(source, name, options, shared_bytes)


class Kernel:
    """A compiled function on the device that is current."""

    def __init__(self, source: str, name: str, options: tuple[str, ...], shared_bytes: int) -> None:
        major, minor = torch.cuda.get_device_capability()
        image = _image(source, (*options, f"--gpu-architecture=sm_{major}{minor}", "--std=c++17"))
        self._driver, self._module, self._function = _driver(), ctypes.c_void_p(), ctypes.c_void_p()
        _check(self._driver.cuModuleLoadData(ctypes.byref(self._module), image))
        _check(self._driver.cuModuleGetFunction(ctypes.byref(self._function), self._module, name.encode()))
        _check(self._driver.cuFuncSetAttribute(self._function, _SHARED_BYTES, ctypes.c_int(shared_bytes)))
        self.shared_bytes, self.device = shared_bytes, torch.cuda.current_device()

    def attributes(self) -> dict[str, int]:
        """Registers of a thread, bytes it spills and fixed shared memory."""
        attributes, value = {}, ctypes.c_int()
        for name, number in _ATTRIBUTES.items():
            _check(self._driver.cuFuncGetAttribute(ctypes.byref(value), number, self._function))
            attributes[name] = value.value
        return attributes

    def blocks(self, threads: int) -> int:
        """Number of blocks per multiprocessor."""
        value = ctypes.c_int()
        occupancy = self._driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        size = ctypes.c_size_t(self.shared_bytes)
        _check(occupancy(ctypes.byref(value), self._function, ctypes.c_int(threads), size))
        return value.value

    def launch(self, blocks: int, threads: int, job: ctypes.Structure) -> None:
        """Launch on torch's current stream; ``job`` is the kernel's argument."""
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(job))
        with torch.cuda.device(self.device):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            size, grid = self.shared_bytes, (blocks, 1, 1, threads, 1, 1)
            _check(self._driver.cuLaunchKernel(self._function, *grid, size, stream, pointers, None))


def clock_hz() -> float:
    """The highest clock of the current device."""
    value = ctypes.c_int()
    _check(_driver().cuDeviceGetAttribute(ctypes.byref(value), _CLOCK_KHZ, torch.cuda.current_device()))
    return value.value * 1e3


def text(*names: str) -> str:
    """Concatenated source files of this folder."""
    return "\n".join((Path(__file__).parent / name).read_text(encoding="utf-8") for name in names)


def _image(source: str, options: tuple[str, ...]) -> bytes:
    """Machine code, from the cache if possible."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_compiler().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    identity = "\n".join([f"nvrtc {major.value}.{minor.value}", *options, source])
    name = f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.cubin"
    with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        return (_cache_folder() / name).read_bytes()
    image = compile_source(_compiler(), source, options)
    with suppress(OSError, RuntimeError):  # a folder that cannot be written costs the compilation each time
        path = _cache_folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(image)
        os.replace(file.name, path)
    return image


def compile_source(nvrtc: ctypes.CDLL, source: str, options: tuple[str, ...]) -> bytes:
    """Machine code of the architecture that the options name."""
    program = ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"scansnap.cu", 0, None, None))
    try:
        flags = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        if nvrtc.nvrtcCompileProgram(program, len(options), flags):
            raise CudaError(_read(nvrtc, "nvrtcGetProgramLog", program).decode(errors="replace"))
        return _read(nvrtc, "nvrtcGetCUBIN", program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(nvrtc, f"{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, what)(program, buffer))
    return buffer.raw


def _cache_folder() -> Path:
    return Path(os.environ.get("SCANSNAP_CACHE") or "~/.cache/scansnap").expanduser() / "cuda"


@cache
def _nvrtc() -> ctypes.CDLL | None:
    for name in _candidates():
        with suppress(OSError):
            library = ctypes.CDLL(name)
            if hasattr(library, "nvrtcVersion"):
                return library
    return None


def _candidates() -> Iterator[str]:
    """torch's own loader of NVRTC depends on it, so its functions are found there whatever the version."""
    yield str(Path(torch.__file__).parent / "lib" / "libcaffe2_nvrtc.so")
    major = (torch.version.cuda or "0").split(".")[0]
    yield f"libnvrtc.so.{major}"
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        yield from map(str, sorted(Path(folder).glob(f"*/lib/libnvrtc.so.{major}")))


def _compiler() -> ctypes.CDLL:
    nvrtc = _nvrtc()
    if nvrtc is None:
        raise CudaError("NVRTC is not installed")
    return nvrtc


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")  # the context is the one torch made


def _check(code: Any) -> None:
    """Raise CudaError for an error code of the driver or of NVRTC."""
    if code:
        message = ctypes.c_char_p()
        with suppress(OSError):
            _driver().cuGetErrorString(code, ctypes.byref(message))
        raise CudaError(f"error {code}: {(message.value or b'unknown').decode()}")
