"""Programs in a child process, which may hang in the driver or end it."""

from __future__ import annotations

import json
from typing import Any

from support.python_process import run_python

LIMIT_S = 12
"""Seconds for a program, once the machine and its library are there."""

PROGRAM = """
import faulthandler, json
from gpu import {program}
from gpu.clients import CLIENTS
from gpu.machine import machine

machine()
if {library!r} in CLIENTS:
    CLIENTS[{library!r}]()
faulthandler.dump_traceback_later({limit}, exit=True)
print(json.dumps({program}.{call}(*{arguments!r})), flush=True)
faulthandler.cancel_dump_traceback_later()
"""


def run_child(
    program: str, call: str, *arguments: Any, library: str = ""
) -> tuple[int, str, str]:
    """Call a function of a module of this folder in a child process.

    After the limit the process ends, and its errors say what each thread was doing.
    That needs no GIL, so a deadlock does not hold it up.
    """
    return run_python(
        PROGRAM.format(
            program=program,
            call=call,
            arguments=arguments,
            library=library,
            limit=LIMIT_S,
        )
    )


def ask_child(program: str, call: str, *arguments: Any, library: str = "") -> Any:
    """Return what the function returned, or fail."""
    code, out, errors = run_child(program, call, *arguments, library=library)
    assert code == 0, errors
    return json.loads(out.splitlines()[-1])
