"""The elements of a tensor on the CPU, as numbers of Python."""

from __future__ import annotations

from itertools import islice
from struct import pack, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .._core import Tensor

__all__ = ["index", "listed", "number", "real"]

# In the codes of `struct`.
_FORMATS = {
    "bool": "?",
    **{f"int{bits}": code for bits, code in zip((8, 16, 32, 64), "bhiq", strict=True)},
    **{f"uint{bits}": code for bits, code in zip((8, 16, 32, 64), "BHIQ", strict=True)},
    **{"float16": "e", "float32": "f", "float64": "d", "bfloat16": "H"},
    **{"complex32": "ee", "complex64": "ff", "complex128": "dd"},
}


def number(tensor: Tensor) -> Any:
    """Return the value of the only element."""
    if tensor.size != 1:
        raise TypeError(
            f"the tensor has shape {list(tensor.shape)}; "
            "only one element has a value as a number"
        )
    if str(tensor.device) != "cpu":
        raise TypeError(
            f"the tensor is on {tensor.device}; only an element on cpu has a value as "
            'a number: t.to(device="cpu") copies it there'
        )
    _check(tensor, TypeError)
    return next(_numbers(tensor))


def index(tensor: Tensor) -> int:
    """Return that of a tensor without dimensions, which must be an int (array API).

    ``bytes`` takes the memory of others.
    """
    value = number(tensor)
    if type(value) is not int:
        raise TypeError(f"an element of {tensor.dtype} is not an index")
    if tensor.shape:
        raise TypeError(
            f"the tensor has shape {list(tensor.shape)}; "
            "only one without dimensions is an index: int(t)"
        )
    return value


def real(tensor: Tensor, kind: type) -> Any:
    """Return that of one element, which must not be complex, as an int or a float."""
    value = number(tensor)
    if isinstance(value, complex):
        article = "an" if kind is int else "a"
        raise TypeError(
            f"an element of {tensor.dtype} is not {article} {kind.__name__}"
        )
    return kind(value)


def listed(tensor: Tensor) -> Any:
    """Return the elements in nested lists; the number itself without dimensions."""
    if str(tensor.device) != "cpu":
        raise BufferError(
            f"the tensor is on {tensor.device}; only elements on cpu have values as "
            'numbers: t.to(device="cpu") copies them there'
        )
    _check(tensor, BufferError)
    return _nested(_numbers(tensor), tensor.shape)


def _check(tensor: Tensor, error: type[Exception]) -> None:
    if str(tensor.dtype) not in _FORMATS:
        raise error(
            f"Python has no number for an element of {tensor.dtype}; "
            "convert it to another dtype"
        )


def _numbers(tensor: Tensor) -> Iterator[Any]:
    """Return the elements in row-major order."""
    name, data = str(tensor.dtype), tensor.tobytes()
    parts = _FORMATS[name]
    code = parts[0]

    def read(code: str, data: bytes) -> tuple[Any, ...]:
        return unpack(f"={tensor.size * len(parts)}{code}", data)

    found = read(code, data)
    if name == "bfloat16":
        found = read("f", pack(f"={len(found)}I", *(half << 16 for half in found)))
    return iter(found) if code == parts else map(complex, found[::2], found[1::2])


def _nested(numbers: Iterator[Any], shape: Sequence[int]) -> Any:
    if not shape:
        return next(numbers)
    extent, *rest = shape
    if not rest:
        return list(islice(numbers, extent))
    return [_nested(numbers, rest) for _ in range(extent)]
