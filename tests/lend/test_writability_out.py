"""`out` of `borrow` and `bridge`, and new memory, are writable: somebody says so."""

from __future__ import annotations

from operator import mul
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.dlx_producers import ByMethod, Stored
from support.fake_producers import OldProducer
from support.optional_libraries import requires

Array = NDArray[Any]
COPY = r"dlx\.from_dlpack\(x, copy=True\)"


class OldArray(np.ndarray[Any, Any]):
    """An array that knows unversioned capsules only; its buffer says the rest."""

    def __dlpack__(self, *, stream: Any = None) -> Any:  # type: ignore[override]
        """Export without a version."""
        return super().__dlpack__()


class OldHidden:
    """The same, with an attribute that may tell of other memory."""

    def __init__(self, array: Array, shown: Any) -> None:
        """Keep both."""
        self.array, self.__array_interface__ = array, shown.__array_interface__

    def __dlpack__(self, *, stream: Any = None) -> Any:
        """Export without a version."""
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """On the CPU."""
        return (1, 0)


class Sealing(OldHidden):
    """The same, whose exports but the first say that they are read-only."""

    asked = 0

    def __dlpack__(self, *, max_version: Any = None, stream: Any = None) -> Any:
        """Export without a version once, then with one and read-only."""
        self.asked += 1
        if self.asked == 1:
            return self.array.__dlpack__()
        self.array.flags.writeable = False
        return self.array.__dlpack__(max_version=max_version)


def lend(out: Any) -> None:
    """Write 7 to what is lent."""
    with dlx.borrow(out=out) as (view, _):
        assert not view.readonly
        np.from_dlpack(view)[...] = 7


@dlx.bridge(np.ndarray)
def write(*, out: Any) -> Any:
    """Write 7."""
    out[...] = 7
    return out


def written(out: Any) -> None:
    """Write 7 by a bridged function, which gives the caller's own object back."""
    assert write(out=out) is out


WAYS = pytest.mark.parametrize("way", [lend, written])


@WAYS
@pytest.mark.parametrize("wrap", [np.asanyarray, Stored, ByMethod])
def test_an_old_producer_whose_buffer_may_be_written_is_written(
    way: Any, wrap: Any
) -> None:
    """R43: what the capsule cannot say, the object does."""
    array = np.zeros(3)
    way(wrap(array.view(OldArray)))
    assert array.tolist() == [7, 7, 7]


@WAYS
def test_an_array_interface_says_it_for_the_memory_that_it_names(way: Any) -> None:
    """One that names other memory says nothing of this."""
    array = np.zeros(3)
    way(OldHidden(array, array))
    assert array.tolist() == [7, 7, 7]
    with pytest.raises(BufferError, match="may be read-only"):
        way(OldHidden(array, np.zeros(3)))


def frozen() -> Array:
    """A read-only array."""
    array = np.zeros(3)
    array.flags.writeable = False
    return array


def old_and_frozen() -> Any:
    """An old producer, whose interface says that it must not be written."""
    array = np.zeros(3)
    shown = array.view()
    shown.flags.writeable = False
    return OldHidden(array, shown)


PROTECTED = {
    "a tensor": lambda: dlx.from_dlpack(np.zeros(3).view(OldArray)),
    "nothing said": OldProducer,
    "in a mixin": lambda: Stored(OldProducer()),
    "its interface": old_and_frozen,
    "read-only": lambda: Stored(frozen()),
    "a read-only tensor": lambda: dlx.from_dlpack(frozen()),
}


@WAYS
@pytest.mark.parametrize("make", PROTECTED.values(), ids=PROTECTED)
def test_out_that_nobody_says_may_be_written_is_refused(way: Any, make: Any) -> None:
    """R42, R43, before anything runs."""
    out = make()
    before = dlx.from_dlpack(out, copy=True).numpy()
    with pytest.raises(BufferError, match=r"^out (is|may be) read-only"):
        way(out)
    np.testing.assert_array_equal(dlx.from_dlpack(out).numpy(), before)


@WAYS
def test_the_advice_leads_to_memory_that_may_be_written(way: Any) -> None:
    """The error of an old producer names a copy: the copy is taken."""
    x = OldProducer()
    with pytest.raises(BufferError, match=rf"OldProducer exports.*{COPY}"):
        way(x)
    out = dlx.from_dlpack(x, copy=True)
    way(out)
    assert set(out.numpy().ravel()) == {7}


@WAYS
def test_an_array_of_jax_is_no_out(way: Any) -> None:
    requires("jax")
    import jax.numpy as jnp

    x = jnp.zeros(3)
    for out in (x, Stored(x), ByMethod(x)):
        with pytest.raises(BufferError, match=rf"a jax\.Array, .*immutable; {COPY}"):
            way(out)
    assert x.tolist() == [0, 0, 0]
    way(dlx.from_dlpack(x, copy=True))


@WAYS
@pytest.mark.parametrize("make", [dlx.from_dlpack, Stored])
def test_out_whose_elements_are_one_is_refused(way: Any, make: Any) -> None:
    """R98: what is written to one would be read from all."""
    element = np.zeros(1)
    array = np.lib.stride_tricks.as_strided(element, (2, 3), (0, 0), writeable=True)
    with pytest.raises(BufferError, match=r"^out has .*strides \[0, 0\]"):
        way(make(array))
    assert element == 0
    way(make(array[:1, :1]))
    assert element == 7


SHAPES = st.lists(st.integers(0, 4), max_size=2)


