"""The library in C: what its functions count, pass on and report.

It is judged here by ctypes alone, so that a build with sanitizers can run this file.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from ctypes import CFUNCTYPE, PYFUNCTYPE, c_uint64, c_void_p, py_object
from typing import Any

import pytest
from dlx_check import natives
from dlx_check.abi import (
    DLManagedTensor,
    DLManagedTensorVersioned,
    PyCapsule_GetPointer,
    c_api,
)

VERSIONED, UNVERSIONED, DESTROY = natives.functions()
DELETERS = {b"dltensor_versioned": VERSIONED, b"dltensor": UNVERSIONED}
NOWHERE = 0xDEAD_0000_0000_0000
ELEMENTS = b"elements" * 8

new_capsule = c_api("PyCapsule_New", py_object, c_void_p, ctypes.c_char_p, c_void_p)


class Probe:
    """A struct with a deleter of the library, and its counter before it."""

    def __init__(self, name: bytes = b"dltensor_versioned") -> None:
        """Lay out the counter, which has 64 bytes, and the struct."""
        self.name = name
        versioned = name.endswith(b"versioned")
        kind: Any = DLManagedTensorVersioned if versioned else DLManagedTensor
        self.buffer = ctypes.create_string_buffer(64 + ctypes.sizeof(kind))
        self.address = ctypes.addressof(self.buffer) + 64
        self.counter = (c_uint64 * 8).from_buffer(self.buffer)
        self.struct = kind.from_buffer(self.buffer, 64)
        self.struct.deleter = DELETERS[name]
        # Too many to lie in the object of ctypes, so that ASan sees their end.
        self.memory = ctypes.create_string_buffer(ELEMENTS, 64)
        self.struct.dl_tensor.data = ctypes.addressof(self.memory)
        self.counter[2:4] = ctypes.addressof(self.memory), 64

    @property
    def deleted(self) -> int:
        """How often its deleter was called."""
        return self.counter[0]

    @property
    def destroyed(self) -> int:
        """How many of its capsules nobody had consumed."""
        return self.counter[1]

    def delete(self) -> None:
        """Call the deleter that the struct has."""
        natives.call(self.struct.deleter, [self.address, 0, 0, 0])

    def capsule(self) -> object:
        """Make a capsule with the destructor of the library."""
        return new_capsule(self.address, self.name, DESTROY)


@pytest.mark.parametrize("name", DELETERS)
def test_the_first_deletion_overwrites_the_elements_and_the_pointers(
    name: bytes,
) -> None:
    probe = Probe(name)
    probe.delete()
    tensor = probe.struct.dl_tensor
    assert probe.memory.raw == b"\xcb" * 64
    assert tensor.data == NOWHERE
    assert ctypes.cast(tensor.shape, c_void_p).value == NOWHERE
    assert ctypes.cast(tensor.strides, c_void_p).value == NOWHERE
    assert probe.deleted == 1


def test_a_later_deletion_counts_and_overwrites_nothing() -> None:
    probe = Probe()
    probe.delete()
    probe.memory.raw = ELEMENTS
    probe.delete()
    assert (probe.deleted, probe.memory.raw) == (2, ELEMENTS)


def test_a_probe_without_memory_of_its_own_is_deleted_too() -> None:
    probe = Probe()
    probe.counter[2] = 0
    probe.delete()
    assert (probe.deleted, probe.memory.raw) == (1, ELEMENTS)


@pytest.mark.parametrize("name", DELETERS)
def test_a_capsule_that_nobody_consumed_deletes_its_tensor(name: bytes) -> None:
    """R3, R4."""
    probe = Probe(name)
    capsule = probe.capsule()
    assert PyCapsule_GetPointer(capsule, name) == probe.address
    del capsule
    assert (probe.destroyed, probe.deleted) == (1, 1)


def test_a_capsule_that_was_consumed_deletes_nothing() -> None:
    """R4."""
    probe = Probe()
    used = new_capsule(probe.address, b"used_dltensor_versioned", DESTROY)
    del used
    assert (probe.destroyed, probe.deleted) == (0, 0)


def test_a_capsule_of_a_struct_without_a_deleter_is_counted() -> None:
    probe = Probe()
    probe.struct.deleter = None
    probe.capsule()
    assert (probe.destroyed, probe.deleted) == (1, 0)


def test_a_deleter_does_not_see_the_exception_that_is_pending() -> None:
    """R5: one in Python would fail with it."""
    seen: list[int] = []

    @PYFUNCTYPE(None, c_void_p)
    def deleter(managed: int) -> None:
        seen.append(managed)

    probe = Probe()
    probe.struct.deleter = ctypes.cast(deleter, c_void_p).value
    left = natives.drop_pending([probe.capsule()])
    assert seen == [probe.address]
    assert repr(left) == "KeyError('pending')"


def test_an_exception_that_a_destructor_leaves_alone_is_pending_afterwards() -> None:
    """R5."""
    kept = ["first", object()]
    left = natives.drop_pending(kept)
    assert (type(left), left.args, kept) == (KeyError, ("pending",), ["first"])


def test_an_exception_that_a_destructor_clears_is_not_pending_afterwards() -> None:
    """R5."""
    clear = ctypes.cast(ctypes.pythonapi.PyErr_Clear, c_void_p).value
    assert natives.drop_pending([new_capsule(1, b"clears", clear)]) is None


def test_a_drop_from_an_empty_list_is_an_error() -> None:
    with pytest.raises(IndexError):
        natives.drop_pending([])


Asked = list[tuple[int, int, int, int, int]]


def answered(answer: Any) -> tuple[list[int], Asked]:
    """Give the functions of a table that gives an answer, and what it was asked."""
    asked: Asked = []

    def hook(*words: int) -> Any:
        asked.append(words)  # type: ignore[arg-type]
        if isinstance(answer, type):
            raise answer("raised")
        return answer

    return natives.table(hook), asked


LAST = 2**64 - 1


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (0, (1, 2, 3, LAST)),
        (1, (LAST, 2, 0, 0)),
        (2, (1, LAST, 0, 0)),
        (3, (1, LAST, 0, 0)),
        (4, (2, 1, LAST, 0)),
    ],
)
def test_the_hook_is_asked_by_the_place_of_a_function_and_its_words(
    place: int, words: tuple[int, ...]
) -> None:
    functions, asked = answered(7)
    assert natives.call(functions[place], words) == (7, None)
    assert asked == [(place, *words)]


def test_the_device_of_a_current_stream_is_signed() -> None:
    functions, asked = answered(0)
    natives.call(functions[4], [2, 2**32 - 1, 0, 0])
    assert asked == [(4, 2, LAST, 0, 0)]


def test_what_the_hook_raises_is_left_behind_a_failure() -> None:
    functions, _ = answered(BufferError)
    code, left = natives.call(functions[1], [0, 0, 0, 0])
    assert (code, type(left), left.args) == (-1, BufferError, ("raised",))


def test_an_exception_that_the_hook_returns_is_left_behind_a_success() -> None:
    """R123."""
    error = ValueError("left")
    functions, _ = answered(error)
    assert natives.call(functions[1], [0, 0, 0, 0]) == (0, error)


def test_a_hook_that_gives_no_code_fails() -> None:
    functions, _ = answered("text")
    code, left = natives.call(functions[1], [0, 0, 0, 0])
    assert (code, type(left)) == (-1, TypeError)


def test_the_last_hook_answers_for_the_tables_of_all() -> None:
    functions, asked_first = answered(1)
    _, asked = answered(2)
    assert natives.call(functions[1], [5, 0, 0, 0]) == (2, None)
    assert (asked_first, asked) == ([], [(1, 5, 0, 0, 0)])


def test_a_table_answers_a_thread_that_python_does_not_know() -> None:
    """R136: the allocator may be called without the GIL."""
    threads = []
    functions = natives.table(lambda *_: threads.append(threading.get_ident()) or 0)
    natives.delete_elsewhere(functions[0], 1)
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


LATE = """
import ctypes
from dlx_check import natives
functions = natives.table(lambda *_: 0)
at_exit = ctypes.CDLL(None)["__cxa_atexit"]
at_exit(ctypes.c_void_p(functions[0]), None, None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's __cxa_atexit")
def test_a_table_that_is_called_after_the_end_of_python_fails() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LATE], env=os.environ, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("address", [0, None])
def test_a_call_of_null_is_an_error(address: int | None) -> None:
    with pytest.raises(RuntimeError, match="NULL"):
        natives.call(address, [0, 0, 0, 0])
    with pytest.raises(RuntimeError, match="NULL"):
        natives.delete_elsewhere(address, 0)


