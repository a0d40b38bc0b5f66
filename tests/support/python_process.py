"""Runs code in a separate Python process, for code that ends or changes its process."""

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

LONGEST = 600
"""Seconds after which a process is ended."""

# It forks for each program that it reads. The child goes on with that program, which
# has the names of what was run before, and ends as any Python does.
FORKS = """
def _next_program():
    import gc, json, os, signal, sys, tempfile, warnings
    # No collection in a fork looks at what was there before, nor the one at its end.
    gc.freeze()
    for line in sys.stdin:
        streams = [tempfile.TemporaryFile() for _ in range(2)]
        with warnings.catch_warnings():
            # CPython warns of threads, such as those of NumPy's libraries.
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            signal.alarm({longest})
            streams.insert(0, open(os.devnull))
            for number, stream in enumerate(streams):
                os.dup2(stream.fileno(), number)
                stream.close()
            return json.loads(line)
        answer = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
        for stream in streams:
            stream.seek(0)
            answer.append(stream.read().decode())
            stream.close()
        print(json.dumps(answer), flush=True)
    return ""

exec(_next_program())
"""


def _command(code: str) -> list[str]:
    return [sys.executable, "-c", dedent(code)]


def _variables(environment: dict[str, str]) -> dict[str, str]:
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *inherited])
    own = {"PYTHONPATH": paths, "PYTHONMALLOC": "debug"}
    found = os.environ | own | environment
    # It names the running test, and would make a process for each.
    found.pop("PYTEST_CURRENT_TEST", None)
    return found


def run_python(code: str, **environment: str) -> tuple[int, str, str]:
    """Return the exit code, output and errors of a new Python process."""
    command, env = _command(code), _variables(environment)
    ran = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=LONGEST
    )
    return ran.returncode, ran.stdout, ran.stderr


@cache
def _forks_after(
    begin: str, variables: frozenset[tuple[str, str]]
) -> "subprocess.Popen[str]":
    """Start the process that forks after what programs have in common."""
    command = _command(dedent(begin) + FORKS.format(longest=LONGEST))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, env=dict(variables), text=True, **pipes)
    atexit.register(process.communicate)
    return process


def run_after(begin: str, code: str, **environment: str) -> tuple[int, str, str]:
    """Do as `run_python` with both parts, the first of which runs once for all.

    It imports and defines. A fork has none of its threads, such as that of
    `faulthandler.dump_traceback_later`, and can use no driver that it has used.
    """
    if sys.platform != "linux":
        return run_python(dedent(begin) + dedent(code), **environment)
    process = _forks_after(begin, frozenset(_variables(environment).items()))
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(dedent(code)) + "\n")
    process.stdin.flush()
    status, output, errors = json.loads(process.stdout.readline())
    return status, output, errors
