"""The zygote: imports one target, and forks a child for each command.

It uses the standard library alone, and is run as a file: reproductions run in a process
that has never imported dlx. Where it knows how to import the target without dlx, it
forks itself once: one process then runs checks, the other programs, and the library is
imported once. A child writes what it does to a journal in shared memory, which outlives
every way in which a child can end. It has no descriptor of the suite's while a check
runs: a target that writes to all that are open, or closes them, changes nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import mmap
import os
import pathlib
import resource
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

__all__ = ["JOURNAL", "Journal", "children", "serve"]

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


_end = os._exit
"""As it was before a target could replace it: no child may come back to the loop."""

_TRACEBACK = 4000
"""Characters of a traceback that are kept."""

described: Callable[[BaseException], str]
# By its path: no part of dlx may be imported where reproductions run.
described = runpy.run_path(str(pathlib.Path(__file__).parents[1] / "errors.py"))[
    "described"
]


class Journal:
    """Lines of JSON in shared memory: a length, then the text."""

    def __init__(self, memory: Any) -> None:
        """Take memory of the size of a journal: a `mmap`, or an array of ctypes."""
        self._map = memoryview(memory).cast("B")
        self._read = 8

    def write(self, line: dict[str, Any]) -> None:
        """Add a line; the length changes last, so a reader sees whole lines."""
        text = json.dumps(line).encode() + b"\n"
        end = max(int.from_bytes(self._map[:8], "little"), 8)
        self._map[end : end + len(text)] = text
        self._map[:8] = (end + len(text)).to_bytes(8, "little")

    def lines(self) -> Iterator[dict[str, Any]]:
        """Give the lines that came since the last call.

        Raises `ValueError` if something else than a journal is there.
        """
        end = int.from_bytes(self._map[:8], "little")
        if end > self._read:
            text = bytes(self._map[self._read : end])
            self._read = end
            for line in text.splitlines():
                found = json.loads(line)
                if not isinstance(found, dict):
                    raise ValueError("a line is no object")
                yield found


def _mapped(descriptor: int) -> Any:
    """Map the file of a journal, for good, and close it.

    Python's `mmap` would keep a descriptor of its own, to which a target could write.
    """
    c = ctypes.CDLL(None, use_errno=True)
    words = (ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_ssize_t)
    c.mmap.argtypes = (ctypes.c_void_p, *words)
    c.mmap.restype = ctypes.c_void_p
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address = c.mmap(None, JOURNAL, access, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "the journal cannot be mapped")
    os.close(descriptor)
    return (ctypes.c_ubyte * JOURNAL).from_address(address)


Work: TypeAlias = Callable[[Any, Journal], None]
"""What a child does with a command."""


def _end_with_parent() -> None:
    """Have the kernel end this process when the one that started it has ended."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _adopt() -> None:
    """Have the kernel give this process the orphans of its descendants."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(process: int) -> set[int]:
    """Return the children of a process; none where the system does not tell."""
    found: set[int] = set()
    for each in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found |= {*map(int, each.read_text().split())}
    return found


def _end_strays(borne: set[int]) -> None:
    """End what has left the group of a child, which made it an orphan, and so ours."""
    while strays := children(os.getpid()) - borne:
        for each in strays:
            os.kill(each, signal.SIGKILL)
            os.waitpid(each, 0)


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
    # A target may have had the kernel drop the status of children.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _adopt()
    gc.collect()
    gc.freeze()
    _send(wire, answer)
    if "cannot" in answer:
        return
    while (command := _command(wire)) is not None:
        what, (journal, output) = command
        borne = children(os.getpid())
        child = os.fork()
        if child == 0:
            wire.close()
            _child(what, journal, output, work)
        os.close(journal)
        os.close(output)
        _send(wire, {"pid": child})
        _, status = os.waitpid(child, 0)
        _end_strays(borne)
        _send(wire, {"status": os.waitstatus_to_exitcode(status)})


def _command(wire: socket.socket) -> tuple[Any, list[int]] | None:
    """Return what is to be done, and the journal and the output; None at the end."""
    start, descriptors, _, _ = socket.recv_fds(wire, 1, 2)
    line = b""
    while start and not line.endswith(b"\n"):
        if not (more := wire.recv(65536)):
            return None
        line += more
    return (json.loads(line), descriptors) if start else None


def _send(wire: socket.socket, line: dict[str, Any]) -> None:
    wire.sendall(json.dumps(line).encode() + b"\n")


def _checks(
    name: str,
    answer: dict[str, Any],
    passed: tuple[type[BaseException], ...] = (),
) -> Work:
    """Import a target; `passed` is raised by the work, not taken for its answer."""
    from dlx_check.conformance.targets import load
    from dlx_check.conformance.trying import misspelled, useless

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
        """Run checks; without any, try the functions that the target describes."""
        from dlx_check.conformance.experiments import Lab, Untestable
        from dlx_check.conformance.records import Record
        from dlx_check.conformance.suite import CHECKS

        checks = {check.id: check for check in CHECKS}
        if target.setup:
            exec(target.setup, target.names)
        if not ids:
            fault = misspelled(target) or (useless(target) if ":" in name else "")
            journal.write({"misspelled": fault})
        for each in ids:
            journal.write({"start": each})
            lab = Lab(target, lambda text: journal.write({"step": text}), passed)
            try:
                record = checks[each].experiment.run(lab)
            except Untestable as reason:
                record = Record(untestable=str(reason))
            except Exception:
                journal.write({"error": traceback.format_exc()[-_TRACEBACK:]})
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


def _child(what: Any, journal: int, output: int, work: Work) -> None:
    code = 70
    try:
        os.setsid()
        _end_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Some libraries print a trace, which takes seconds, or exit with a code.
        for each in _CRASHES:
            signal.signal(each, signal.SIG_DFL)
        with open(os.devnull, "rb") as null:
            os.dup2(null.fileno(), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        lines = Journal(_mapped(journal))
        process = os.getpid()
        work(what, lines)
        if os.getpid() == process:
            lines.write({"end": True})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _end(code)
