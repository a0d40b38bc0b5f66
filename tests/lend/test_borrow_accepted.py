"""`borrow(dtype=, contiguous=, align=)`: what a kernel does not accept is refused."""

from __future__ import annotations

import gc
import sys
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

F4, F8 = np.zeros(3, "f4"), np.zeros(3)


def borrowed(*tensors: Any, **options: Any) -> tuple[Any, ...]:
    """Enter a block, and leave it."""
    with dlx.borrow(*tensors, **options) as views:
        return tuple(str(view.dtype) for view in views[:-1])


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("f4"), (2, 32, 1)])
def test_one_dtype_is_that_of_all(dtype: Any) -> None:
    """docs/streams.md: given as `DType` takes it, a triple is one dtype."""
    assert borrowed(F4, out=F4.copy(), dtype=dtype) == ("float32", "float32")
    with pytest.raises(
        BufferError, match="of float64, and dtype accepts float32; cast"
    ):
        borrowed(F4, F8, dtype=dtype)


def test_a_list_has_a_dtype_for_each() -> None:
    """`None` stands for any, and `out` comes last."""
    assert borrowed(F4, F8, out=F4.copy(), dtype=["float32", None, F4.dtype]) == (
        "float32",
        "float64",
        "float32",
    )
    with pytest.raises(BufferError, match="of float64") as refused:
        borrowed(F4, out=[F8], dtype=["float32", "float32"])
    assert refused.value.__notes__ == ["argument out[0] of dlx.borrow"]


def test_a_list_of_another_length_is_a_value_error() -> None:
    """At the call."""
    with pytest.raises(ValueError, match="lists 1 dtypes for 2 tensors"):
        dlx.borrow(F4, F4, dtype=["float32"])


def test_what_is_no_dtype_is_an_error_at_the_call() -> None:
    """As `DType` says."""
    with pytest.raises(ValueError, match="not a dtype of DLPack"):
        dlx.borrow(F4, dtype="real")


def test_the_cast_that_the_message_names_is_accepted() -> None:
    """`convert(dtype=)`."""
    cast = dlx.convert(F8, np, dtype="float32")
    assert borrowed(cast, dtype="float32") == ("float32",)


@pytest.mark.parametrize(
    "view", [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[::-1]]
)
def test_contiguous_refuses_other_layouts(view: Any) -> None:
    """The copy that the message names is accepted."""
    x = view(np.zeros((4, 6)))
    with pytest.raises(BufferError, match="contiguous=True accepts row-major"):
        borrowed(x, contiguous=True)
    assert borrowed(dlx.from_dlpack(x, copy=True), contiguous=True)
    assert borrowed(x)


def test_an_address_has_to_be_aligned() -> None:
    """In bytes; tensors without elements have the address 0, which is."""
    whole = dlx.from_dlpack(np.zeros(64), copy=True)
    assert borrowed(whole, align=256)
    with pytest.raises(BufferError, match=r"no multiple of align=64; .*copy=True"):
        borrowed(whole[1:], align=64)
    assert borrowed(whole[8:], whole[:0], align=64)


def test_no_copy_is_named_for_more_than_what_copies_of_dlx_are_aligned_to() -> None:
    """The advice of an error works."""
    x = dlx.from_dlpack(np.zeros(64), copy=True)[1:]
    with pytest.raises(BufferError, match=r"no multiple of align=512; .*library") as no:
        borrowed(x, align=512)
    assert "copy=True" not in str(no.value)


@pytest.mark.parametrize("dtype", ["int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("name", ["numpy", "dlx", "torch"])
def test_elements_of_a_named_dtype_are_aligned(dtype: str, name: str) -> None:
    """A kernel in C reads them as its type; a packed record or a header leaves gaps."""
    raw = np.zeros(129, "u1")
    x: Any = raw[1:].view(dtype)
    if name == "dlx":
        x = dlx.from_dlpack(x)
    elif name == "torch":
        x = requires("torch").from_dlpack(x)
    launched: Any = dlx.launcher(lambda x: x, dtype=dtype)
    with pytest.raises(BufferError, match=r"of its element size; .*copy=True") as no:
        borrowed(x, dtype=dtype)
    assert "align=1 accepts all" in str(no.value)
    with pytest.raises(BufferError, match="of its element size"):
        launched(x)
    assert borrowed(x)
    assert borrowed(dlx.from_dlpack(x, copy=True), x[:0], dtype=dtype)
    assert borrowed(x, dtype=dtype, align=1)
    launched = dlx.launcher(lambda x: x, dtype=dtype, align=1)
    assert launched(x) == dlx.from_dlpack(x).data_ptr


def test_narrow_elements_that_are_padded_are_not_those_of_a_named_dtype() -> None:
    """A kernel cannot tell them, and would touch twice the memory of packed ones."""
    x = np.zeros(8, requires("ml_dtypes").int4)
    memory = np.zeros(8, "u1")
    packed = dlx.from_pointer(memory.ctypes.data, (8,), "int4", owner=memory)
    launched: Any = dlx.launcher(lambda x: x, dtype="int4")
    for padded in (x, dlx.from_dlpack(x)):
        for use in (launched, lambda x: borrowed(x, dtype="int4")):
            with pytest.raises(
                BufferError, match="padded to a byte, and dtype accepts"
            ):
                use(padded)
        assert borrowed(padded)
    assert launched(packed) == memory.ctypes.data
    assert borrowed(packed, dtype="int4") == ("int4",)


@pytest.mark.parametrize("align", [0, -8, 3, 48])
def test_an_alignment_is_a_power_of_two(align: int) -> None:
    """At the call."""
    with pytest.raises(ValueError, match="power of two"):
        dlx.borrow(F4, align=align)


def test_nothing_is_kept_of_a_refused_block() -> None:
    """Who owns what: also of the tensors before the refused one."""
    gc.collect()  # errors of other tests hold them
    before = sys.getrefcount(F4), sys.getrefcount(F8)
    for _ in range(5):
        with pytest.raises(BufferError):
            borrowed(F4, F8, dtype="float32")
    assert (sys.getrefcount(F4), sys.getrefcount(F8)) == before


@pytest.mark.parametrize(
    ("out", "options"),
    [
        (np.zeros(3), {"dtype": "float32"}),
        (np.zeros((2, 3), "f4").T, {"contiguous": True}),
        (np.zeros(9, "u1")[1:].view("f8"), {"align": 64}),
    ],
)
def test_the_advice_for_out_keeps_the_result(out: Any, options: Any) -> None:
    """N0: what is written to a copy of it would be lost."""
    with pytest.raises(BufferError, match=r"dlx\.empty\(shape, dtype\)") as refused:
        borrowed(out=out, **options)
    assert "copy=True" not in str(refused.value)
    own = dlx.empty(out.shape, options.get("dtype", str(out.dtype)))
    with dlx.borrow(out=own, **options) as (t, _):
        t.numpy()[...] = 7
    out[...] = own
    assert (out == 7).all()
