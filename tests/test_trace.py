"""`dlx.trace`: who holds memory, and that it ends (docs/trace.md)."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import gc
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from dlx import _core
from support.concurrent_threads import in_thread
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
from support.python_process import run_python


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
        with pytest.raises(AttributeError):
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


def test_a_conversion_that_another_way_makes_is_not_an_error() -> None:
    """docs/trace.md: the way goes through a tensor, where one leads there."""

    class Once(Producer):
        """A producer whose first tensor nobody takes."""

        refused = False

        def __dlpack__(self, **keywords: Any) -> Any:
            """Refuse at first."""
            if not self.refused:
                self.refused = True
                raise BufferError("not yet")
            return super().__dlpack__(**keywords)

    with dlx.trace() as t:
        assert isinstance(dlx.convert(Once(), np.ndarray), np.ndarray)
        t.assert_released()


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


def test_a_leak_is_named_with_its_line() -> None:
    leaked = []
    with dlx.trace(frames=2) as t:
        leaked.append(dlx.from_dlpack(np.zeros(3)))
        line = sys._getframe().f_lineno - 1
    with pytest.raises(AssertionError, match=f"{Path(__file__).name}:{line} "):
        t.assert_released()
    [caller, _] = t.live[0].callers
    assert (caller.file, caller.line) == (__file__, line)
    leaked.clear()
    t.assert_released()


def test_what_only_a_cycle_holds_is_no_leak() -> None:
    class Node:
        pass

    with dlx.trace() as t:
        node: Any = Node()
        node.me, node.tensor = node, dlx.from_dlpack(np.zeros(3))
        del node
        t.assert_released()


def test_bytes_count_shared_memory_once() -> None:
    a = np.zeros(100, "u1")
    with dlx.trace() as t:
        x = dlx.from_dlpack(a)
        exports = [x.__dlpack__() for _ in range(3)]
        assert (t.nbytes, t.peak) == (100, 100)
        y = dlx.from_dlpack(np.zeros(50, "u1"))
        assert (t.nbytes, t.peak) == (150, 150)
        del y
        assert (t.nbytes, t.peak) == (100, 150)
        del x
        assert t.nbytes == 100
        exports.clear()
        assert (t.nbytes, t.peak) == (0, 150)


def test_what_is_held_is_summed_by_producer_consumer_and_line() -> None:
    with dlx.trace() as t:
        kept = [dlx.from_dlpack(np.zeros(3)) for _ in range(2)]
        kept.append(dlx.empty((3,), "float32"))
        assert t.by("producer") == {"numpy.ndarray": (2, 48), "dlx": (1, 12)}
        assert t.by("consumer") == {"dlx.Tensor": (3, 60)}
        assert [count for count, _ in t.by("line").values()] == [2, 1]
        with pytest.raises(ValueError, match="expected 'producer'"):
            t.by("weekday")  # type: ignore[arg-type]


def test_the_report_as_json_holds_what_is_listed() -> None:
    with dlx.trace() as t:
        x = dlx.from_dlpack(np.zeros(3))
        document = json.loads(t.to_json())
    assert document["imports"] == 1
    assert document["live"][0]["producer"] == "numpy.ndarray"
    assert document["live"][0]["callers"][0][0] == __file__
    del x


def test_traces_may_overlap() -> None:
    outer, inner = dlx.trace(), dlx.trace()
    with outer:
        x = dlx.from_dlpack(np.zeros(3))
        with inner:
            y = dlx.from_dlpack(np.zeros(3))
        z = dlx.from_dlpack(np.zeros(3))
        assert [len(outer.live), len(inner.live)] == [3, 1]
        assert dlx.live() == outer.live
        del x, y, z
    assert outer.live == inner.live == []


def test_a_trace_that_is_on_cannot_be_entered_again() -> None:
    with dlx.trace() as t, pytest.raises(RuntimeError, match="on already"):
        t.__enter__()


def test_live_without_a_trace_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="DLX_TRACE=1"):
        dlx.live()


def test_a_trace_without_frames_is_an_error() -> None:
    with pytest.raises(ValueError, match="frames is 0"):
        dlx.trace(frames=0)


def test_ends_on_other_threads_are_seen() -> None:
    with dlx.trace() as t:
        box = [dlx.from_dlpack(np.zeros(3))]
        in_thread(box.clear)
        assert t.live == []


def test_threads_that_import_at_once_are_all_seen() -> None:
    kept: list[dlx.Tensor] = []

    def work() -> None:
        for _ in range(200):
            kept.append(dlx.from_dlpack(np.zeros(3)))

    with dlx.trace() as t:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(t.live) == 800
        kept.clear()
        t.assert_released()


def test_a_part_shows_the_memory_of_its_import() -> None:
    """docs/trace.md: memory that several hold counts once."""
    with dlx.trace() as t:
        x = dlx.from_dlpack(np.zeros(100, "u1"))
        a = np.from_dlpack(x[10:])
        imported, exported = t.live
        assert exported.parent == imported.number
        assert (t.nbytes, t.peak) == (100, 100)
        del x
        assert t.nbytes == 100
        del a
        assert t.nbytes == 0


def test_an_export_that_is_a_copy_does_not_show_the_import() -> None:
    """docs/trace.md: memory that several hold counts once, a copy is other memory."""
    with dlx.trace() as t:
        x = dlx.from_dlpack(np.zeros(100, "u1"))
        copy = x.__dlpack__(copy=True)
        assert [held.parent for held in t.live] == [None, None]
        assert t.nbytes == 200
        del copy
        assert t.nbytes == 100
        del x


def test_a_thread_without_a_python_frame_is_traced() -> None:
    """docs/trace.md: the Python frames that led to it, if there are any."""
    producer = Producer()
    with dlx.trace() as t:
        _thread.start_new_thread(dlx.from_dlpack, (producer,))
        end = time.monotonic() + 30
        while not producer.deleted and time.monotonic() < end:
            time.sleep(0.001)
        assert t.imports == 1
        t.assert_released()


class Stop(BaseException):
    """What the handler of a signal raises."""


def stop(number: int, frame: object) -> None:
    """Raise, as a handler of signals may."""
    raise Stop(number)


def test_what_a_signal_raises_inside_the_hook_is_raised_by_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S27: a trace swallows no exception of the program."""
    from dlx._tracing import session

    def interrupted() -> None:
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with dlx.trace() as t:
            with monkeypatch.context() as patched:
                patched.setattr(session, "calling_library", interrupted)
                with pytest.raises(Stop) as caught:
                    list(map(dlx.from_dlpack, [np.zeros(3)]))
            assert caught.value.args == (signal.SIGUSR1,)
            x = dlx.from_dlpack(np.zeros(3))
            assert len(t.live) == 1
            del x
            t.assert_released()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_signals_at_any_moment_lose_no_end() -> None:
    """docs/trace.md: `t.live` lists what is held, no more."""
    a = np.zeros(3)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with dlx.trace(frames=1) as t:
            for delay in range(200):
                with contextlib.suppress(Stop):
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 + delay * 1e-6)
                    while True:
                        np.from_dlpack(dlx.from_dlpack(a))
            t.assert_released()
            assert (t.nbytes, t._sizes, t._imports) == (0, {}, {})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_finalizer_that_imports_inside_the_hook_is_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/trace.md: each import is noted, also one that a finalizer makes."""
    from dlx._tracing import session

    kept: list[dlx.Tensor | None] = []
    names = session._name

    def collected(class_: type) -> str:
        if not kept:
            kept.append(None)
            kept[0] = dlx.from_dlpack(np.zeros(3))
        return names(class_)

    with dlx.trace() as t:
        monkeypatch.setattr(session, "_name", collected)
        x = dlx.from_dlpack(np.zeros(3))
        assert len(t.live) == 2
        kept.clear()
        del x
        t.assert_released()


def test_a_recursion_that_leaves_no_room_for_the_hook_goes_on() -> None:
    """S27: the traced call has succeeded, although its hook has not."""
    code = """
