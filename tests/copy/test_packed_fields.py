"""Elements whose strides are no multiples of their size: a field of a packed struct."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

NAMES = ("b1", "i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16")


@st.composite
def fields(draw: st.DrawFn) -> npt.NDArray[Any]:
    """Give a field of an array of structs, of any shape and order."""
    dtype = np.dtype(draw(st.sampled_from(NAMES)))
    parts = [("before", f"V{draw(st.integers(0, 3))}"), ("x", dtype), ("after", "V1")]
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    structs = np.zeros(shape, np.dtype(parts))
    structs["x"] = np.arange(structs.size).reshape(shape)
    if draw(st.booleans()):
        structs = structs.T
    return structs[::-1]["x"] if shape else structs["x"]


@given(fields())
def test_a_copy_has_the_elements(x: Any) -> None:
    """R36: also where no other description is possible."""
    for given_ in (x, memoryview(x)):
        t = dlx.from_dlpack(given_, copy=True)
        assert (t.is_copied, t.readonly) == (True, False)
        np.testing.assert_array_equal(np.asarray(t), x, strict=True)
        np.testing.assert_array_equal(dlx.convert(given_, np), x, strict=True)
        np.testing.assert_array_equal(dlx.convert(given_, dlx.Tensor), x, strict=True)


def packed(size: int = 5) -> npt.NDArray[Any]:
    """Return the floats of structs of five bytes."""
    return np.arange(size * 5, dtype="u1").view("f4,u1")["f0"]


@pytest.mark.parametrize("view", [np.asarray, memoryview])
def test_nothing_else_is_described_for_it(view: Any) -> None:
    """R92: an import that may share memory, and what is written to."""
    x = view(packed())
    for take in (
        dlx.from_dlpack,
        lambda x: dlx.from_dlpack(x, copy=False),
        lambda x: dlx.convert(x, dlx.Tensor, copy=False),
        lambda x: dlx.borrow(x, out=0).__enter__(),
    ):
        with pytest.raises(BufferError, match=r"byte strides \[5\].* multiples"):
            take(x)


def test_a_bridge_copies_it_unless_it_is_written_to() -> None:
    """docs/bridge.md: what is written into a copy would be lost."""
    x = packed()
    assert dlx.bridge("array_api_strict")(lambda y: y)(x).tolist() == x.tolist()
    with pytest.raises(BufferError, match=r"byte strides \[5\]"):
        dlx.bridge("array_api_strict")(lambda x, out: x)(x, out=x)


class Masked(np.ndarray[Any, Any]):
    """Has its mask on each instance."""

    mask: Any

    def copy(self, order: Any = "C") -> Any:
        """Return what has none."""
        return np.array(self, order=order)


def masked() -> Masked:
    """Return one whose first element is hidden."""
    x = packed().view(Masked)
    x.mask = np.arange(5) < 1
    return x


class Refusing:
    """Has the buffer of a packed field, and refuses to export it."""

    def __dlpack__(self, **_: Any) -> Any:
        """Refuse."""
        raise BufferError("on purpose: dtype, mask")

    def __dlpack_device__(self) -> tuple[int, int]:
        """Tell the CPU."""
        return 1, 0

    def __buffer__(self, flags: int) -> memoryview:
        """Show it."""
        x: Any = packed()
        return memoryview(x)


@pytest.mark.parametrize(
    "x",
    [
        pytest.param(np.ma.masked_array(packed(), packed() > 0), id="masked"),
        pytest.param(masked(), id="mask on the instance"),
        pytest.param(Refusing(), id="its own refusal"),
        pytest.param(np.zeros(5, ">f4,u1")["f0"], id="swapped"),
        pytest.param(np.zeros(5, "S4,u1")["f0"], id="text"),
    ],
)
def test_what_is_refused_for_another_reason_stays_refused(x: Any) -> None:
    """R36: a copy would lose the mask, and no number would be read."""
    with pytest.raises(BufferError, match=r"mask|dtype"):
        dlx.from_dlpack(x, copy=True)
    with pytest.raises(BufferError, match=r"mask|dtype"):
        dlx.convert(x, dlx.Tensor)


def test_the_copy_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """docs/convert.md: as each that `convert` makes."""
    with caplog.at_level("DEBUG", "dlx"):
        dlx.convert(packed(), dlx.Tensor)
    assert [record.getMessage() for record in caplog.records] == [
        "20 bytes of numpy.ndarray are copied: its strides are no multiples of its "
        "itemsize"
    ]


def test_what_a_mixin_class_exports_is_copied_too() -> None:
    """docs/classes.md: as the object that it exports, and marked as a copy (R37)."""

    class Own(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any) -> None:
            self.data = data

    t = dlx.convert(Own(packed()), dlx.Tensor)
    assert t.is_copied
    assert t.tolist() == packed().tolist()
    with pytest.raises(BufferError, match="mask"):
        dlx.convert(Own(masked()), dlx.Tensor)
