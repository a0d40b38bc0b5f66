"""Pickles that are damaged or forged: an exception, never other memory."""

from __future__ import annotations

import io
import pickle
from typing import Any, ClassVar

import dlx
import numpy as np
import pytest
from dlx.pickling import _arrive
from hypothesis import given
from hypothesis import strategies as st
from support.random_layouts import values

FLOAT32 = (2, 32, 1)
GOOD: dict[str, Any] = {
    "version": 1,
    "target": "dlx",
    "shape": (2, 3),
    "strides": (1, 2),
    "dtype": FLOAT32,
    "flags": 0,
    "buffer": bytearray(24),
}


def arrive(**changed: Any) -> Any:
    """Make what the fields describe."""
    return _arrive(*(GOOD | changed).values())


def test_the_fields_are_good_as_they_are() -> None:
    """The other tests change one of them."""
    assert arrive().strides == (1, 2)


@pytest.mark.parametrize(
    "changed",
    [
        {"buffer": bytearray(20)},
        {"buffer": bytearray(28)},
        {"buffer": b""},
        pytest.param({"buffer": memoryview(bytearray(48))[::2]}, id="strided buffer"),
        {"buffer": np.zeros((4, 6), "uint8", order="F")},
        {"buffer": None},
        {"buffer": "text"},
        {"buffer": 24},
        {"shape": (-2, -3)},
        {"shape": (2**62, 3)},
        {"shape": (2, 3, 1)},
        {"shape": 6},
        {"shape": None},
        {"shape": (2.0, 3)},
        {"shape": ("2", "3")},
        {"shape": (2**70, 3)},
        {"strides": (2**61, 2)},
        {"strides": (-(2**63), 2**63 - 1)},
        {"strides": (1, 3)},
        {"strides": (1,)},
        {"strides": "12"},
        {"dtype": (2, 33, 1)},
        {"dtype": (99, 32, 1)},
        {"dtype": (2, 32, 0)},
        {"dtype": (2, 32, -1)},
        {"dtype": (2, 32, 65535)},
        {"dtype": (2, 32)},
        {"dtype": None},
        {"dtype": "float33"},
        {"flags": 2},
        {"flags": -1},
        {"flags": 1 << 63},
        {"flags": None},
        {"target": "os"},
        {"target": 5},
        {"target": dict},
        {"target": dlx.Tensor},
        {"target": ["torch"]},
        {"version": 2},
        {"version": None},
        {"target": "numpy", "dtype": (99, 32, 1)},
    ],
    ids=str,
)
def test_fields_that_do_not_fit_are_a_buffer_error(changed: dict[str, Any]) -> None:
    """dlx-share/README.md, Security: checked before anything is made."""
    with pytest.raises(BufferError):
        arrive(**changed)


@pytest.mark.parametrize("target", ["jax", "mlx", "torch"])
def test_strides_that_a_library_has_not_are_refused(target: str) -> None:
    """dlx-share/README.md, Security: no memory for what a few bytes claim to repeat."""
    strides = (-1,) if target == "torch" else (0,)
    with pytest.raises(BufferError, match=f"{target} has no strides"):
        arrive(target=target, shape=(2**40,), strides=strides, buffer=bytearray(4))


def test_a_repeated_element_takes_no_memory() -> None:
    """dlx-share/README.md, Security: not even if it claims to be there 2**60 times."""
    t = arrive(shape=(2**60,), strides=(0,), buffer=bytearray(4))
    assert (t.size, t.span[1]) == (2**60, 4)


@pytest.mark.parametrize(
    "fields", [(), (1,), tuple(GOOD.values())[:-1], (1, *"abcdefg")]
)
def test_another_number_of_fields_is_an_error(fields: tuple[Any, ...]) -> None:
    """dlx-share/README.md, Security."""
    with pytest.raises((BufferError, TypeError)):
        _arrive(*fields)


