"""`dlx.trace` beside threads, signals, forks, other traces and the end of Python."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import gc
import io
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from support.concurrent_threads import in_thread
from support.dlpack_abi import (
    DLManagedTensorVersioned,
    delete,
    from_table,
    table_of,
    take,
)
from support.dlx_producers import Stored
from support.fake_producers import Producer
from support.optional_libraries import requires
from support.python_process import run_python


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


def test_a_thread_without_a_python_frame_is_traced() -> None:
    """docs/inspect.md: the Python frames that led to it, if there are any."""
    producer = Producer()
    with dlx.trace() as t:
        _thread.start_new_thread(dlx.from_dlpack, (producer,))
        end = time.monotonic() + 30
        # The trace learns of the end after the producer does.
        while (not producer.deleted or t.live) and time.monotonic() < end:
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
    from dlx_check.tracing import session

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


def test_a_panic_inside_the_hook_gives_no_tensor_back_twice() -> None:
    """S27, R131: the table has taken the tensor, so its caller does not delete it."""
    code = """
import ctypes, sys, dlx
from dlx_check.tracing import session
from support.dlpack_abi import table_of, take, take_reference
from support.fake_producers import Producer
[panic] = (c for c in BaseException.__subclasses__() if "Panic" in c.__name__)
def panics():
    raise panic("in a test")
session.calling_library = panics
reports = []
sys.unraisablehook = lambda report: reports.append(str(report.exc_value))
producer, out = Producer(), ctypes.c_void_p()
managed = take(producer.__dlpack__(max_version=(1, 3)))
with dlx.trace() as t:
    make = table_of(dlx.Tensor).managed_tensor_to_py_object_no_sync
    assert make(ctypes.byref(managed), ctypes.byref(out)) == 0
    assert reports == ["dlx panicked: in a test"]
    take_reference(out)
    assert producer.deleted == 1
    assert t.live == []
"""
    status, _, errors = run_python(code)
    assert status == 0, errors


def test_signals_at_any_moment_lose_no_end() -> None:
    """docs/inspect.md: `t.live` lists what is held, no more."""
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
    """docs/inspect.md: each import is noted, also one that a finalizer makes."""
    from dlx_check.tracing import session

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


def functions(owner: Any) -> dict[str, int]:
    """Return the addresses of the functions of a table."""
    table = table_of(owner)
    return {
        name: ctypes.cast(getattr(table, name), ctypes.c_void_p).value or 0
        for name, _ in type(table)._fields_
        if name != "header"
    }


def test_copied_functions_of_a_table_are_traced_while_a_trace_is_on() -> None:
    """docs/inspect.md: consumers may copy the functions of a table (R114)."""
    x = dlx.from_dlpack(np.zeros(3))
    export = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(
        functions(dlx.Tensor)["managed_tensor_from_py_object_no_sync"]
    )
    out = ctypes.c_void_p()
    with dlx.trace() as t:
        assert export(x, ctypes.addressof(out)) == 0
        delete(DLManagedTensorVersioned.from_address(out.value or 0))
    assert export(x, ctypes.addressof(out)) == 0
    delete(DLManagedTensorVersioned.from_address(out.value or 0))
    assert t.exports == 1


def test_the_tables_of_classes_refuse_in_a_trace_what_they_refuse_without() -> None:
    """R127: a table that gets another type raises."""

    def refusal() -> str:
        with pytest.raises(BufferError) as caught:
            from_table(table_of(Stored), 3)
        return str(caught.value)

    without = refusal()
    with dlx.trace() as t:
        assert refusal() == without
        assert t.live == []


def test_a_trace_changes_no_table_and_no_function() -> None:
    """R114: consumers copy them, at any time."""
    names = "from_dlpack", "convert", "from_pointer", "empty"
    before = functions(dlx.Tensor), functions(Stored), [getattr(dlx, n) for n in names]
    with dlx.trace(), dlx.trace():
        assert before == (
            functions(dlx.Tensor),
            functions(Stored),
            [getattr(dlx, name) for name in names],
        )


def test_a_trace_that_an_interrupt_has_lost_is_off() -> None:
    """docs/inspect.md: a trace is on as long as somebody has it."""

    def traced() -> None:
        with dlx.trace(frames=1):
            dlx.from_dlpack(a)

    a = np.zeros(3)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for delay in range(600):
            with contextlib.suppress(Stop):
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + delay * 1e-6)
                while True:
                    traced()
            with pytest.raises(RuntimeError):
                dlx.live()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(sys.platform != "linux", reason="it has /dev/full")
def test_a_full_disk_ends_the_trace_and_nothing_else() -> None:
    """docs/inspect.md: imports go on, those of NumPy and of other threads, too."""
    x, made = dlx.from_dlpack(np.zeros(3)), list[Any]()
    with dlx.trace() as whole:
        t = dlx.trace(events="/dev/full").__enter__()
        made.append(dlx.from_dlpack(np.zeros(3)))
        in_thread(lambda: made.append(dlx.from_dlpack(np.zeros(3))))
        made.append(np.from_dlpack(x))
        with pytest.warns(RuntimeWarning, match="No space left"):
            t.__exit__()
    assert len(made) == 3
    assert isinstance(t.error, OSError)
    assert "No space left" in repr(t)
    with pytest.raises(AssertionError, match="No space left"):
        t.assert_released()
    assert (whole.error, whole.imports, whole.exports) == (None, 2, 1)


def test_a_signal_inside_of_a_write_is_raised_by_the_program(tmp_path: Path) -> None:
    """docs/inspect.md: what a handler raises is not the trace's, also an OSError."""

    class Written(io.FileIO):
        """A file on which a signal comes."""

        def write(self, line: Any) -> int:
            signal.raise_signal(signal.SIGUSR1)
            return super().write(line)

    def late(number: int, frame: object) -> None:
        raise TimeoutError(number)

    before = signal.signal(signal.SIGUSR1, late)
    try:
        with dlx.trace() as t:
            t._events = Written(tmp_path / "events", "a")
            with pytest.raises(TimeoutError):
                list(map(dlx.from_dlpack, [np.zeros(3)]))
            assert t.error is None
            t._close()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", [Stop, ArithmeticError])
