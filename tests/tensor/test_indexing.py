"""Basic indexing, `len`, iteration and `tolist` of a `dlx.Tensor`."""

from __future__ import annotations

import ctypes
import gc
import operator
import weakref
from typing import Any

import dlx
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.dlx_producers import Stored
from support.optional_libraries import requires

LAYOUTS = [lambda a: a, lambda a: a.T, lambda a: a[..., ::-1], lambda a: a[::2]]


@st.composite
def array_and_index(draw: st.DrawFn) -> tuple[Any, Any]:
    """An array of any layout, and an index of ints, slices, `None` and `...`."""
    shape = draw(arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4))
    array = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    array = draw(st.sampled_from(LAYOUTS))(array)
    index = arrays.basic_indices(array.shape, allow_newaxis=True, allow_ellipsis=True)
    return array, draw(index)


@given(array_and_index())
def test_a_part_is_that_of_numpy(made: tuple[Any, Any]) -> None:
    """Array API, `__getitem__`: the elements, and their address."""
    array, index = made
    part, expected = dlx.from_dlpack(array)[index], array[index]
    assert part.tolist() == expected.tolist()
    assert part.shape == expected.shape
    if expected.size:
        assert part.data_ptr == np.asarray(expected).ctypes.data or expected.ndim == 0


def test_a_part_shares_the_memory() -> None:
    """Also one of a single element."""
    a = np.zeros((2, 3))
    t = dlx.from_dlpack(a)
    t[1].numpy()[2] = 5
    t[0, 0].numpy()[()] = 7
    assert a.tolist() == [[7, 0, 0], [0, 0, 5]]


def test_a_part_keeps_the_memory_alive() -> None:
    """R11: by the whole tensor."""
    owner = np.arange(1000.0)
    part = dlx.from_dlpack(owner)[-1]
    del owner
    gc.collect()
    assert float(part) == 999


def test_many_parts_of_parts_are_freed() -> None:
    """However long the chain is, the stack is not."""
    t = dlx.from_dlpack(np.zeros(3))
    for _ in range(100_000):
        t = t[:]
    del t


def test_a_part_of_read_only_memory_is_read_only() -> None:
    """R39: the flag is that of the memory."""
    a = np.zeros(3)
    a.flags.writeable = False
    assert dlx.from_dlpack(a)[1:].readonly


def test_a_part_of_a_copy_is_not_solely_owned() -> None:
    """R37: IS_COPIED would say so."""
    t = dlx.from_dlpack(np.zeros(3), copy=True)
    assert t.is_copied
    assert not t[:].is_copied


@pytest.mark.parametrize(
    ("index", "error", "says"),
    [
        (2, IndexError, "index 2 is out of bounds for a dimension of 2"),
        (-3, IndexError, "index -3 is out of bounds"),
        (10**30, IndexError, "more than 64 bits"),
        ((0, 0, 0), IndexError, "3 indices for a tensor of 2 dimensions"),
        ((..., ...), IndexError, "at most one"),
        (True, TypeError, "not bool"),
        ([0], TypeError, "not list"),
        ("a", TypeError, "not str"),
        (1.0, TypeError, "not float"),
        (slice(None, None, 0), ValueError, "zero"),
        (slice("a"), TypeError, "__index__"),
    ],
)
def test_other_indices_are_refused(index: Any, error: type, says: str) -> None:
    """An array of NumPy takes them all, so the message names one."""
    with pytest.raises(error, match=says):
        dlx.from_dlpack(np.zeros((2, 3)))[index]


def test_numbers_of_other_libraries_are_indices() -> None:
    """`__index__`: of NumPy, and of dlx."""
    t = dlx.from_dlpack(np.arange(3))
    assert t[np.int8(1)].tolist() == t[dlx.from_dlpack(np.array(1))].tolist() == 1


def test_packed_elements_are_chosen_from_a_byte_on() -> None:
    """R110: two elements of four bits take a byte."""
    memory = np.array([0x21, 0x43], "u1")
    t = dlx.from_pointer(memory.ctypes.data, (4,), "int4", owner=memory)
    assert t[2:].data_ptr == t.data_ptr + 1
    with pytest.raises(BufferError, match="element 1 does not begin with a byte"):
        t[1:]


def test_padded_elements_take_a_byte_each() -> None:
    """IS_SUBBYTE_TYPE_PADDED."""
    a = np.arange(4).astype(ml_dtypes.int4)
    t = dlx.from_dlpack(a)
    assert t[1:].numpy().tolist() == [1, 2, 3]


def test_the_length_is_the_first_extent() -> None:
    """And a tensor without dimensions has none, as in NumPy."""
    assert len(dlx.from_dlpack(np.zeros((2, 3)))) == 2
    with pytest.raises(TypeError, match="has no dimensions"):
        len(dlx.from_dlpack(np.zeros(())))


def test_iteration_gives_the_parts_of_the_first_dimension() -> None:
    """Each a tensor; the iterator knows how many are left."""
    a = np.arange(6).reshape(3, 2)
    parts = iter(dlx.from_dlpack(a))
    assert operator.length_hint(parts) == 3
    assert [part.tolist() for part in parts] == a.tolist()
    assert list(parts) == []
    with pytest.raises(TypeError, match="has no dimensions"):
        iter(dlx.from_dlpack(np.zeros(())))


