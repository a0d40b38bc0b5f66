"""What a producer cannot say stays unknown, and what is read-only stays so (R43)."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from numpy.typing import NDArray
from support.dlpack_abi import delete, from_table, table_of
from support.dlx_producers import ByMethod, Maker, Stored, every_producer
from support.fake_buffer import PyBuffer
from support.fake_producers import OldProducer, Producer
from support.jax_arrays import takes_read_only
from support.optional_libraries import requires
from support.python_process import run_python

Array = NDArray[Any]

PYBUF_WRITABLE = 1


class OldArray(np.ndarray[Any, Any]):
    """An array that knows unversioned capsules only, as in NumPy's `test_writeable`."""

    def __dlpack__(self, *, stream: Any = None) -> Any:  # type: ignore[override]
        """Export without a version."""
        return super().__dlpack__()


BETWEEN: dict[str, Maker] = {
    "from_dlpack": dlx.from_dlpack,
    "convert to dlx": lambda x: dlx.convert(x, dlx.Tensor),
    "stored": Stored,
    "by method": ByMethod,
    "stored tensor": lambda x: Stored(dlx.from_dlpack(x)),
    "import of a mixin": lambda x: dlx.from_dlpack(ByMethod(Stored(x))),
    "stream": lambda x: dlx.from_dlpack(x, stream=-1),
    "capsule": lambda x: dlx.from_dlpack(x.__dlpack__()),
}

SHOWN: dict[str, Callable[[Any], Array]] = {
    "np.from_dlpack": np.from_dlpack,
    "np.asarray": lambda x: np.asarray(dlx.from_dlpack(x)),
    "convert": lambda x: dlx.convert(x, np.ndarray),
    "a second convert": lambda x: dlx.convert(dlx.convert(x, dlx.Tensor), np),
    "convert, no copy": lambda x: dlx.convert(x, np.ndarray, copy=False),
    "numpy()": lambda x: dlx.from_dlpack(x).numpy(),
    "memoryview": lambda x: np.asarray(memoryview(dlx.from_dlpack(x))),
}

between = pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
shown = pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)


@between
@shown
def test_numpy_shows_an_old_producer_read_only(between: Maker, show: Maker) -> None:
    """R43: NumPy's own `test_writeable`, with dlx in the middle."""
    array = np.arange(5.0)
    old = between(array.view(OldArray))
    assert not show(old).flags.writeable
    assert show(old).ctypes.data == array.ctypes.data
    if between is not BETWEEN["capsule"]:
        assert show(between(array)).flags.writeable


