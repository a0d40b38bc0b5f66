"""Classes made at run time die: dlx does not hold them (invariant S6)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.fake_producers import OldProducer, Producer
from support.fake_table import table_class
from support.libc import heap_in_use, needs_heap_in_use
from support.optional_libraries import requires
from support.short_lived_classes import made

KINDS: dict[str, Callable[[], Any]] = {
    "protocol": lambda: made(Producer)(),
    "old": lambda: made(OldProducer)(),
    "table": lambda: made(table_class())(),
    "ndarray": lambda: np.arange(3.0).view(made(np.ndarray)),
    "buffer": lambda: made(bytearray)(8),
    "interface": lambda: type(
        "Made", (), {"__array_interface__": np.arange(3.0).__array_interface__}
    )(),
    "torch": lambda: (
        requires("torch").ones(2).as_subclass(made(requires("torch").Tensor))
    ),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_a_class_dies_after_an_import(make: Callable[[], Any]) -> None:
    """S6: nothing holds it."""
    classes = []
    for _ in range(60):
        x = make()
        for _ in range(3):
            dlx.from_dlpack(x)
        dlx.from_dlpack(x, copy=True)
        dlx.convert(x, np.ndarray)
        with dlx.borrow(x):
            pass
        classes.append(weakref.ref(type(x)))
        del x
    Producer().deleted  # noqa: B018 - the fakes let go of exports that were deleted
    gc.collect()
    assert [each() for each in classes if each() is not None] == []


@needs_heap_in_use
def test_classes_that_die_leave_no_memory() -> None:
    """S6: two thousand of them, each with a tensor taken."""

    def some(count: int) -> None:
        for _ in range(count):
            cls: Any = type("Made", (Producer,), {"weight": bytearray(1024)})
            dlx.from_dlpack(cls(memory=memory))
            dlx.convert(cls(memory=memory), np.ndarray)
        gc.collect()

    memory = bytearray(1024)
    some(500)
    before = heap_in_use()
    some(2000)
    assert heap_in_use() - before < 2000 * 64
