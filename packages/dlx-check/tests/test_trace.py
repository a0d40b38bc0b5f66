"""`dlx.trace`: what it lists, and that it ends (docs/inspect.md)."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import (
    Allocation,
    DLManagedTensorVersioned,
    DLTensor,
    delete,
    from_table,
    table_of,
    take,
)
from support.fake_producers import OldProducer, Producer
from support.fake_table import table_class
from support.optional_libraries import requires


class Mine(dlx.ExchangeMixin, exchange="data"):
    """A mixin class around another tensor."""

    def __init__(self, data: Any) -> None:
        """Hold `data`."""
        self.data = data

    @classmethod
    def __dlx_import__(cls, tensor: dlx.Tensor) -> Mine:
        """Hold the tensor."""
        return cls(tensor)


def kinds(t: Any) -> list[tuple[str, str]]:
    """Return kind and way of what is held."""
    return [(each.kind, each.way) for each in t.live]


def test_an_import_is_listed_until_its_tensor_dies() -> None:
    a = np.zeros((3, 4), "f4")
    with dlx.trace() as t:
        x = dlx.from_dlpack(a)
        [held] = t.live
        assert (held.kind, held.producer, held.consumer) == (
            "import",
            "numpy.ndarray",
            "dlx.Tensor",
        )
        assert (held.shape, held.dtype, held.device) == ((3, 4), "float32", "cpu")
        assert (held.nbytes, held.address) == (48, a.ctypes.data)
        assert held.thread == threading.get_ident()
        del x
        assert t.live == []


@pytest.mark.parametrize(
    "source",
    [
        lambda: np.zeros(3),
        lambda: Producer(),
        lambda: OldProducer(),
        lambda: table_class()(),
        lambda: bytearray(8),
        lambda: Mine(np.zeros(3)),
        lambda: Producer().capsule(),
    ],
    ids=["numpy", "__dlpack__", "unversioned", "table", "buffer", "mixin", "capsule"],
)
def test_an_import_by_each_way_ends_once(source: Any) -> None:
    x = source()
    with dlx.trace() as t:
        held = [dlx.from_dlpack(x)]
        assert len(t.live) == 1
        other = dlx.from_dlpack(held[0])
        assert other is held[0]
        assert len(t.live) == 1
        held.clear()
        del other
        assert t.live == []
    assert t.imports == 1
    if isinstance(x, Producer):
        assert [each.deleted for each in x.exports] == [1]


def test_memory_that_a_consumer_holds_is_listed_although_the_tensor_is_gone() -> None:
    with dlx.trace() as t:
        a = np.from_dlpack(dlx.from_dlpack(np.zeros(3)))
        assert kinds(t) == [("import", "from_dlpack"), ("export", "__dlpack__")]
        imported, exported = t.live
        assert exported.parent == imported.number
        view = a[1:]
        del a
        assert len(t.live) == 2
        del view
        assert t.live == []


def test_a_view_through_a_buffer_keeps_its_import_listed() -> None:
    with dlx.trace() as t:
        view = memoryview(dlx.from_dlpack(np.zeros(3)))
        assert kinds(t) == [("import", "from_dlpack")]
        view.release()
        del view
        assert t.live == []


def test_memory_of_dlx_and_memory_at_a_pointer_are_listed() -> None:
    owner = np.zeros(3, "f4")
    before = sys.getrefcount(owner)
    with dlx.trace() as t:
        x = dlx.empty((2, 3), "float64")
        y = dlx.from_pointer(owner.ctypes.data, (3,), "float32", owner=owner)
        assert [each.way for each in t.live] == ["empty", "from_pointer"]
        assert t.nbytes == 48 + 12
        del x, y
        t.assert_released()
    assert sys.getrefcount(owner) == before


@pytest.mark.parametrize("max_version", [None, (1, 3)])
@pytest.mark.parametrize("exporter", [lambda x: x, Mine], ids=["Tensor", "mixin"])
def test_an_export_is_listed_until_its_deleter_is_called(
    max_version: Any, exporter: Any
) -> None:
    x = exporter(dlx.from_dlpack(np.zeros(3)))
    with dlx.trace() as t:
        capsule = x.__dlpack__(max_version=max_version)
        [held] = t.live
        assert (held.kind, held.consumer) == ("export", "the program")
        managed = take(capsule)
        del capsule
        assert len(t.live) == 1
        delete(managed)
        assert t.live == []


def test_a_capsule_that_is_dropped_ends_its_export() -> None:
    x = dlx.from_dlpack(np.zeros(3))
    with dlx.trace() as t:
        x.__dlpack__()
        assert t.live == []
        assert t.exports == 1


def test_exports_and_imports_by_tables_are_listed() -> None:
    x = dlx.from_dlpack(np.zeros(3))
    for source in (x, Mine(x)):
        with dlx.trace() as t:
            managed = from_table(table_of(type(source)), source)
            [held] = t.live
            assert (held.kind, held.way, held.shape) == ("export", "table", (3,))
            delete(managed)
            assert t.live == []


def test_a_class_that_is_defined_in_a_trace_is_traced() -> None:
    with dlx.trace() as t:

        class Late(Mine, exchange="data"):
            pass

        x = Late(np.zeros(3))
        managed = from_table(table_of(Late), x)
        assert [each.producer.rpartition(".")[2] for each in t.live] == ["Late"]
        delete(managed)
        Allocation(Late, (2,)).delete()
    managed = from_table(table_of(Late), x)
    assert t.live == []
    delete(managed)


def test_what_c_code_makes_by_the_table_is_listed() -> None:
    tvm_ffi = requires("tvm_ffi")
    with dlx.trace() as t:
        echo = tvm_ffi.get_global_func("testing.echo")
        made = echo(dlx.from_dlpack(np.zeros(3)))
        assert isinstance(made, dlx.Tensor)
        assert ("import", "table") in kinds(t)
        del made
        t.assert_released()


def test_what_the_allocator_gives_is_listed() -> None:
    with dlx.trace() as t:
        Allocation(dlx.Tensor, (2, 3)).delete()
        assert t.exports == 0, "a thread without the GIL cannot be asked who it is"
        allocate = ctypes.cast(
            table_of(dlx.Tensor).managed_tensor_allocator, ctypes.c_void_p
        ).value
        attached = ctypes.PYFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(
            allocate or 0
        )
        prototype = DLTensor(device=(1, 0), dtype=(2, 32, 1))
        out = ctypes.c_void_p()
        assert attached(ctypes.addressof(prototype), ctypes.addressof(out), 0, 0) == 0
        assert kinds(t) == [("export", "allocator")]
        delete(DLManagedTensorVersioned.from_address(out.value or 0))
        assert t.live == []


@pytest.mark.parametrize(
    ("library", "target", "name"),
    [
        ("torch", lambda torch: torch, "torch.Tensor"),
        ("torch", lambda torch: torch.Tensor, "torch.Tensor"),
        ("torch", lambda torch: torch.ones(3), "torch.Tensor"),
        ("numpy", lambda numpy: numpy, "numpy.ndarray"),
        ("numpy", lambda _: "numpy", "numpy.ndarray"),
    ],
    ids=["torch", "torch.Tensor", "a tensor", "numpy", "'numpy'"],
)
def test_a_conversion_is_listed_until_the_last_view_of_its_result_dies(
    library: str, target: Any, name: str
) -> None:
    module = target(requires(library))
    a = Producer(shape=(4,))
    with dlx.trace() as t:
        b = dlx.convert(a, module)
        [held] = t.live
        assert (held.way, held.consumer) == ("convert", name)
        view = b[1:]
        del b
        assert len(t.live) == 1
        del view
        assert t.live == []
    assert a.deleted == 1


def test_a_conversion_gives_in_a_trace_what_it_gives_without() -> None:
    torch = requires("torch")
    a = np.arange(6.0).reshape(2, 3).T
    protected = np.frombuffer(bytes(8), "f8")
    with dlx.trace():
        assert dlx.convert(a, np.ndarray) is a
        assert dlx.convert(x := torch.ones(3), torch) is x
        shared = dlx.convert(a, torch.Tensor)
        assert (shared.data_ptr(), shared.stride()) == (a.ctypes.data, (1, 3))
        copy = dlx.convert(a, torch.Tensor, copy=True)
        assert copy.data_ptr() != a.ctypes.data
        assert dlx.convert(protected, torch).data_ptr() != protected.ctypes.data
        with pytest.raises(dlx.CopyRefused):
            dlx.convert(protected, torch, copy=False)
        with pytest.raises(TypeError, match="to"):
            dlx.convert(a)  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            dlx.convert(object(), torch)


class Labelled(Mine):
    """A mixin class whose instances make others like themselves."""

    label = "none"

    def __dlx_like__(self, tensor: dlx.Tensor) -> Labelled:
        """Hold the tensor under the same label."""
        made = Labelled(tensor)
        made.label = self.label
        return made


def test_a_copied_instance_keeps_in_a_trace_what_it_says_of_itself() -> None:
    """docs/convert.md: an instance that is copied makes the result."""
    x = Labelled(np.zeros(3))
    x.label = "weights"
    with dlx.trace():
        assert dlx.convert(x, Labelled, copy=True).label == "weights"
        assert dlx.convert(np.zeros(3), x).label == "weights"


@pytest.mark.parametrize("library", ["numpy", "torch", "dlx"])
def test_a_conversion_asks_in_a_trace_what_it_asks_without(library: str) -> None:
    """docs/inspect.md: a trace changes nothing that it watches, nor a refusal."""
    target = requires(library) if library != "dlx" else dlx.Tensor

    class Counted(Producer):
        """A producer that takes down what it is asked, and refuses at first."""

        refusals = 0

        def __dlpack__(self, **keywords: Any) -> Any:
            """Refuse at first."""
            made = super().__dlpack__(**keywords)
            if not self.refusals:
                self.refusals += 1
                raise BufferError("not yet")
            return made

    def calls() -> list[Any]:
        producer = Counted()
        with contextlib.suppress(BufferError):
            dlx.convert(producer, target)
            producer.calls.append(("made", {}))
        dlx.convert(producer, target)
        return producer.calls

    without = calls()
    with dlx.trace() as t:
        assert calls() == without
        t.assert_released()


KNOWN = dlx.from_dlpack(np.zeros(3))
WAYS: dict[str, tuple[Any, str]] = {
    "from_dlpack": (lambda a: dlx.from_dlpack(a), "import"),
    "from_dlpack, copy=False": (lambda a: dlx.from_dlpack(a, copy=False), "import"),
    "from_dlpack, copy=True": (lambda a: dlx.from_dlpack(a, copy=True), "import"),
    "from_dlpack, device": (lambda a: dlx.from_dlpack(a, device="cpu"), "import"),
    "from_dlpack, both": (
        lambda a: dlx.from_dlpack(a, device="cpu", copy=False),
        "import",
    ),
    "from_dlpack, release": (lambda a: dlx.from_dlpack(a, release="none"), "import"),
    "from_dlpack of a producer": (lambda _: dlx.from_dlpack(Producer()), "import"),
    "from_dlpack of a producer, device": (
        lambda _: dlx.from_dlpack(Producer(), device="cpu"),
        "import",
    ),
    "from_pointer": (
        lambda a: dlx.from_pointer(a.ctypes.data, (3,), "float64", owner=a),
        "import",
    ),
    "empty": (lambda _: dlx.empty((3,), "int8"), "import"),
    "empty, like": (lambda _: dlx.empty((3,), "int8", like=dlx.Tensor), "import"),
    "empty, device": (lambda _: dlx.empty((3,), "int8", device="cpu"), "import"),
    "convert": (lambda a: dlx.convert(Producer(), np.ndarray), "import"),
    "convert, copy=True": (lambda a: dlx.convert(a, np.ndarray, copy=True), "import"),
    "convert, device": (
        lambda a: dlx.convert(Producer(), np.ndarray, device="cpu"),
        "import",
    ),
    "convert, to dlx": (lambda a: dlx.convert(a, dlx.Tensor), "import"),
    "convert, to a class": (lambda a: dlx.convert(a, Mine), "import"),
    "__dlpack__": (lambda _: KNOWN.__dlpack__(), "export"),
    "__dlpack__, max_version": (
        lambda _: KNOWN.__dlpack__(max_version=(1, 3)),
        "export",
    ),
    "__dlpack__, copy=False": (
        lambda _: KNOWN.__dlpack__(max_version=(1, 3), copy=False),
        "export",
    ),
    "__dlpack__, stream": (lambda _: KNOWN.__dlpack__(stream=None), "export"),
    "__dlpack__ of a mixin": (lambda _: Mine(KNOWN).__dlpack__(), "export"),
    "__dlpack__ of a mixin, copy": (
        lambda _: Mine(KNOWN).__dlpack__(max_version=(1, 3), copy=True),
        "export",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_is_noted_once_with_every_keyword(way: str) -> None:
    """docs/inspect.md: one entry may pass a call on to another."""
    call, kind = WAYS[way]
    a = np.zeros(3)
    with dlx.trace() as t:
        made = call(a)
        assert [held.kind for held in t.live] == [kind]
        assert (t.imports, t.exports) == (kind == "import", kind == "export")
        del made
        assert t.live == []


def test_errors_are_those_of_untraced_calls() -> None:
    def messages() -> list[str]:
        found = []
        for call in (
            lambda: dlx.from_dlpack(3),
            lambda: dlx.from_dlpack(),  # type: ignore[call-arg]
            lambda: dlx.empty((-1,), "float32"),
            lambda: dlx.from_pointer(0, (3,), "float32"),
            lambda: dlx.convert(3, np.ndarray),
            lambda: dlx.from_dlpack(np.zeros(3)).__dlpack__(stream="no"),
        ):
            with pytest.raises((TypeError, AttributeError, ValueError)) as caught:
                call()
            found.append(f"{caught.type.__name__}: {caught.value}")
        return found

    plain = messages()
    with dlx.trace() as t:
        assert messages() == plain
        assert t.live == []


def test_call_sites_that_are_specialized_see_the_trace_and_its_end() -> None:
    """CPython reads the function of a definition at each call."""
    a = np.zeros(3)
    bound = dlx.from_dlpack

    def call(times: int) -> list[dlx.Tensor]:
        return [bound(a) for _ in range(times)]

    call(10_000)
    t = dlx.trace()
    with t:
        kept = call(4)
        assert len(t.live) == 4
    kept += call(4)
    assert t.imports == 4
    del kept
    assert t.live == []