def test_every_instance_is_told_by_itself() -> None:
    """What one capsule could not say says nothing of the next, after many too."""

    class Either(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            return self.capsule(versioned=self.versioned or False)

    for number in range(200):
        versioned = bool(number % 2)
        made = dlx.convert(Either(versioned=versioned), np.ndarray)
        assert made.flags.writeable is versioned


@between
def test_torch_shares_and_writes_as_without_dlx(between: Maker) -> None:
    """R43: `torch.from_dlpack` takes an unversioned capsule for writable."""
    torch = requires("torch")
    array = np.arange(5.0)
    for number, take in enumerate(
        [torch.from_dlpack, lambda x: dlx.convert(x, torch, copy=False)]
    ):
        taken = take(between(array.view(OldArray)))
        taken[number] = 9
        assert array[number] == 9


def test_a_tensor_says_that_it_may_be_read_only() -> None:
    tensor = dlx.from_dlpack(OldProducer())
    assert tensor.readonly
    assert "maybe readonly" in repr(tensor)
    assert tensor.__array_interface__["data"][1]
    assert memoryview(tensor).readonly
    with pytest.raises(BufferError, match="does not say whether it is writable"):
        ctypes.pythonapi.PyObject_GetBuffer(
            ctypes.py_object(tensor), ctypes.byref(PyBuffer()), PYBUF_WRITABLE
        )


def test_the_capsule_is_unversioned_again() -> None:
    """R24: a producer may answer with an older version than was asked for."""
    tensor = dlx.from_dlpack(OldProducer())
    asked: list[dict[str, Any]] = [
        {},
        {"max_version": (1, 3)},
        {"max_version": (1, 0), "stream": None, "copy": None, "dl_device": None},
        {"max_version": (1, 0), "copy": False},
        {"max_version": (1, 0), "dl_device": (1, 0)},
    ]
    for keywords in asked:
        assert '"dltensor"' in repr(tensor.__dlpack__(**keywords))
    copied = tensor.__dlpack__(max_version=(1, 0), copy=True)
    assert '"dltensor_versioned"' in repr(copied)


def test_a_copy_may_be_written() -> None:
    old = np.arange(5.0).view(OldArray)
    assert not dlx.from_dlpack(old, copy=True).readonly
    assert not dlx.from_dlpack(old).to(copy=True).readonly
    assert dlx.convert(old, np, copy=True).flags.writeable
    assert np.from_dlpack(dlx.from_dlpack(old), copy=True).flags.writeable


@every_producer
def test_a_table_hands_on_no_flag_for_it(make: Maker) -> None:
    """As the unversioned capsule would be; nor any bit that DLPack does not have."""
    x = make(OldProducer())
    managed = from_table(table_of(type(x)), x)
    assert managed.flags == 0
    delete(managed)


# Arrays that nobody may write.


def test_an_array_of_jax_does_not_become_a_writable_one() -> None:
    """`dlx.convert(jnp_array, np.ndarray)[0] = 9` changed the JAX array."""
    requires("jax")
    import jax.numpy as jnp

    x = jnp.arange(4.0)
    for make, show in itertools.product(
        [lambda x: x, dlx.from_dlpack, ByMethod], SHOWN.values()
    ):
        array = show(make(x))
        assert not array.flags.writeable
        assert array.ctypes.data == x.unsafe_buffer_pointer()
    with pytest.raises(ValueError, match="read-only"):
        dlx.convert(x, np.ndarray)[0] = 9


def test_a_bridged_function_cannot_write_to_an_array_of_jax() -> None:
    requires("jax")
    import jax.numpy as jnp

    @dlx.bridge(np.ndarray)
    def fill(x: Any) -> Any:
        x[:] = 9
        return x

    x = jnp.arange(4.0)
    with pytest.raises(ValueError, match="read-only"):
        fill(x)
    assert x.tolist() == [0, 1, 2, 3]


def aligned() -> Array:
    """Memory that JAX would share."""
    memory = np.zeros(4096 + 64, np.uint8)
    return memory[-memory.ctypes.data % 64 :][:4096].view(np.float32)


def test_jax_shares_what_may_be_written() -> None:
    """R39: and never writes to it."""
    jax = requires("jax")
    array = aligned()
    assert dlx.convert(array, jax.Array).unsafe_buffer_pointer() == array.ctypes.data


@pytest.mark.parametrize("copy", [None, False])
def test_jax_shares_what_is_read_only_where_it_imports_that_itself(
    copy: bool | None,
) -> None:
    """R40: what reads unversioned capsules does not learn that it is read-only."""
    jax = requires("jax")
    array = aligned()
    array.flags.writeable = False
    shares = takes_read_only(array)
    if copy is False and not shares:
        with pytest.raises(dlx.CopyRefused, match="copy=True"):
            dlx.convert(array, jax.Array, copy=False)
        return
    made = dlx.convert(array, jax.Array, copy=copy)
    assert (made.unsafe_buffer_pointer() == array.ctypes.data) is shares


@pytest.mark.parametrize("last", ["numpy", "torch", "tvm_ffi", "dlx"])
def test_read_only_memory_is_not_lost_by_way_of_jax(last: str) -> None:
    """`dlx.convert(dlx.convert(readonly, jax.Array), np)[0] = 7` changed the source."""
    jax = requires("jax")
    to: Any = {"numpy": np, "dlx": dlx.Tensor}.get(last) or requires(last)
    source = bytes(4096 + 64)
    start = -np.frombuffer(source, "u1").ctypes.data % 64
    array = np.frombuffer(source, "f4", 1024, start)
    made = dlx.convert(dlx.convert(array, jax.Array), getattr(to, "Tensor", to))
    seen = dlx.from_dlpack(made)
    assert seen.readonly or seen.data_ptr != array.ctypes.data


# Tables that dlx provides.


def test_a_provided_table_refuses_what_is_read_only() -> None:
    """R40: a consumer of a table does not say that it reads flags."""
    table = table_of(dlx.exchange_api(np.ndarray))
    array = np.arange(3.0)
    delete(from_table(table, array))
    frozen = array[::2]
    frozen.flags.writeable = False
    with pytest.raises(BufferError, match=r"read-only.* pass a copy"):
        from_table(table, frozen)
    delete(from_table(table, frozen.copy()))
    assert dlx.from_dlpack(frozen).readonly


WRITE_BY_TVM = """
    import mmap, tempfile
    import dlx, numpy as np, tvm_ffi
    echo = tvm_ffi.get_global_func("testing.echo")
    file = tempfile.NamedTemporaryFile()
    file.write(bytes(4096)); file.flush()
    array = np.asarray(np.memmap(file.name, "f4", "r"))
    dlx.publish(np.ndarray)
    try:
        np.from_dlpack(echo(array))[0] = 1
    except BufferError as error:
        assert "pass a copy" in str(error), error
    else:
        raise SystemExit("written")
    try:
        tvm_ffi.from_dlpack(array)
    except BufferError as error:
        assert "readonly" in str(error), error
    else:
        raise SystemExit("imported")
    np.from_dlpack(echo(array.copy()))[0] = 1
"""


def test_a_published_class_is_as_protected_as_before() -> None:
    """`testing.echo(read_only)[0] = 1` ended the process; NumPy had refused."""
    requires("tvm_ffi")
    code, _, errors = run_python(WRITE_BY_TVM)
    assert code == 0, errors


@every_producer
def test_other_tables_say_it_by_the_flag(make: Maker) -> None:
    """R39, R128: their struct has flags, and who gives a class a table means them."""
    array = np.arange(3.0)
    array.flags.writeable = False
    x = make(array)
    managed = from_table(table_of(type(x)), x)
    assert managed.flags == 1
    delete(managed)