import collections, sys, dlx, numpy as np
a, calls = np.zeros(3), 0
# A function of Python would have no room, either.
sys.unraisablehook = collections.deque(maxlen=0).append
sys.setrecursionlimit(150)
def down(depth):
    global calls
    x = dlx.from_dlpack(a)
    calls += 1
    return x if depth == 0 else down(depth - 1)
with dlx.trace() as t:
    for depth in range(60, 200):
        try:
            down(depth)
        except RecursionError:
            break
    t.assert_released()
sys.exit(t.imports >= calls)
"""
    assert run_python(code) == (0, "", "")


def test_copied_functions_of_a_table_note_nothing_after_the_trace() -> None:
    """docs/trace.md: consumers may copy the functions of a table (R114)."""
    x = dlx.from_dlpack(np.zeros(3))
    with dlx.trace():
        copied = ctypes.cast(
            table_of(dlx.Tensor).managed_tensor_from_py_object_no_sync, ctypes.c_void_p
        ).value
    export = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(
        copied or 0
    )
    out = ctypes.c_void_p()
    assert export(x, ctypes.addressof(out)) == 0
    delete(DLManagedTensorVersioned.from_address(out.value or 0))
    ends: list[tuple[int, int, int]] = []
    _core.trace_with(None, ends)
    assert ends == []


def test_the_tables_of_classes_refuse_in_a_trace_what_they_refuse_without() -> None:
    """R127: a table that gets another type raises."""
    with dlx.trace() as t:
        with pytest.raises(BufferError, match="table was given"):
            from_table(table_of(Mine), 3)
        assert t.live == []


def test_tables_are_as_they_were_after_the_trace() -> None:
    """R114: the functions of a table are exchanged, and put back."""

    def functions(owner: Any) -> list[int | None]:
        table = table_of(owner)
        return [
            ctypes.cast(getattr(table, name), ctypes.c_void_p).value
            for name, _ in type(table)._fields_
            if name != "header"
        ]

    before = functions(dlx.Tensor), functions(Mine)
    with dlx.trace(), dlx.trace():
        assert functions(dlx.Tensor) != before[0]
        assert functions(Mine) != before[1]
    assert (functions(dlx.Tensor), functions(Mine)) == before


def test_traces_may_end_in_another_order_than_they_began() -> None:
    """docs/trace.md: what began while a trace was on stays listed in it."""
    first, second = dlx.trace(), dlx.trace()
    first.__enter__()
    second.__enter__()
    x = dlx.from_dlpack(np.zeros(3))
    first.__exit__()
    y = dlx.from_dlpack(np.zeros(3))
    second.__exit__()
    z = dlx.from_dlpack(np.zeros(3))
    assert (len(first.live), len(second.live)) == (1, 2)
    del x, y, z
    assert first.live == second.live == []


def test_threads_may_enter_and_leave_traces_at_once() -> None:
    """docs/trace.md: traces are safe to use from several threads."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(100):
                with dlx.trace(frames=1) as t:
                    x = dlx.from_dlpack(np.zeros(3))
                    a = np.from_dlpack(x)
                    assert len([h for h in t.live if h.thread == me()]) == 2
                    del x, a
                assert not [h for h in t.live if h.thread == me()]
        except BaseException as error:
            failed.append(error)

    me = threading.get_ident
    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []
    with pytest.raises(RuntimeError):
        dlx.live()