def test_what_another_thread_sends_is_raised_where_it_was_sent(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    """docs/inspect.md: also inside of the hook."""
    from dlx_check.tracing import session

    def sent() -> None:
        thread = ctypes.c_ulong(threading.get_ident())
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(kind))

    def work() -> bool:
        try:
            dlx.from_dlpack(np.zeros(3))
            for _ in range(1000):
                pass
        except kind:
            return True
        return False

    with dlx.trace():
        monkeypatch.setattr(session, "calling_library", sent)
        assert in_thread(work)


def test_a_class_whose_class_answers_by_raising_is_traced() -> None:
    """docs/inspect.md: a trace runs no code of what it watches."""

    class Meta(type):
        """A class of classes whose module cannot be asked for."""

        @property
        def __module__(cls) -> str:  # type: ignore[override]
            """Raise."""
            raise RuntimeError("no module")

    class Odd(Producer, metaclass=Meta):
        """A producer of such a class."""

    with dlx.trace() as t:
        x = dlx.from_dlpack(Odd())
        assert t.live[0].producer.endswith("Odd")
        del x


def test_traces_may_end_in_another_order_than_they_began() -> None:
    """docs/inspect.md: what began while a trace was on stays listed in it."""
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
    """docs/inspect.md: traces are safe to use from several threads."""
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
    """docs/inspect.md: a child that was forked traces on."""
    code = """
import os, signal, sys, threading
import dlx, numpy as np
from dlx_check.tracing import session
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
    """docs/inspect.md: a report at exit is only written for `DLX_TRACE`."""
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


def test_a_trace_that_is_entered_again_notes_each_import_once() -> None:
    """docs/inspect.md: a trace may have several blocks."""
    t = dlx.trace()
    for count in (1, 2):
        with t:
            dlx.from_dlpack(np.zeros(3))
        assert t.imports == count


def test_torch_learns_in_a_trace_what_was_written() -> None:
    """R30, docs/inspect.md: also where the memory came in by an export of dlx's."""
    torch = requires("torch")

    @dlx.launcher(give="pointer", out="x")
    def kernel(x: Any) -> None:
        """Write, as far as dlx knows."""

    x = torch.ones(3)
    with dlx.trace():
        capsule = dlx.from_dlpack(x).__dlpack__(max_version=(1, 3))
        kernel(dlx.from_dlpack(capsule))
    assert x._version == 1
