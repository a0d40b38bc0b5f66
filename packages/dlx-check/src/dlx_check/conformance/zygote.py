"""The zygote: imports one target, and forks a child for each command.

It uses the standard library alone, and is run as a file: reproductions run in a process
that has never imported dlx. Where it knows how to import the target without dlx, it
forks itself once: one process then runs checks, the other programs, and the library is
imported once. A child writes what it does to a journal in shared memory, which outlives
every way in which a child can end, closed descriptors included.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

__all__ = ["JOURNAL", "Journal", "serve"]

JOURNAL = 1 << 24
"""Bytes of a journal."""

_CRASHES = (
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSEGV,
    signal.SIGTRAP,
)


class Journal:
    """Lines of JSON in shared memory: a length, then the text."""

    def __init__(self, path: str) -> None:
        """Map the file at `path`, which has the size of a journal."""
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), JOURNAL)
        self._read = 8

    def write(self, line: dict[str, Any]) -> None:
        """Add a line; the length changes last, so a reader sees whole lines."""
        text = json.dumps(line).encode() + b"\n"
        end = max(int.from_bytes(self._map[:8], "little"), 8)
        self._map[end : end + len(text)] = text
        self._map[:8] = (end + len(text)).to_bytes(8, "little")

    def lines(self) -> Iterator[dict[str, Any]]:
        """Give the lines that came since the last call."""
        end = int.from_bytes(self._map[:8], "little")
        if end > self._read:
            text = self._map[self._read : end]
            self._read = end
            for line in text.splitlines():
                yield json.loads(line)


Work: TypeAlias = Callable[[Any, Journal], None]
"""What a child does with a command."""


def _end_with_parent() -> None:
    """Have the kernel end this process when the one that started it has ended."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def serve(target: str, imports: str, checks: int, programs: int) -> None:
    """Import the target, and fork a child for each command that comes.

    `checks` and `programs` are the descriptors of two sockets, or -1. Commands of
    `checks` name checks of `target`, for which dlx is imported; those of `programs` are
    programs, and there `imports` are run and dlx cannot be imported.
    """
    _end_with_parent()
    process = os.getpid()
    twin, cannot = -1, ""
    if programs >= 0:
        sys.meta_path.insert(0, _Blocked)
        if checks < 0:
            # As `load` finds the target in the working directory.
            sys.path.insert(0, "")
        try:
            exec(imports, {})
        except BaseException as error:
            cannot = described(error)
        _end_other(process)
        twin = os.fork() if checks >= 0 else -1
    if twin == 0:
        _end_with_parent()
        process = os.getpid()
        os.close(programs)
        sys.meta_path.remove(_Blocked)
    if twin == 0 or programs < 0:
        answer: dict[str, Any] = {}
        try:
            work = _checks(target, answer)
        except BaseException as error:
            answer = {"cannot": described(error)}
            work = _program
        _end_other(process)
        _listen(checks, answer, work)
    else:
        if twin > 0:
            os.close(checks)
        _listen(programs, {"cannot": cannot} if cannot else {}, _program)
        if twin > 0:
            os.waitpid(twin, 0)
    os._exit(0)


def _end_other(process: int) -> None:
    """End the second process, if the target has forked while it was imported."""
    if os.getpid() != process:
        os._exit(0)


def _listen(descriptor: int, answer: dict[str, Any], work: Work) -> None:
    """Send the answer, and fork a child for each command."""
    wire = socket.socket(fileno=descriptor)
    gc.collect()
    gc.freeze()
    _send(wire, answer)
    if "cannot" in answer:
        return
    for line in wire.makefile("r"):
        command = json.loads(line)
        child = os.fork()
        if child == 0:
            wire.close()
            _child(command, work)
        _send(wire, {"pid": child})
        _, status = os.waitpid(child, 0)
        _send(wire, {"status": os.waitstatus_to_exitcode(status)})


def described(error: BaseException) -> str:
    """Return an exception in one line; one of dlx that says all is its message."""
    text = f"{error}" if type(error).__name__ == "CannotCheck" else ""
    whole = text or f"{type(error).__name__}: {error}"
    return whole.splitlines()[0].removesuffix(": ")


def _send(wire: socket.socket, line: dict[str, Any]) -> None:
    wire.sendall(json.dumps(line).encode() + b"\n")


def _checks(name: str, answer: dict[str, Any]) -> Work:
    from dlx_check.conformance.targets import load

    target = load(name)
    if path := os.environ.get("DLX_CHECK_DRIVER"):
        os.environ |= dict.fromkeys(target.driver.split(), path)
    exec(target.warm, target.names)
    answer["target"] = {
        name: getattr(target, name)
        for name in ("name", "version", "statements", "profiles", "timeout")
    }
    answer["spelled"] = target.spelled

    def work(ids: Any, journal: Journal) -> None:
        from dlx_check.conformance.experiments import Lab, Untestable
        from dlx_check.conformance.records import Record
        from dlx_check.conformance.suite import CHECKS

        checks = {check.id: check for check in CHECKS}
        if target.setup:
            exec(target.setup, target.names)
        for each in ids:
            journal.write({"start": each})
            lab = Lab(target, lambda text: journal.write({"step": text}))
            try:
                record = checks[each].experiment.run(lab)
            except Untestable as reason:
                record = Record(untestable=str(reason))
            except Exception:
                journal.write({"error": traceback.format_exc()})
                continue
            journal.write({"record": record.to_json()})

    return work


class _Blocked:
    """Makes dlx impossible to import."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        """Refuse dlx."""
        if name.partition(".")[0] in ("dlx", "dlx_check"):
            raise ImportError("dlx cannot be imported here")


def _program(program: Any, journal: Journal) -> None:
    try:
        exec(compile(program, "reproduction.py", "exec"), {"__name__": "__main__"})
    except BaseException as error:
        journal.write({"raised": described(error)})


def _child(command: dict[str, Any], work: Work) -> None:
    code = 70
    try:
        os.setsid()
        _end_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Some libraries print a trace, which takes seconds, or exit with a code.
        for each in _CRASHES:
            signal.signal(each, signal.SIG_DFL)
        with open(command["output"], "ab") as output, open(os.devnull, "rb") as null:
            os.dup2(null.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        journal = Journal(command["journal"])
        process = os.getpid()
        work(command["work"], journal)
        if os.getpid() == process:
            journal.write({"end": True})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
