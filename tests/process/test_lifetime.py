"""Who keeps what alive, and that nobody keeps it for longer."""

from __future__ import annotations

import gc
import hashlib
import os
import sys
import weakref
from collections.abc import Callable
from ctypes import addressof, byref, c_int64, c_void_p
from functools import cache
from typing import Any, NoReturn

import dlx
import numpy as np
import pytest
import tvm_ffi
from numpy.typing import NDArray
from support.dlpack_abi import (
    DLManagedTensorVersioned,
    DLTensor,
    delete,
    from_table,
    managed_in,
    table_of,
    take_reference,
)
from support.dlx_producers import ByMethod, Stored
from support.fake_table import Forward
from support.libc import heap_in_use, needs_heap_in_use
from support.lifetime_steps import CONVERSIONS, WATCHED, fail
from support.optional_libraries import requires
from support.python_process import run_python

pytestmark = pytest.mark.slow

Array = NDArray[Any]

ROUNDS = int(os.environ.get("DLX_LIFETIME_N", "25_000"))
TOLERANCE = max(ROUNDS // 100, 1000)
"""Blocks that may be in use in the end and were not before: caches, not every round."""
MALLOC_MINIMUM = 32

TABLE = table_of(dlx.Tensor)


def strided() -> Array:
    """Elements with a gap, so that no path may leave the strides out."""
    return np.arange(12.0).reshape(3, 4)[:, ::2]


NEW: dict[str, Any] = {"max_version": (1, 3)}
HOLDERS: dict[str, Callable[[Array], Any]] = {
    "an import": dlx.from_dlpack,
    "an import of a capsule": lambda array: dlx.from_dlpack(array.__dlpack__(**NEW)),
    "an import of a legacy capsule": lambda array: dlx.from_dlpack(array.__dlpack__()),
    "an import through a table": lambda array: dlx.from_dlpack(
        Forward(dlx.from_dlpack(array))
    ),
    "a pointer": lambda array: dlx.from_pointer(8, (1,), "int8", owner=array),
    "a capsule": lambda array: dlx.from_dlpack(array).__dlpack__(**NEW),
    "a legacy capsule": lambda array: dlx.from_dlpack(array).__dlpack__(),
    "a buffer": lambda array: memoryview(dlx.from_dlpack(array)),
    "an array": lambda array: np.from_dlpack(dlx.from_dlpack(array)),
    "another library's": lambda array: tvm_ffi.from_dlpack(dlx.from_dlpack(array)),
    "an import of a mixin": lambda array: dlx.from_dlpack(Stored(array)),
    "a capsule of a mixin": lambda array: Stored(array).__dlpack__(**NEW),
    "a mixin made of it": Stored.from_dlpack,
    "an array of a mixin": lambda array: np.from_dlpack(ByMethod(array)),
    "another library's of a mixin": lambda array: tvm_ffi.from_dlpack(Stored(array)),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_one_reference_is_held_and_given_back(hold: Callable[[Array], Any]) -> None:
    """R8, R15 to R18: by each kind of holder."""
    array = strided()
    before = sys.getrefcount(array)
    held = hold(array)
    assert sys.getrefcount(array) == before + 1
    del held
    assert sys.getrefcount(array) == before


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_the_memory_lives_as_long_as_its_holder(hold: Callable[[Array], Any]) -> None:
    """R15: and no longer."""
    array = strided()
    alive = weakref.ref(array)
    held = hold(array)
    del array
    gc.collect()
    assert alive() is not None
    del held
    assert alive() is None


def test_a_copy_holds_nothing() -> None:
    """R47: no reference to its source."""
    array = strided()
    before = sys.getrefcount(array)
    copied = dlx.from_dlpack(array, copy=True)
    assert copied.is_copied
    assert sys.getrefcount(array) == before


ARRAY = strided()
TENSOR = dlx.from_dlpack(ARRAY)
FORWARD = Forward(TENSOR)
BYTES = bytearray(12)
UNKNOWN = np.zeros(3, ">i4").data
BY_STRUCT = type("ByStruct", (), {"__array_struct__": ARRAY.__array_struct__})()
BY_DICT = type("ByDict", (), {"__array_interface__": ARRAY.__array_interface__})()
BY_DICT_WITH_A_BUFFER = type(
    "ByDict",
    (),
    {
        "__array_interface__": {
            "version": 3,
            "typestr": "|u1",
            "shape": (12,),
            "data": BYTES,
        }
    },
)()
READ_ONLY = dlx.from_dlpack(np.broadcast_to(1.0, (2, 3)))
SHAPE = (c_int64 * 2)(5, 7)
PROTOTYPE = DLTensor(device=(1, 0), ndim=2, dtype=(2, 32, 1), shape=SHAPE)
OUT = c_void_p()


def refused(call: Callable[..., Any], *arguments: Any) -> None:
    """Call what must raise BufferError."""
    fail(call, BufferError, *arguments)


@cache
def torch_tensor(requires_grad: bool) -> Any:
    """A tensor of a type that has a table."""
    return requires("torch").zeros(3, 4, requires_grad=requires_grad)


def import_what_dlx_refuses() -> None:
    """Import a tensor of a version to come."""
    capsule = ARRAY.__dlpack__(max_version=(1, 3))
    managed_in(capsule).version.major = 2
    refused(dlx.from_dlpack, capsule)


def make_an_object() -> None:
    """Give the table its own export back."""
    managed = from_table(TABLE, TENSOR)
    TABLE.managed_tensor_to_py_object_no_sync(byref(managed), byref(OUT))
    take_reference(OUT)


def refuse_to_make_an_object() -> None:
    """Offer the table a tensor of a version to come, and keep it."""
    managed = from_table(TABLE, TENSOR)
    managed.version.major = 2
    refused(TABLE.managed_tensor_to_py_object_no_sync, byref(managed), byref(OUT))
    delete(managed)


def allocate() -> None:
    """Allocate through the table."""
    TABLE.managed_tensor_allocator(addressof(PROTOTYPE), byref(OUT), None, None)
    delete(DLManagedTensorVersioned.from_address(OUT.value or 0))


STORED, BY_METHOD, NONSENSE = Stored(TENSOR), ByMethod(ARRAY), ByMethod(5)


def make_a_mixin(owner: Any, error: type[Exception] | None = None) -> None:
    """Have a table make an object, or fail and leave the tensor to its caller."""
    managed = from_table(TABLE, TENSOR)
    make = table_of(owner).managed_tensor_to_py_object_no_sync
    if error is None:
        make(byref(managed), byref(OUT))
        take_reference(OUT)
        return
    fail(make, error, byref(managed), byref(OUT))
    delete(managed)


def nonsense(ask: Callable[..., Any], *arguments: Any) -> None:
    """Ask a mixin for what it cannot export."""
    fail(ask, TypeError, *arguments)


class Failing(Stored):
    """A mixin that cannot be made."""

    @classmethod
    def __dlx_import__(cls, tensor: dlx.Tensor) -> NoReturn:
        """Fail."""
        raise ZeroDivisionError


class Absent(Stored):
    """A mixin that makes nothing."""

    @classmethod
    def __dlx_import__(cls, tensor: dlx.Tensor) -> Any:
        """Forget the tensor."""


STEPS: dict[str, Callable[[], Any]] = {
    "import by protocol": lambda: dlx.from_dlpack(ARRAY),
    "import with a copy": lambda: dlx.from_dlpack(ARRAY, copy=True),
    "import a capsule": lambda: dlx.from_dlpack(ARRAY.__dlpack__(**NEW)),
    "import a legacy capsule": lambda: dlx.from_dlpack(ARRAY.__dlpack__()),
    "import through a table": lambda: dlx.from_dlpack(FORWARD),
    "import through torch's table": lambda: dlx.from_dlpack(torch_tensor(False)),
    "import what a guard refuses": lambda: refused(dlx.from_dlpack, torch_tensor(True)),
    "import what dlx refuses": import_what_dlx_refuses,
    "import a buffer": lambda: dlx.from_dlpack(BYTES),
    "import a buffer that dlx refuses": lambda: refused(dlx.from_dlpack, UNKNOWN),
    "import a struct": lambda: dlx.from_dlpack(BY_STRUCT),
    "import a dict": lambda: dlx.from_dlpack(BY_DICT),
    "import a dict with a buffer": lambda: dlx.from_dlpack(BY_DICT_WITH_A_BUFFER),
    "own a pointer": lambda: dlx.from_pointer(8, (2, 3), "int8", owner=ARRAY),
    "export to NumPy": lambda: np.from_dlpack(TENSOR),
    "export to tvm_ffi": lambda: tvm_ffi.from_dlpack(TENSOR),
    "drop a capsule": lambda: TENSOR.__dlpack__(**NEW),
    "drop a legacy capsule": lambda: TENSOR.__dlpack__(),
    "drop a copy": lambda: TENSOR.__dlpack__(copy=True),
    "refuse an export": lambda: refused(READ_ONLY.__dlpack__),
    "export through the table": lambda: delete(from_table(TABLE, TENSOR)),
    "refuse a stranger": lambda: refused(from_table, TABLE, ARRAY),
    "make an object": make_an_object,
    "refuse to make an object": refuse_to_make_an_object,
    "allocate": allocate,
    "borrow": lambda: TABLE.dltensor_from_py_object_no_sync(TENSOR, byref(DLTensor())),
    "show a buffer": lambda: memoryview(TENSOR).release(),
    "refuse a buffer": lambda: refused(hashlib.sha1, TENSOR),
    "show an interface": lambda: TENSOR.__array_interface__,
    "show an array": lambda: TENSOR.numpy(),
    "import a mixin": lambda: dlx.from_dlpack(STORED),
    "import a mixin by method": lambda: dlx.from_dlpack(BY_METHOD),
    "drop a capsule of a mixin": lambda: STORED.__dlpack__(**NEW),
    "ask a mixin for its device": lambda: BY_METHOD.__dlpack_device__(),
    "export a mixin through its table": lambda: delete(
        from_table(table_of(Stored), STORED)
    ),
    "export a mixin by method through its table": lambda: delete(
        from_table(table_of(ByMethod), BY_METHOD)
    ),
    "borrow from a mixin": lambda: table_of(Stored).dltensor_from_py_object_no_sync(
        STORED, byref(DLTensor())
    ),
    "make a mixin": lambda: make_a_mixin(Stored),
    "fail to make a mixin": lambda: make_a_mixin(Failing, ZeroDivisionError),
    "refuse what a mixin made": lambda: make_a_mixin(Absent, TypeError),
    "refuse a stranger to a mixin": lambda: refused(
        from_table, table_of(Stored), BY_METHOD
    ),
    "refuse nonsense": lambda: nonsense(from_table, table_of(ByMethod), NONSENSE),
    "refuse nonsense by protocol": lambda: nonsense(NONSENSE.__dlpack__),
    **CONVERSIONS,
}


@needs_heap_in_use
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_many_rounds_leak_nothing(step: Callable[[], Any]) -> None:
    """R8, R11, R17, R21: references, Python's blocks and the C heap, all exactly.

    They count what is in use. The size of the process would depend on its past: what
    other tests freed hides a leak.
    """
    watched = [ARRAY, FORWARD, TENSOR, READ_ONLY, BYTES, UNKNOWN, BY_STRUCT, BY_DICT]
    watched += [STORED, BY_METHOD, NONSENSE, Stored, ByMethod, Failing, Absent]
    watched += [dlx.Tensor, BufferError, type(ARRAY), *WATCHED]
    references, blocks, heap = [], [], []
    # Twice: a library may allocate in one of them; a leak grows in both.
    for rounds in (ROUNDS // 10, ROUNDS, ROUNDS):
        for _ in range(rounds):
            step()
        gc.collect()
        references.append([sys.getrefcount(each) for each in watched])
        blocks.append(sys.getallocatedblocks())
        heap.append(heap_in_use())
        if len(heap) == 2 and heap[1] - heap[0] < TOLERANCE * MALLOC_MINIMUM:
            break
    assert references[-1] == references[0]
    assert blocks[1] - blocks[0] < TOLERANCE
    assert heap[-1] - heap[-2] < TOLERANCE * MALLOC_MINIMUM


DYING = {
    "a capsule": "dlx.from_dlpack(producer).__dlpack__()",
    "an import": "dlx.from_dlpack(producer)",
    "an owner": "dlx.from_pointer(8, (1,), 'int8', owner=Owner())",
    "an owner, by a foreign destructor": (
        "taken(dlx.from_pointer(8, (1,), 'int8', owner=owner()))"
    ),
    "a buffer": "dlx.from_dlpack(Buffer())",
    "an export of an owner": (
        "dlx.from_pointer(8, (1,), 'int8', owner=Owner()).__dlpack__()"
    ),
}


@pytest.mark.parametrize("dying", DYING.values(), ids=DYING)
def test_a_pending_exception_survives_a_death(dying: str) -> None:
    """R5; CPython's `tp_dealloc`: it leaves the exception as it was."""
    code = f"""
        import dlx
        from ctypes import byref, c_void_p, cast
        from support.dlpack_abi import Deleter, for_ever, new_capsule, table_of
        from support.fake_buffer import Exporter
        from support.fake_producers import Producer, c_function

        class Buffer(Exporter):
            def release(self):
                print("let go")

        class Owner:
            def __del__(self):
                print("let go")

        def owner():
            destructor = for_ever(Deleter(lambda capsule: print("let go")))
            return new_capsule(8, b"owner", cast(destructor, c_void_p).value)

        def taken(tensor):
            out = c_void_p()
            table_of(dlx.Tensor).managed_tensor_from_py_object_no_sync(
                tensor, byref(out)
            )
            name = b"dltensor_versioned"
            return new_capsule(out.value, name, c_function("destroy_capsule"))

        producer = Producer(deleter=Deleter(lambda address: print("let go")))
        try:
            print({dying}, 1 / 0)  # What is evaluated already dies with the frame.
        except ZeroDivisionError as error:
            print(error)
        """
    assert run_python(code) == (0, "let go\ndivision by zero\n", "")