def test_a_deleter_elsewhere_runs_on_another_thread_which_may_take_the_gil() -> None:
    """R13."""
    threads: list[tuple[int, int]] = []

    @CFUNCTYPE(None, c_void_p)
    def deleter(managed: int) -> None:
        threads.append((managed, threading.get_ident()))

    natives.delete_elsewhere(ctypes.cast(deleter, c_void_p).value, 5)
    assert [managed for managed, _ in threads] == [5]
    assert threads[0][1] != threading.get_ident()


def test_an_error_callback_counts_in_the_word_at_its_context() -> None:
    """R135."""
    count = c_uint64(0)
    for _ in range(3):
        natives.call(natives.error_counter(), [ctypes.addressof(count), 0, 0, 0])
    assert count.value == 3


def watch(probe: Probe) -> None:
    """Have its deleter counted."""
    natives.watch(probe.address, probe.address + type(probe.struct).deleter.offset)


@pytest.mark.parametrize("name", DELETERS)
def test_a_watched_deleter_counts_and_is_called(name: bytes) -> None:
    probe = Probe(name)
    watch(probe)
    assert probe.struct.deleter != DELETERS[name]
    assert natives.watched(probe.address) == 0
    probe.delete()
    probe.delete()
    assert (natives.watched(probe.address), probe.deleted) == (2, 2)