COMPARED: list[Any] = [1, 1.5, 1j, True, [1, 2], (1, 2)]


@pytest.mark.parametrize("x", [*COMPARED, Stored(np.ones(2))])
def test_a_tensor_does_not_compare_its_elements(x: Any) -> None:
    """By identity all would be unequal, which says nothing of elements."""
    t = dlx.from_dlpack(np.ones(2))
    looks: list[Any] = [operator.eq, operator.ne, operator.lt, operator.contains]
    for look in looks:
        with pytest.raises(TypeError, match="compares no elements"):
            look(t, x)


def test_a_tensor_is_compared_by_numpy() -> None:
    """On either side, as an array."""
    t = dlx.from_dlpack(np.arange(3))
    for x in (np.arange(3), np.int64(1)):
        assert (t == x).tolist() == (x == t).tolist() == (np.arange(3) == x).tolist()


def test_a_tensor_differs_from_what_has_no_elements() -> None:
    """It is a key, too, by identity."""
    t = dlx.from_dlpack(np.ones(2))
    assert t == t
    assert t != "auto"
    assert t not in (None, ...)
    assert {t: 1}[t] == 1
    assert t[0] != t[0]
    assert [t[0], t].index(t) == 1
    with pytest.raises(TypeError, match="compares no elements"):
        t[0] in t  # noqa: B015
    assert len({t[0], t[1], t}) == 3


@given(
    arrays.arrays(
        st.sampled_from([*"?bhilBHILefdFD"]),
        arrays.array_shapes(min_dims=0, min_side=0, max_side=3),
    ).map(lambda a: a.T)
)
def test_the_list_is_that_of_numpy(a: Any) -> None:
    """Numbers of Python, in any layout."""
    ours, theirs = dlx.from_dlpack(a).tolist(), a.tolist()
    np.testing.assert_equal(ours, theirs)
    assert repr(ours) == repr(theirs)


def test_elements_that_are_no_number_of_python_have_no_list() -> None:
    """The message says what to do."""
    t = dlx.from_dlpack(np.zeros(2, ml_dtypes.float8_e4m3fn))
    with pytest.raises(BufferError, match="convert it to another dtype"):
        t.tolist()


def test_a_loan_that_has_ended_has_no_parts() -> None:
    """The memory may be gone."""
    with dlx.borrow(np.zeros(3)) as (t, _):
        pass
    for take in (lambda: t[0], lambda: iter(t), t.tolist):
        with pytest.raises(BufferError, match="block that has ended"):
            take()


def test_other_libraries_still_read_a_tensor_as_one_array() -> None:
    """A type with a length and items could be taken for a sequence of tensors."""
    torch = requires("torch")
    a = np.arange(6.0).reshape(2, 3)
    t = dlx.from_dlpack(a)
    assert torch.tensor(t).tolist() == a.tolist()
    assert np.array([t, t]).tolist() == [a.tolist()] * 2
    assert np.asarray(t).ctypes.data == a.ctypes.data


@pytest.mark.parametrize("index", [np.True_, np.array(True), np.array([1])])
def test_masks_and_arrays_are_no_ints(index: Any) -> None:
    """NumPy takes them for other kinds of indexing."""
    with pytest.raises(TypeError, match="takes ints, slices"):
        dlx.from_dlpack(np.arange(3))[index]


def test_a_mask_of_torch_is_no_int() -> None:
    """Although it has `__index__`."""
    torch = requires("torch")
    t = dlx.from_dlpack(np.arange(3))
    assert t[torch.tensor(2)].tolist() == 2
    for index in (torch.tensor(True), torch.tensor([1])):
        with pytest.raises(TypeError, match="takes ints, slices"):
            t[index]


def test_a_cycle_through_a_part_is_freed() -> None:
    """docs/design.md, Who owns what: as one through the tensor itself."""

    class Owner:
        pass

    def freed(part: Any) -> bool:
        owner: Any = Owner()
        owner.memory = (ctypes.c_float * 8)()
        address = ctypes.addressof(owner.memory)
        owner.kept = part(dlx.from_pointer(address, (2, 4), "float32", owner=owner))
        gone = weakref.ref(owner)
        del owner
        gc.collect()
        return gone() is None

    assert freed(lambda t: t)
    assert freed(lambda t: t[0])
    assert freed(lambda t: t[0][1:])


def test_a_part_of_a_part_holds_the_whole_alone() -> None:
    """Not each part between."""
    t = dlx.from_dlpack(np.zeros(4))
    middle = t[1:]
    gone = weakref.ref(middle)
    last = middle[1:]
    del middle
    assert gone() is None
    assert last.tolist() == [0, 0]


def test_no_elements_begin_anywhere() -> None:
    """R110: packed elements that are not there have no byte."""
    memory = np.array([0x21, 0x43, 0x65], "u1")
    t = dlx.from_pointer(memory.ctypes.data, (2, 3), "int4", owner=memory)
    assert t[1, 0:0].shape == (0,)
