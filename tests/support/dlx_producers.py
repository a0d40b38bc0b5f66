"""What exports through dlx: `dlx.Tensor`, and mixin classes over the same source.

Tests of the producer's side are parametrized with `every_producer`: each maker gives an
object that exports what `dlx.from_dlpack` reads from its argument.
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
    """Exports what its `__init__` sets."""

    def __init__(self, data: Any) -> None:
        """Keep `data`."""
        self.data = data


class ByMethod(dlx.ExchangeMixin):
    """Exports what its method returns."""

    def __init__(self, data: Any) -> None:
        """Keep `data`."""
        self.data = data

    def __dlx_export__(self) -> Any:
        """Give what is kept."""
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
"""`make(tensor)` exports a `dlx.Tensor`, which all its exports share."""
every_producer = pytest.mark.parametrize("make", PRODUCERS.values(), ids=PRODUCERS)
"""`make(source)` exports what `source` does."""
OWNERS = [dlx.Tensor, Stored, ByMethod]
every_table = pytest.mark.parametrize("owner", OWNERS)
"""Each of these classes has a table of its own."""


def fields_of(tensor: DLTensor) -> dict[str, Any]:
    """Values of a `DLTensor`, with those that its pointers lead to."""
    return {
        "data": tensor.data,
        "byte_offset": tensor.byte_offset,
        "device": (tensor.device.device_type, tensor.device.device_id),
        "dtype": (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes),
        "shape": tensor.shape[: tensor.ndim] if tensor.ndim else [],
        "strides": tensor.strides[: tensor.ndim] if tensor.ndim else [],
    }


def inside(producer: Any) -> dlx.Tensor:
    """The tensor that is exported, without order."""
    return dlx.from_dlpack(producer, stream=-1)


class Failure(Exception):
    """An exception that dlx cannot know."""


ERRORS = [Failure("own", 1), KeyError("key"), MemoryError(), KeyboardInterrupt()]
"""What user code raises."""


@cache
def hooked(hook: str) -> Any:
    """Make a class whose hook records what it is asked, and gives `answer`."""

    def give(cls: Any, *arguments: Any) -> Any:
        cls.asked.append(arguments)
        if isinstance(cls.answer, BaseException):
            raise cls.answer
        return cls.answer(*arguments) if callable(cls.answer) else cls.answer

    return type("Hooked", (Stored,), {hook: classmethod(give)})


def with_hook(hook: str, answer: Any) -> Any:
    """Give a class whose hook gives `answer`, raised if it is an exception."""
    kind = hooked(hook)
    kind.answer = staticmethod(answer) if callable(answer) else answer
    kind.asked = []
    return kind
