"""The end of the interpreter, in a fork of the process that runs the checks."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from ctypes import c_void_p
from dataclasses import dataclass
from pathlib import Path

from dlx_check.conformance import structs
from dlx_check.conformance.experiments import Lab, Untestable
from dlx_check.conformance.exporting import given
from dlx_check.conformance.probe import NEWEST
from dlx_check.conformance.records import Record
from dlx_check.conformance.structs import UNVERSIONED, USED, VERSIONED
from dlx_check.held import signal_name

__all__ = ["Finalize"]


@dataclass(frozen=True)
class Finalize:
    """The interpreter ends while an export lives."""

    then: str
    """"capsule" if nobody has consumed it, "deleter" if C code deletes it later."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        x = given(lab, "", "float32", (2, 3)).tensor
        lab.step("exports a tensor")
        answer = lab.ask(lambda: x.__dlpack__(max_version=NEWEST))
        if answer.error is not None:
            return Record(raised=answer.raised)
        capsule = answer.value
        name = structs.capsule_name(capsule) or ""
        if name not in (VERSIONED, UNVERSIONED):
            raise Untestable("needs:producer.capsule.name")
        address = structs.capsule_pointer(capsule, name)
        managed = structs.managed_at(address, name)
        if self.then == "deleter":
            structs.rename(capsule, USED + name)
            if not managed.deleter:
                raise Untestable("no-such-tensor")
        lab.step("is alive when the interpreter ends")
        child = os.fork()
        if not child:
            # The last that the interpreter clears.
            vars(sys)["dlx_check"] = [x, capsule]
            x = capsule = answer.value = None
            if self.then == "deleter":
                later = ctypes.CDLL(None)["__cxa_atexit"]
                later(c_void_p(managed.deleter), c_void_p(address), None)
            ctypes.pythonapi.Py_Exit(0)
        ended = _ended(
            child,
            lab.target.timeout * 0.8,
            lambda: lab.step("is alive while the interpreter ends"),
        )
        structs.rename(capsule, name)
        if ended is None:
            raise Untestable("not-observable: it cannot end in a fork")
        return Record(notes={"ended": ended, "name": name})


def _ended(child: int, limit: float, working: Callable[[], None]) -> str | None:
    """Return the signal or code with which a child ended, None if it does not end.

    That is for a child that has worked for `limit` seconds, or has waited for as long.
    One that waits for a processor has not: another program may have it. `working` is
    called while the child works.
    """
    heard, worked = time.monotonic(), 0.0
    while time.monotonic() - heard < limit and worked < limit:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            return f"code {code}" if code >= 0 else signal_name(-code)
        before, (waits, worked) = worked, _state(child)
        if worked > before or not waits:
            heard = time.monotonic()
            working()
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _state(process: int) -> tuple[bool, float]:
    """Return whether a process waits, for no processor or disk, and its seconds."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True, 0.0
    # The name of the program may have anything in it, spaces included.
    _, _, behind = stat.rpartition(")")
    state, *fields = behind.split()
    worked = sum(map(int, fields[10:12])) / os.sysconf("SC_CLK_TCK")
    return state not in ("R", "D"), worked
