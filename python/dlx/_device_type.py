"""`dlx.DeviceType`, imported on first use: ``enum`` takes longer than all of dlx."""

from __future__ import annotations

from enum import IntEnum
from operator import index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["DeviceType"]


class DeviceType(IntEnum):
    """The device types of dlpack.h 1.3, equal to their integers.

    TPU, TPU_HOST, ASCEND and numbers above, which are called TYPE_40 and so on, are of
    a later DLPack. Not equal to a name, which hashes otherwise than an integer:
    ``t.device.type.name`` is ``"CPU"``, and ``t.device`` equals ``"cpu"``. Source: the
    array API.
    """

    __module__ = "dlx"

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    OPENCL = 4
    VULKAN = 7
    METAL = 8
    VPI = 9
    ROCM = 10
    ROCM_HOST = 11
    EXT_DEV = 12
    CUDA_MANAGED = 13
    ONEAPI = 14
    WEBGPU = 15
    HEXAGON = 16
    MAIA = 17
    TRN = 18
    TPU = 19
    TPU_HOST = 20
    ASCEND = 21

    @classmethod
    def _missing_(cls, value: Any) -> DeviceType | None:
        """Return the member that a number of a later DLPack alone leads to."""
        try:
            number = index(value)
        except TypeError:
            return None
        if not cls.ASCEND < number < 2**31:
            return None
        member = int.__new__(cls, number)
        member._name_, member._value_ = f"TYPE_{number}", number
        return member