def test_a_fork_while_another_thread_notes_leaves_the_child_free() -> None:
    """docs/trace.md: a child that was forked traces on."""
    code = """
import os, signal, sys, threading
import dlx, numpy as np
from dlx._tracing import session
with dlx.trace() as t:
    entered, leave = threading.Event(), threading.Event()
    def hold():
        with session._lock:
            entered.set()
            leave.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    threading.Timer(0.2, leave.set).start()
    if child := os.fork():
        status = os.waitpid(child, 0)[1]
        thread.join()
        sys.exit(status != 0)
    signal.alarm(20)
    x = dlx.from_dlpack(np.zeros(3))
    os._exit(len(t.live) != 1)
"""
    assert run_python(code)[0] == 0


def test_native_threads_and_the_end_of_the_process_may_delete_an_export() -> None:
    """R13: any thread may call the deleter, and so may code that runs at exit."""
    code = """
import ctypes, time, dlx, numpy as np
from support.dlpack_abi import take
libc = ctypes.CDLL(None)
def export():
    managed = take(x.__dlpack__(max_version=(1, 3)))
    deleter = ctypes.cast(managed.deleter, ctypes.c_void_p)
    return deleter, ctypes.c_void_p(ctypes.addressof(managed))
with dlx.trace() as t:
    x = dlx.from_dlpack(np.zeros(3))
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, *export()) == 0
    assert libc.pthread_join(thread, None) == 0
    assert [held.kind for held in t.live] == ["import"]
    assert libc.__cxa_atexit(*export(), None) == 0
    assert len(t.live) == 2
"""
    assert run_python(code) == (0, "", "")


