"""Devices as other libraries and users name them."""

from __future__ import annotations

import re
import sys

from .._device_type import DeviceType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# The device types of DLPack by other names; ``gpu`` may be either.
_NAMES = {
    "gpu": ("cuda", "rocm"),
    "hip": ("rocm",),
    "mps": ("metal",),
    "xpu": ("oneapi",),
    "sycl": ("oneapi",),
    "host": ("cpu",),
}


def hint(text: str, names: Sequence[str], index: bool) -> str:
    """Return what to pass in place of ``text``, as the end of a message.

    ``text`` is what another library or the user calls a device, or without ``index`` a
    device type; ``names`` are those of the device types. Empty if it contains no name
    that dlx knows.
    """
    words = sorted((*names, *_NAMES), key=len, reverse=True)
    pattern = rf"(?<![a-z])({'|'.join(words)})(?:device)?(?![a-z])[^\d-]{{0,4}}(-?\d*)"
    # A path ends with it: "/job:localhost/replica:0/task:0/device:CPU:0".
    if not (found := re.findall(pattern, text.lower())):
        return ""
    word, number = found[-1]
    if number.startswith("-") or len(number) > 9:
        return ""  # no id
    named = [
        f"{name}:{int(number or 0)}" if index and name != "cpu" else name
        for name in _NAMES.get(word, (word,))
    ]
    return "; pass " + " or ".join(repr(name) for name in named)


def pair(spec: Any, names: Sequence[str]) -> tuple[int, int] | None:
    """Return type and id of a device of another library; None if ``spec`` is none.

    Raises ``ValueError`` for a device that DLPack lacks, and for more than one.
    """
    if _is(spec, "torch", "device"):
        if spec.type == "cpu":
            return DeviceType.CPU, 0
        if spec.type == "cuda" and spec.index is not None:
            hip = getattr(sys.modules["torch"].version, "hip", None)
            return DeviceType.CUDA if hip is None else DeviceType.ROCM, spec.index
        raise ValueError(
            f"{spec!r} names no single device that DLPack has; expected torch's cpu, "
            f"or its cuda with an index{hint(str(spec), names, True)}"
        )
    if _is(spec, "jax", "Device"):
        return _of_jax(spec, names)
    if _is(spec, "cupy.cuda", "Device"):
        return DeviceType.CUDA, spec.id
    if _is(spec, "tvm_ffi", "Device"):
        return spec.dlpack_device_type(), spec.index
    method = getattr(type(spec), "__dlpack_device__", None)
    # Of a tensor, it is where that is.
    if method is None or hasattr(type(spec), "__dlpack__"):
        return None
    device_type, device_id = spec.__dlpack_device__()
    return device_type, device_id


def _is(spec: object, module: str, name: str) -> bool:
    # Not by a `__getattr__` of the module: what it has yet to import has no instances.
    kind = getattr(sys.modules.get(module), "__dict__", {}).get(name)
    return isinstance(kind, type) and isinstance(spec, kind)


def _of_jax(spec: Any, names: Sequence[str]) -> tuple[int, int]:
    platform, client = spec.platform, spec.client
    if platform == "cpu":
        if (count := client.device_count()) == 1:
            return DeviceType.CPU, 0
        raise ValueError(
            f"{spec!r} is one of {count} devices that JAX makes of the CPU, which "
            "DLPack has once; "
            "pass device='cpu', and call jax.device_put(result, device)"
        )
    is_rocm = "rocm" in client.platform_version.lower()
    if platform in ("gpu", "cuda") or (platform == "rocm" and is_rocm):
        index: int = spec.local_hardware_id
        return DeviceType.ROCM if is_rocm else DeviceType.CUDA, index
    raise ValueError(
        f"{spec!r} is no device that DLPack has; expected one of the platforms cpu and "
        f"gpu{hint(str(spec), names, True)}"
    )
