"""Producers that export through dlx: `dlx.Tensor`, and mixin classes over one source.

Producer tests are parametrized with `every_producer`: each maker returns an object that
exports what `dlx.from_dlpack` reads from its argument.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import dlx
import pytest

from support.dlpack_abi import DLTensor

Maker = Callable[[Any], Any]


class Stored(dlx.ExchangeMixin, exchange="data"):
    """Exports the attribute that its `__init__` sets."""

    def __init__(self, data: Any) -> None:
        """Keep `data`."""
        self.data = data


class ByMethod(dlx.ExchangeMixin):
    """Exports the result of its method."""

    def __init__(self, data: Any) -> None:
        """Keep `data`."""
        self.data = data

    def __dlx_export__(self) -> Any:
        """Return `data`."""
        return self.data


MIXINS: dict[str, Maker] = {
    "stored tensor": lambda source: Stored(dlx.from_dlpack(source)),
    "stored source": Stored,
    "mixin in mixin": lambda source: Stored(Stored(dlx.from_dlpack(source))),
    "tensor by method": lambda source: ByMethod(dlx.from_dlpack(source)),
    "source by method": ByMethod,
}
PRODUCERS: dict[str, Maker] = {"dlx.Tensor": dlx.from_dlpack} | MIXINS

HOLDERS: dict[str, Maker] = {
    "dlx.Tensor": lambda tensor: tensor,
    "stored tensor": Stored,
    "mixin in mixin": lambda tensor: Stored(ByMethod(tensor)),
    "tensor by method": ByMethod,
}

every_holder = pytest.mark.parametrize("make", HOLDERS.values(), ids=HOLDERS)
"""`make(tensor)` exports a `dlx.Tensor` that all its exports share."""
every_producer = pytest.mark.parametrize("make", PRODUCERS.values(), ids=PRODUCERS)
"""`make(source)` exports what `source` does."""
OWNERS = [dlx.Tensor, Stored, ByMethod]
every_table = pytest.mark.parametrize("owner", OWNERS)
"""Each of these classes has its own table."""


def fields_of(tensor: DLTensor) -> dict[str, Any]:
    """Return the fields of a `DLTensor`, with its pointers followed."""
    return {
        "data": tensor.data,
        "byte_offset": tensor.byte_offset,
        "device": (tensor.device.device_type, tensor.device.device_id),
        "dtype": (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes),
        "shape": tensor.shape[: tensor.ndim] if tensor.ndim else [],
        "strides": tensor.strides[: tensor.ndim] if tensor.ndim else [],
    }


def inside(producer: Any) -> dlx.Tensor:
    """Return the exported tensor, unsynchronized."""
    return dlx.from_dlpack(producer, stream=-1)


class Failure(Exception):
    """An exception unknown to dlx."""


ERRORS = [Failure("own", 1), KeyError("key"), MemoryError(), KeyboardInterrupt()]
"""Exceptions that user code raises."""


@cache
def hooked(hook: str) -> Any:
    """Make a class whose hook records its arguments and returns `answer`."""

    def give(cls: Any, *arguments: Any) -> Any:
        cls.asked.append(arguments)
        if isinstance(cls.answer, BaseException):
            raise cls.answer
        return cls.answer(*arguments) if callable(cls.answer) else cls.answer

    return type("Hooked", (Stored,), {hook: classmethod(give)})


def with_hook(hook: str, answer: Any) -> Any:
    """Return a class whose hook returns `answer`, or raises it if an exception."""
    kind = hooked(hook)
    kind.answer = staticmethod(answer) if callable(answer) else answer
    kind.asked = []
    return kind