def test_a_trace_that_is_on_at_exit_says_nothing() -> None:
    """docs/trace.md: a report at exit is only written for `DLX_TRACE`."""
    code = """
import atexit, dlx, numpy as np
def last():
    kept = dlx.from_dlpack(np.zeros(3)), dlx.convert(memoryview(bytes(8)), np)
    print(t.imports, len(t.live))
atexit.register(last)
t = dlx.trace()
t.__enter__()
x = dlx.from_dlpack(np.zeros(3))
"""
    assert run_python(code) == (0, "1 1\n", "")


def test_many_rounds_leave_nothing() -> None:
    a = np.zeros(3)
    with dlx.trace(frames=1) as t:
        for _ in range(5_000):
            np.from_dlpack(dlx.from_dlpack(a))
        gc.collect()
        assert t.live == []
        assert (t.imports, t.exports) == (5_000, 5_000)
        assert not t._imports
        assert not t._sizes


def test_a_consumer_that_writes_to_the_context_disturbs_nothing() -> None:
    x = dlx.from_dlpack(np.zeros(3))
    with dlx.trace() as t:
        capsule = x.__dlpack__(max_version=(1, 3))
        managed = take(capsule)
        managed.manager_ctx = None
        delete(managed)
        assert t.live == []


def test_an_export_that_outlives_its_trace_is_deleted_as_any() -> None:
    producer = Producer()
    with dlx.trace() as t:
        a = np.from_dlpack(dlx.from_dlpack(producer))
    assert len(t.live) == 2
    assert float(a[1, 2]) == 5
    del a
    assert t.live == []
    assert producer.deleted == 1


def test_consumers_are_named() -> None:
    x = dlx.empty((64,), "float32")  # aligned, so that JAX shares it
    with dlx.trace() as t:
        kept = [np.from_dlpack(x)]
        named = {"numpy/_core/_multiarray_umath"}
        for library, function, name in (
            ("torch", "from_dlpack", "torch.utils.dlpack"),
            ("tvm_ffi", "from_dlpack", "tvm_ffi/core"),
            ("jax.dlpack", "from_dlpack", "jax._src.dlpack"),
            ("array_api_strict", "from_dlpack", "numpy/_core/_multiarray_umath"),
        ):
            kept.append(getattr(requires(library), function)(x))
            named.add(name)
        assert set(t.by("consumer")) == named


def test_events_are_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with dlx.trace(events=str(path)) as t:
        np.from_dlpack(dlx.from_dlpack(np.zeros(3)))
        assert t.live == []
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(each["event"] for each in events) == [
        "end",
        "end",
        "export",
        "import",
    ]
    ends = {each["number"]: each["time"] for each in events if each["event"] == "end"}
    for each in events:
        if each["event"] != "end":
            assert ends[each["number"]] >= each["since"]


LEAK = """
import dlx, numpy as np
kept = dlx.from_dlpack(np.zeros(3))
"""


def test_the_variable_may_say_no() -> None:
    """docs/trace.md: `DLX_TRACE=0` traces nothing."""
    assert run_python(LEAK, DLX_TRACE="0") == (0, "", "")


@pytest.mark.parametrize("setting", ["1", "3"])
def test_the_variable_gives_a_report_at_exit(setting: str) -> None:
    code, out, errors = run_python(LEAK, DLX_TRACE=setting)
    assert (code, out) == (0, "")
    assert errors.startswith("dlx trace: 1 alive, 24 B (peak 24 B, 1 imports")
    assert "<string>:3 <module>" in errors


def test_the_variable_may_name_a_file_of_events(tmp_path: Path) -> None:
    code, _, errors = run_python(LEAK, DLX_TRACE=f"json:{tmp_path}/events")
    assert (code, "1 alive" in errors) == (0, True)
    [event] = (tmp_path / "events").read_text().splitlines()
    assert json.loads(event)["event"] == "import"


def test_a_variable_that_says_something_else_is_an_error() -> None:
    code, _, errors = run_python(LEAK, DLX_TRACE="yes")
    assert code == 1
    assert "expected 1, a number of frames, or json:FILE" in errors


def test_a_child_that_was_forked_reports_nothing() -> None:
    forking = LEAK + "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)"
    code, _, errors = run_python(forking, DLX_TRACE="1")
    assert code == 0
    assert errors.count("dlx trace") == 1


def test_import_of_dlx_without_the_variable_does_not_load_it() -> None:
    code = "import sys, dlx; sys.exit('dlx._tracing' in sys.modules)"
    assert run_python(code) == (0, "", "")
