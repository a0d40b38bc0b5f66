"""`dlx.inspect`: fields, protocols and streams as they are, and nothing is taken."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from ctypes import c_void_p
from dataclasses import FrozenInstanceError

import dlx
import numpy as np
import pytest
from dlx_check import abi as _structs
from hypothesis import given
from hypothesis import strategies as st
from support import dlpack_abi
from support.dlpack_abi import (
    capsule_name,
)
from support.fake_producers import (
    Claiming,
    OldProducer,
    Producer,
    Refusing,
)
from support.fake_table import table_class
from support.inspections import note, tensor_of
from support.optional_libraries import requires
from support.python_process import run_python

CUDA = (2, 0)


@given(
    byte_offset=st.integers(0, 2**64 - 1),
    shape=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=64),
    dtype=st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 65535)),
    device=st.tuples(
        st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1)
    ),
    flags=st.integers(0, 2**64 - 1),
    data=st.integers(0, 2**64 - 1),
)
def test_every_field_is_shown_as_it_was_written(
    byte_offset: int,
    shape: list[int],
    dtype: tuple[int, int, int],
    device: tuple[int, int],
    flags: int,
    data: int,
) -> None:
    x = Producer(
        data=data,
        byte_offset=byte_offset,
        shape=shape,
        strides=shape[::-1],
        dtype=dtype,
        device=device,
        flags=flags,
    )
    found = dlx.inspect(x)
    tensor, managed = found.tensor, found.managed
    assert tensor is not None
    assert managed is not None
    assert (tensor.data, tensor.byte_offset) == (data, byte_offset)
    assert (tensor.ndim, tensor.shape) == (len(shape), tuple(shape))
    assert tensor.strides == tuple(shape[::-1])
    assert (tensor.dtype, tensor.device) == (dtype, device)
    assert (managed.flags, managed.version) == (flags, (1, 3))
    assert repr(found)
    assert json.loads(json.dumps(found.to_dict()))["tensor"]["data"] == data


def test_an_array_of_numpy_is_described_as_numpy_describes_it() -> None:
    a = np.arange(12.0).reshape(3, 4)[::-1, ::2]
    tensor = tensor_of(a)
    assert tensor.data + tensor.byte_offset == a.ctypes.data
    assert (tensor.shape, tensor.strides) == ((3, 2), (-4, 2))
    assert "float64, cpu" in repr(dlx.inspect(a))


def test_flags_have_names() -> None:
    shown = repr(dlx.inspect(Producer(flags=0b1011)))
    assert "READ_ONLY | IS_COPIED | 0x8" in shown


def test_an_unversioned_struct_has_no_version_and_no_flags() -> None:
    managed = dlx.inspect(OldProducer()).managed
    assert managed is not None
    assert (managed.version, managed.flags) == (None, None)


def test_a_result_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        dlx.inspect(np.zeros(3)).subject = ""  # type: ignore[misc]


@pytest.mark.parametrize(
    "name",
    [
        "DLPackVersion",
        "DLDevice",
        "DLDataType",
        "DLTensor",
        "DLManagedTensor",
        "DLManagedTensorVersioned",
        "DLPackExchangeAPIHeader",
        "DLPackExchangeAPI",
    ],
)
def test_the_structures_are_those_of_the_header(name: str) -> None:
    """`tests/exchange/test_abi.py` compares the others with `dlpack.h`."""
    mine, theirs = getattr(_structs, name), getattr(dlpack_abi, name)
    assert ctypes.sizeof(mine) == ctypes.sizeof(theirs)
    fields = [field for field, *_ in mine._fields_]
    assert fields == [field for field, *_ in theirs._fields_]
    for field in fields:
        assert getattr(mine, field).offset == getattr(theirs, field).offset


def test_references_are_as_before() -> None:
    x = np.zeros(3)
    before = sys.getrefcount(x)
    gc.disable()
    try:
        for _ in range(3):
            dlx.inspect(x)
        assert sys.getrefcount(x) == before
    finally:
        gc.enable()


@pytest.mark.parametrize("attribute", ["__dlpack__", "__dlpack_c_exchange_api__"])
def test_each_export_is_deleted_once(attribute: str) -> None:
    x = Producer() if attribute == "__dlpack__" else table_class()()
    dlx.inspect(x)
    assert x.exports
    assert [each.deleted for each in x.exports] == [1] * len(x.exports)


@pytest.mark.parametrize("versioned", [False, True])
def test_a_capsule_keeps_its_name_and_its_tensor(versioned: bool) -> None:
    producer = Producer()
    capsule = producer.capsule(versioned=versioned)
    name = capsule_name(capsule)
    found = dlx.inspect(capsule)
    assert capsule_name(capsule) == name
    assert producer.deleted == 0
    assert found.tensor is not None
    assert found.tensor.shape == (2, 3)
    assert dlx.from_dlpack(capsule).shape == (2, 3)


def test_a_refusal_keeps_nothing_alive() -> None:
    x = Refusing()
    x.error = ValueError("no")
    before = sys.getrefcount(x)
    dlx.inspect(x)
    # The exception that the test keeps holds the frame in which it was raised.
    x.error.__traceback__ = None
    assert sys.getrefcount(x) == before


@pytest.mark.parametrize(
    "library", ["torch", "jax.numpy", "tvm_ffi", "cuda.core.utils", "pyarrow"]
)
def test_references_of_a_librarys_tensor_are_as_before(library: str) -> None:
    module = requires(library)
    a = np.zeros(64, "f4")
    x = {
        "torch": lambda: module.ones(3),
        "jax.numpy": lambda: module.ones(3),
        "tvm_ffi": lambda: module.from_dlpack(a),
        "cuda.core.utils": lambda: module.StridedMemoryView.from_dlpack(
            a, stream_ptr=-1
        ),
        "pyarrow": lambda: module.array([1.0, 2.0]),
    }[library]()
    dlx.inspect(x)
    before, memory = sys.getrefcount(x), sys.getrefcount(a)
    found = dlx.inspect(x)
    assert found.tensor is not None
    assert (sys.getrefcount(x), sys.getrefcount(a)) == (before, memory)


def test_no_stream_waits() -> None:
    """R76."""
    x = Producer(device=CUDA)
    dlx.inspect(x)
    assert x.asked == {"max_version": (1, 3), "stream": -1}


def test_a_producer_on_the_cpu_gets_no_stream() -> None:
    """R71."""
    x = Producer()
    dlx.inspect(x)
    assert x.asked == {"max_version": (1, 3)}


def test_without_exports_no_code_of_the_library_runs() -> None:
    class Loud:
        ran: list[str] = []  # noqa: RUF012

        def __getattribute__(self, name: str) -> object:
            Loud.ran.append(name)
            return super().__getattribute__(name)

        def __dlpack__(self) -> None: ...

        @property
        def __cuda_array_interface__(self) -> None: ...

    found = dlx.inspect(Loud(), exports=False)
    assert Loud.ran == []
    assert [each.name for each in found.protocols] == [
        "__dlpack__",
        "__cuda_array_interface__",
    ]


def test_import_of_dlx_does_not_load_it() -> None:
    code = "import sys, dlx; sys.exit('dlx_check.inspection' in sys.modules)"
    assert run_python(code) == (0, "", "")


def test_what_dlpack_raises_is_said() -> None:
    x = Refusing()
    x.error = BufferError("not today\nnor tomorrow")
    assert note(x, "__dlpack__") == "raises BufferError: not today"


def test_a_device_that_is_no_pair_of_integers_is_shown() -> None:
    x = Claiming()
    x.claim = ("gpu", None)
    assert note(x, "__dlpack_device__") == "gives ('gpu', None)"


def test_what_is_no_capsule_is_shown() -> None:
    class Wrong:
        def __dlpack__(self, **keywords: object) -> int:
            return 7

    assert note(Wrong(), "__dlpack__") == "gives 7"


def test_a_producer_that_knows_no_max_version_is_asked_again() -> None:
    """R32."""
    x = OldProducer()
    found = dlx.inspect(x)
    assert found.capsule is not None
    assert found.capsule.name == "dltensor"


def test_methods_that_another_object_answers_are_found() -> None:
    class Proxy:
        def __init__(self, inner: object) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    assert tensor_of(Proxy(Producer())).shape == (2, 3)


@pytest.mark.parametrize("x", [3, None, "text", object()])
def test_an_object_without_a_protocol_has_none(x: object) -> None:
    found = dlx.inspect(x)
    assert found.protocols == ()
    assert "protocols  none" in repr(found)


def test_bytes_have_a_buffer() -> None:
    assert [each.name for each in dlx.inspect(b"abc").protocols] == ["buffer"]


def test_a_table_names_the_stream_of_its_library() -> None:
    def working_on(device_type: int, device_id: int, out: int) -> int:
        assert (device_type, device_id) == CUDA
        c_void_p.from_address(out).value = 0x77
        return 0

    found = dlx.inspect(table_class(current_work_stream=working_on)(device=CUDA))
    assert found.stream is not None
    assert found.stream.handle == 0x77
    assert found.stream.source == "current_work_stream"


def test_an_array_interface_names_a_stream() -> None:
    class Array(Producer):
        __cuda_array_interface__ = {"stream": 9}  # noqa: RUF012

    found = dlx.inspect(Array(device=CUDA)).stream
    assert found is not None
    assert (found.source, found.handle) == ("__cuda_array_interface__", 9)


def test_a_stream_shows_its_handle() -> None:
    """R154."""

    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 0x1234)

    assert "0x1234, from __cuda_stream__" in repr(dlx.inspect(Stream()))


def test_a_stream_of_another_version_is_shown_as_it_is() -> None:
    """R154."""

    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (1, 5)

    found = dlx.inspect(Stream()).stream
    assert found is not None
    assert (found.handle, found.note) == (None, "gives (1, 5)")


def test_the_cpu_has_none() -> None:
    assert "stream     none on the CPU" in repr(dlx.inspect(np.zeros(3)))


def test_an_object_that_has_every_attribute_is_asked_for_its_device() -> None:
    """R64: a truthy answer does not make it a view of torch that must not be."""

    class Claims(Producer):
        """Has whatever it is asked for, and that is true."""

        def __getattr__(self, name: str) -> object:
            """Return a function that returns something true."""
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda: [name]

    x = Claims(shape=(2,), device=(1, 0))
    assert note(x, "__dlpack_device__") is None
