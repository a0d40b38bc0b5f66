"""The tensors of a memory-mapped safetensors file, read without a copy.

The format: the header's length in 8 bytes, the header in JSON, then the numbers. A file
is mapped copy-on-write, so tensors are writable and the file stays unchanged.
"""

from __future__ import annotations

import json
import mmap
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dlx

_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


@dataclass(frozen=True)
class Mapped(dlx.ExchangeMixin, exchange="tensor"):
    """A tensor of a file; those that consumers make have no name."""

    tensor: dlx.Tensor
    name: str | None = None


def load(path: Path) -> dict[str, Mapped]:
    """Map a file; it stays mapped as long as any of its tensors lives."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    start = 8 + int.from_bytes(mapped[:8], "little")
    header: dict[str, Any] = json.loads(mapped[8:start])
    header.pop("__metadata__", None)
    whole = dlx.from_dlpack(mapped)
    tensors: dict[str, Mapped] = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        tensor = dlx.from_pointer(
            whole.data_ptr + start + first,
            entry["shape"],
            _DTYPES[entry["dtype"]],
            owner=whole,
        )
        if first < 0 or end - first != tensor.nbytes or start + end > whole.size:
            raise ValueError(f"{path} does not hold all of {name}")
        tensors[name] = Mapped(tensor, name)
    return tensors


def _to_bytes(tensor: dlx.Tensor) -> bytes:
    if not tensor.is_contiguous:
        tensor = tensor.to(copy=True)
    # As bytes, because the buffer protocol has no bfloat16.
    address, size = tensor.data_ptr, (tensor.nbytes,)
    numbers = dlx.from_pointer(
        address, size, "uint8", device=tensor.device, owner=tensor
    )
    return memoryview(numbers).tobytes()


def save(path: Path, tensors: dict[str, object]) -> None:
    """Write tensors of any library into a file."""
    names = {dtype: name for name, dtype in _DTYPES.items()}
    header: dict[str, Any] = {}
    data = bytearray()
    for name, x in tensors.items():
        tensor = dlx.from_dlpack(x)
        header[name] = {
            "dtype": names[str(tensor.dtype)],
            "shape": tensor.shape,
            "data_offsets": [len(data), len(data) + tensor.nbytes],
        }
        data += _to_bytes(tensor)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the numbers start at a multiple of 8
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def main() -> None:
    """Write a file, map it, and pass its tensors on."""
    from ctypes_array import Array

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        save(path, {"weight": Array((2, 3)), "bias": Array((3,), "float64")})
        weight = load(path)["weight"]
    if find_spec("numpy"):
        import numpy as np

        np.from_dlpack(weight)[0, 0] = 1  # in memory, not in the file
    if find_spec("torch"):
        import torch

        print(torch.from_dlpack(weight))
    if find_spec("tvm_ffi"):
        from compiled import load_doubled

        print(load_doubled()(weight))  # Mapped
    print(weight)


if __name__ == "__main__":
    main()