def test_another_version_is_told_with_what_to_do() -> None:
    """dlx-share/README.md, Pickling: versions of dlx at both ends."""
    with pytest.raises(BufferError) as refused:
        arrive(version=2)
    assert f"has version 2; dlx {dlx.__version__} reads version 1" in str(refused.value)


def test_another_byte_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """dlx-share/README.md, Pickling: elements are little-endian."""
    monkeypatch.setattr("sys.byteorder", "big")
    with pytest.raises(BufferError, match="little-endian"):
        arrive()
    with pytest.raises(BufferError, match="little-endian"):
        pickle.dumps(dlx.empty((2,), "int16"))


SMALL = st.integers(-3, 9)
ANYTHING = st.one_of(
    SMALL, st.integers(), st.none(), st.text(max_size=3), st.binary(max_size=9)
)


@given(
    st.fixed_dictionaries(
        {
            "target": st.sampled_from(["dlx", "numpy"]) | ANYTHING,
            "shape": st.lists(SMALL, max_size=4) | ANYTHING,
            "strides": st.none() | st.lists(SMALL, max_size=4) | ANYTHING,
            "dtype": st.tuples(SMALL, st.sampled_from([1, 4, 8, 32]), SMALL) | ANYTHING,
            "flags": st.sampled_from([0, 1, 4, 5, 8, 9, 12]) | ANYTHING,
            "buffer": st.binary(max_size=64).map(bytearray) | ANYTHING,
        }
    )
)
def test_fields_at_random_stay_inside_of_their_buffer(fields: dict[str, Any]) -> None:
    """dlx-share/README.md, Security: a `BufferError`, or a tensor of these bytes."""
    try:
        made = arrive(**fields)
    except BufferError:
        return
    t = dlx.from_dlpack(made)
    assert t.span[1] == memoryview(fields["buffer"]).nbytes
    if t.size < 10_000:
        values(t)


class Restricted(pickle._Unpickler):
    """One that finds no function but dlx's, and allocates nothing at once."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    def load_bytearray8(self: Any) -> None:
        """Read before allocating: a forged length may be that of all memory."""
        length = int.from_bytes(self.read(8), "little")
        if length > len(WHOLE):
            raise pickle.UnpicklingError(f"{length} bytes")
        self.append(bytearray(self.read(length)))

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8

    def find_class(self, module: str, name: str) -> Any:
        """Refuse all else."""
        if (module, name) == ("dlx.pickling", "_arrive"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


WHOLE = pickle.dumps(dlx.from_dlpack(np.arange(6.0).reshape(2, 3).T), 5)


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_a_truncated_pickle_is_an_error(length: int) -> None:
    """dlx-share/README.md, Security: what pickle itself raises."""
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        pickle.loads(WHOLE[:length])


@given(st.lists(st.tuples(st.integers(2, len(WHOLE) - 1), st.integers(0, 255))))
def test_a_pickle_with_other_bytes_stays_inside_of_its_buffer(
    changes: list[tuple[int, int]],
) -> None:
    """dlx-share/README.md, Security: an exception, or a tensor of what arrived."""
    text = bytearray(WHOLE)
    for place, byte in changes:
        text[place] = byte
    try:
        made = Restricted(io.BytesIO(bytes(text))).load()
    except Exception:
        return
    if isinstance(made, dlx.Tensor) and made.size < 10_000:
        assert made.span[1] <= len(text)
        values(made)


@pytest.mark.parametrize(
    "buffers", [[], [bytearray(40)], [bytearray(56)], [memoryview(bytearray(96))[::2]]]
)
def test_other_buffers_than_those_that_were_sent_are_an_error(buffers: Any) -> None:
    """dlx-share/README.md, Security: none, too short, too long, with gaps."""
    t = dlx.from_dlpack(np.arange(6.0))
    text = pickle.dumps(t, 5, buffer_callback=lambda buffer: None)
    with pytest.raises((BufferError, pickle.UnpicklingError)):
        pickle.loads(text, buffers=buffers)
