"""Objects of a library, by name; those that `tests/interop` sends, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from interop.cases import elements
from interop.producers import PRODUCERS


class Object(NamedTuple):
    """An object to be looked at: an unusual one, a dtype, or a layout of float32."""

    name: str
    make: Callable[[], Any]


Objects = Iterator[Object]

VIEWS: dict[str, Callable[[Any], Any]] = {
    "empty-columns": lambda x: x[:, :0],
    "row-tail": lambda x: x[0, 1:],
    "last": lambda x: x[3:, 5:],
}
"""Layouts of 4 by 6 elements that interop lacks."""


def sent(name: str, prefix: str = "") -> Objects:
    """Yield every dtype and layout of a producer in `tests/interop`."""
    producer = next(each for each in PRODUCERS if each.name == name)
    refused = [dtype for dtype in producer.refused if dtype]
    for dtype in [*producer.dtypes.split(), *refused]:
        yield Object(prefix + dtype, partial(producer.of_dtype, dtype, False))
    for layout in producer.layouts.split():
        yield Object(prefix + layout, partial(producer.of_layout, layout))


def of_dtypes(names: str, make: Callable[[str], Any], prefix: str = "") -> Objects:
    """Yield an object of each dtype."""
    for name in names.split():
        yield Object(prefix + name, partial(make, name))


def viewed(make: Callable[[Any], Any]) -> Objects:
    """Yield `VIEWS` of what is made from 4 by 6 elements."""
    for name, view in VIEWS.items():
        yield Object(name, partial(lambda view: view(make(elements())), view))


def made(**objects: Callable[[], Any]) -> Objects:
    """Yield objects by name, with hyphens for underscores."""
    for name, make in objects.items():
        yield Object(name.replace("_", "-"), make)
