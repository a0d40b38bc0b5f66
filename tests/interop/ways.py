"""The ways to a consumer, and how it is said what must come of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import dlx
import numpy as np

from .cases import NUMBERS, Array, traits

SHARED = "shared"
"""The consumer reads and writes the memory that was sent."""
COPIED = "copied"
"""It has the same elements elsewhere."""
UNPROTECTED = "unprotected"
"""It would write to memory that was sent as read-only."""
MISREAD = "misread"
"""It shows other elements than were sent."""
MISCOUNTED = "miscounted"
"""It shows the elements, and computes something else of them."""
CHANGED = "changed"
"""It wrote to the memory that was sent while it computed."""
NOT_SENT = "not sent"
"""It would read outside of the memory, or end the process."""
REFUSED = {COPIED: "CopyRefused"}
"""What becomes of an outcome if nothing may be copied."""

CONVERT = "dlx.convert"
WITHOUT_COPY = "dlx.convert, copy=False"
ITSELF = "from_dlpack"
"""Ways from one library to another: the last is the consumer's own."""

Rules = tuple[tuple[str, str], ...]

ALIGNED = ("misaligned", COPIED)
"""The last rule of `dlx.convert` for every library but NumPy."""


class Way(NamedTuple):
    """How a library comes to a tensor of another one."""

    name: str
    take: Callable[[Any], Any]
    rules: Rules


@dataclass(frozen=True)
class Consumer:
    """A library that takes tensors. The first rule that holds says what must happen."""

    name: str
    """As PyPI calls the library."""
    take: Callable[[Any], Any]
    """Its own import."""
    values: Callable[[Any], Array]
    """What the library itself shows: the elements as NumPy has them."""
    dtypes: str
    """Dtypes that it takes."""
    rules: Rules = ()
    """Trait of a tensor (several: `a+b`) and outcome or error; `dtype` is any other."""
    to: Callable[[], Any] | None = None
    """Its type, for `dlx.convert`."""
    converts: Rules = ()
    """Rules for what `dlx.convert` makes."""
    unseen: Rules = ()
    """Rules before these with `copy=False`: that it was shared, dlx must see."""
    imports: bool = True
    """Whether `take` is an import of its own, and a way through a `dlx.Tensor`."""
    writable: Callable[[Any], bool] = lambda x: False
    """Whether the library lets its user write to the elements."""
    see: Callable[[Any], dlx.Tensor] = dlx.from_dlpack
    """Address, shape and dtype of what it made."""
    double: Callable[[Any], Any] | None = lambda x: x + x
    """An operation of its own, an array plus itself; None where it has none."""
    doubles: str = NUMBERS
    """Dtypes that it computes with."""
    flat: bool = False
    """Whether it takes the elements and forgets the shape."""
    one_dimension: bool = False
    """Whether it takes one dimension only: dtypes are tried in that."""

    def ways(self) -> Iterator[Way]:
        """Give the ways to it."""
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
        """Outcome for a tensor: shared, unless a rule says otherwise."""
        dtype = str(tensor.dtype)
        found = traits(tensor) | {dtype}
        if dtype not in self.dtypes.split():
            found.add("dtype")
        for wanted, outcome in rules:
            if found.issuperset(wanted.split("+")):
                return outcome
        return SHARED
