"""Structures of `cuda.h` that tests pass to the driver."""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_uint32, c_uint64, c_void_p

SIDE_2D = (
    *(("XInBytes", c_size_t), ("Y", c_size_t), ("MemoryType", c_uint32)),
    *(("Host", c_void_p), ("Device", c_uint64), ("Array", c_void_p)),
    ("Pitch", c_size_t),
)
SIDE_3D = (
    *(("XInBytes", c_size_t), ("Y", c_size_t), ("Z", c_size_t), ("LOD", c_size_t)),
    *(("MemoryType", c_uint32), ("Host", c_void_p), ("Device", c_uint64)),
    *(("Array", c_void_p), ("Reserved", c_void_p)),
    *(("Pitch", c_size_t), ("Height", c_size_t)),
)


class Copy2d(ctypes.Structure):
    """`CUDA_MEMCPY2D`."""

    _fields_ = (
        *((f"src{name}", kind) for name, kind in SIDE_2D),
        *((f"dst{name}", kind) for name, kind in SIDE_2D),
        *(("WidthInBytes", c_size_t), ("Height", c_size_t)),
    )


class Copy3d(ctypes.Structure):
    """`CUDA_MEMCPY3D`."""

    _fields_ = (
        *((f"src{name}", kind) for name, kind in SIDE_3D),
        *((f"dst{name}", kind) for name, kind in SIDE_3D),
        *(("WidthInBytes", c_size_t), ("Height", c_size_t), ("Depth", c_size_t)),
    )
