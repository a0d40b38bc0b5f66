"""The ways to a consumer, and the rules for the expected outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import dlx
import numpy as np

from .cases import NUMBERS, Array, traits

SHARED = "shared"
"""The consumer uses the memory that was sent."""
COPIED = "copied"
"""It has the same elements in other memory."""
UNPROTECTED = "unprotected"
"""It has memory that was sent as read-only as writable."""
MISREAD = "misread"
"""It shows other elements than were sent."""
MISCOUNTED = "miscounted"
"""It shows the elements, but computes a wrong result."""
CHANGED = "changed"
"""It changed the memory that was sent while it computed."""
WRONG = "wrong"
"""dlx sees something else than its library says."""
NOT_SENT = "not sent"
"""Not tried: it would read outside of the memory, or end the process."""
REFUSED = {COPIED: "CopyRefused"}
"""The outcomes that change with `copy=False`."""

CONVERT = "dlx.convert"
WITHOUT_COPY = "dlx.convert, copy=False"
ITSELF = "from_dlpack"
"""The ways from one library to another; the last is the consumer's own import."""

Rules = tuple[tuple[str, str], ...]

ALIGNED = ("misaligned", COPIED)
"""The last rule of `dlx.convert` for every library but NumPy."""


class Way(NamedTuple):
    """How a library imports another library's tensor."""

    name: str
    take: Callable[[Any], Any]
    rules: Rules


@dataclass(frozen=True)
class Consumer:
    """A library that imports tensors. The first rule that matches gives the outcome."""

    name: str
    """The name of the library on PyPI."""
    take: Callable[[Any], Any]
    """Its own import."""
    values: Callable[[Any], Array]
    """The elements as the library shows them, as a NumPy array."""
    dtypes: str
    """Dtypes that it accepts."""
    rules: Rules = ()
    """Trait of a tensor (several: `a+b`) and outcome or error; `dtype` is any other."""
    to: Callable[[], Any] | None = None
    """Its type, for `dlx.convert`."""
    converts: Rules = ()
    """Rules for `dlx.convert`."""
    unseen: Rules = ()
    """Rules that precede these with `copy=False`, where dlx must see the address."""
    imports: bool = True
    """Whether `take` is its own import, which a `dlx.Tensor` can go through."""
    writable: Callable[[Any], bool] = lambda x: False
    """Whether the library lets users write to the elements."""
    see: Callable[[Any], dlx.Tensor] = dlx.from_dlpack
    """Read address, shape and dtype of the result."""
    double: Callable[[Any], Any] | None = lambda x: x + x
    """Its own sum of an array and itself; None if it has none."""
    doubles: str = NUMBERS
    """Dtypes that it can add."""
    flat: bool = False
    """Whether it imports the elements without the shape."""
    one_dimension: bool = False
    """Whether it accepts one dimension only; dtypes are then sent in that."""

    def ways(self) -> Iterator[Way]:
        """Yield the ways to it."""
        if self.to is not None:
            to = self.to()
            converts = self.converts if to is np.ndarray else (*self.converts, ALIGNED)
            refused = [(trait, REFUSED.get(end, end)) for trait, end in converts]
            yield Way(CONVERT, lambda x: dlx.convert(x, to), converts)
            yield Way(
                WITHOUT_COPY,
                lambda x: dlx.convert(x, to, copy=False),
                (*self.unseen, *refused),
            )
        if self.imports:
            yield Way(ITSELF, lambda x: self.take(dlx.from_dlpack(x)), self.rules)

    def expected(self, tensor: dlx.Tensor, rules: Rules) -> str:
        """Return the outcome for a tensor: shared, unless a rule says otherwise."""
        dtype = str(tensor.dtype)
        found = traits(tensor) | {dtype}
        if dtype not in self.dtypes.split():
            found.add("dtype")
        for wanted, outcome in rules:
            if found.issuperset(wanted.split("+")):
                return outcome
        return SHARED