@given(st.data())
@settings(max_examples=300)
def test_out_of_two_dimensions_is_refused_exactly_if_elements_overlap(
    data: st.DataObject,
) -> None:
    """R98: also sliding windows, whose strides are not 0."""
    shape = data.draw(SHAPES)
    strides = [data.draw(st.integers(-6, 6)) for _ in shape]
    places = [sum(map(mul, at, strides)) for at in np.ndindex(*shape)]
    memory = np.zeros(1 + max(places, default=0) - min(places, default=0))
    first = memory[-min(places, default=0) :]
    out = dlx.from_pointer(
        first.ctypes.data, shape, "float64", strides=strides, owner=memory
    )
    if len(set(places)) == len(places):
        with dlx.borrow(out=out):
            pass
    else:
        with pytest.raises(BufferError, match="several elements at one address"):
            dlx.borrow(out=out).__enter__()


@pytest.mark.parametrize("step", [1, -7])
@WAYS
def test_out_with_more_elements_than_places_is_refused(way: Any, step: int) -> None:
    """R98: though no two of its dimensions lead to the same places."""
    memory = np.zeros(43)[::step]
    strides = [step * 8, 2 * step * 8, 3 * step * 8]
    out = np.lib.stride_tricks.as_strided(memory, (2, 2, 2), strides)
    with pytest.raises(BufferError, match="several elements at one address"):
        way(dlx.from_dlpack(out))


# Memory that a class is asked for.


class Own(dlx.ExchangeMixin, exchange="data"):
    """A class whose new memory is what `kind` makes."""

    kind: Any = None

    def __init__(self, data: Any) -> None:
        """Hold it."""
        self.data = data

    @classmethod
    def __dlx_import__(cls, tensor: dlx.Tensor) -> Any:
        """Hold a tensor."""
        return cls(tensor)

    @classmethod
    def __dlx_empty__(cls, shape: Any, dtype: Any, device: Any) -> Any:
        """Make memory."""
        return cls.kind(shape)


def test_new_memory_has_to_be_writable_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """R138: an array of JAX would be written in place."""
    requires("jax")
    import jax.numpy as jnp

    monkeypatch.setattr(Own, "kind", staticmethod(jnp.zeros))
    with pytest.raises(TypeError, match="a writable float32"):
        dlx.empty((3,), "float32", like=Own)
    old = staticmethod(lambda shape: np.zeros(shape, "f4").view(OldArray))
    monkeypatch.setattr(Own, "kind", old)
    assert not dlx.from_dlpack(dlx.empty((3,), "float32", like=Own)).readonly


def test_the_tensor_that_is_written_is_the_one_that_was_asked() -> None:
    """R39, R43: what another export of the same object said does not count."""
    array = np.zeros(3)
    out = Sealing(array, np.zeros(3))
    out.__array_interface__ = array.__array_interface__
    with pytest.raises(BufferError, match="out is read-only"):
        write(out=out)
    assert array.tolist() == [0, 0, 0]


class Computed(dlx.ExchangeMixin, exchange="data"):
    """A class that exports what it computes."""

    def __init__(self, array: Array) -> None:
        """Keep what is computed of."""
        self.array = array

    @property
    def data(self) -> Array:
        """Another array each time."""
        return self.array * 2


class Viewed(Computed):
    """A class that exports a new view of its memory each time."""

    @property
    def data(self) -> Array:
        """The same memory."""
        return self.array[:]


class ByPython:
    """The same as `Computed`, of no base class."""

    def __init__(self, array: Array) -> None:
        """Keep what is computed of."""
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        """Export another array each time."""
        return (self.array * 2).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """On the CPU."""
        return (1, 0)


def launched(out: Any) -> None:
    """Write 7 by a launcher."""
    launch = dlx.launcher(lambda out: np.from_dlpack(out).fill(7), give="tensor", out=0)
    launch(out)


@pytest.mark.parametrize("way", [lend, written, launched])
@pytest.mark.parametrize("cls", [Computed, ByPython])
def test_what_is_computed_is_no_out(way: Any, cls: Any) -> None:
    """docs/launcher.md, Refused: what is written would be lost."""
    with pytest.raises(dlx.CopyRefused, match="exports other memory each time"):
        way(cls(np.ones(3)))


@pytest.mark.parametrize("way", [lend, written, launched])
def test_a_view_that_is_made_each_time_is_an_out(way: Any) -> None:
    array = np.ones(3)
    way(Viewed(array))
    assert array.tolist() == [7, 7, 7]


@pytest.mark.parametrize("way", [lend, launched])
def test_no_copy_is_advised_for_out_alone(way: Any) -> None:
    """docs/launcher.md, Refused: a copy would keep the result."""
    out = np.ma.array(np.ones(3), mask=[False, True, False])
    with pytest.raises(BufferError, match=r"pass x\.filled") as refused:
        way(out)
    assert any("copy that to out" in note for note in refused.value.__notes__)


@pytest.mark.parametrize("way", [lend, written, launched])
def test_a_subclass_that_computes_is_no_out(way: Any) -> None:
    """Its class has torch's table, and exports by its own method."""
    torch: Any = requires("torch")

    class Doubled(torch.Tensor):  # type: ignore[misc]
        def __dlpack__(self, **options: Any) -> Any:
            return (self.as_subclass(torch.Tensor) * 2).__dlpack__(**options)

    with pytest.raises(dlx.CopyRefused, match="exports other memory each time"):
        way(torch.ones(3).as_subclass(Doubled))