def test_a_struct_without_a_deleter_can_be_watched() -> None:
    probe = Probe()
    probe.struct.deleter = None
    watch(probe)
    probe.delete()
    assert (natives.watched(probe.address), probe.deleted) == (1, 0)


def test_a_struct_that_is_watched_again_starts_at_0() -> None:
    """Memory is reused; its new struct has a deleter of its own."""
    probe = Probe()
    watch(probe)
    probe.delete()
    probe.struct.deleter = VERSIONED
    watch(probe)
    assert natives.watched(probe.address) == 0
    probe.delete()
    assert (natives.watched(probe.address), probe.deleted) == (1, 2)


def test_a_struct_that_is_handed_out_again_calls_its_own_deleter_once() -> None:
    """A library may hand out one struct at each export, as it was left."""
    probe = Probe()
    watch(probe)
    watch(probe)
    probe.delete()
    assert (natives.watched(probe.address), probe.deleted) == (1, 1)


def test_a_copy_of_a_watched_struct_can_be_watched() -> None:
    probe, copy = Probe(), Probe()
    watch(probe)
    copy.struct.deleter = probe.struct.deleter
    watch(copy)
    copy.delete()
    assert (natives.watched(copy.address), natives.watched(probe.address)) == (1, 0)


def test_what_is_not_watched_was_never_deleted() -> None:
    assert natives.watched(1) == 0


def test_threads_may_watch_at_the_same_time() -> None:
    probes = [Probe() for _ in range(400)]

    def work(start: int) -> None:
        for probe in probes[start::4]:
            watch(probe)
            natives.delete_elsewhere(probe.struct.deleter, probe.address)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {natives.watched(probe.address) for probe in probes} == {1}
    assert {probe.deleted for probe in probes} == {1}
