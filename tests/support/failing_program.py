"""Lets each call of a foreign function go wrong once, and prints what happened.

A program of its own, started by the tests with the name of a module that has `STEPS`.
All attempts of a step run in one forked process; if one ends it, the next begins with
the attempt after that.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from support import failing_calls, simulated_driver
from support.failing_calls import (
    EMPTY,
    FAIL,
    GARBAGE,
    REPORT,
    RUN,
    SET,
    Fault,
    Interrupt,
    Refusal,
    arm,
    disarm,
    forget,
    library,
)

Way = tuple[int, type[BaseException]]
WELL: dict[str, Way] = {
    "raises": (SET | FAIL | GARBAGE, Fault),
    "refuses": (SET | FAIL, Refusal),
    "is interrupted": (SET | FAIL, Interrupt),
}
BADLY: dict[str, Way] = {
    "fails": (FAIL | GARBAGE, Fault),
    "raises and succeeds": (SET, Fault),
    "answers nothing": (EMPTY, Fault),
    "answers nothing and raises": (EMPTY | SET, Fault),
}
ANSWERED = {k: v for k, v in (WELL | BADLY).items() if "answers" not in k}
REPORTS: dict[str, Way] = {
    "reports": (REPORT | FAIL, Fault),
    "reports and raises": (REPORT | FAIL | SET, Fault),
    "reports and succeeds": (REPORT, Fault),
}
ENDS: dict[str, Way] = {"raises": (SET, Fault), "runs code that raises": (RUN, Fault)}
WAYS: dict[str, dict[str, Way]] = (
    {
        "managed_tensor_allocator": WELL | BADLY | REPORTS,
        "current_work_stream": ANSWERED,  # NULL is a stream.
        "get_last_error": ENDS | {"answers nothing": (EMPTY, Fault)},
        "getbuffer": ANSWERED,
        "method": WELL,
    }
    | dict.fromkeys(
        [name for name in failing_calls.FUNCTIONS if name[:3] in ("del", "rel")], ENDS
    )
)
steps: Any = None
"""The module with `STEPS`."""
MOST = 40
"""Calls of a function that no step reaches."""
unraisable: list[Any] = []


def chain(error: BaseException | None) -> list[BaseException]:
    """Return an exception, and those that it came from."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def references() -> list[int]:
    """Count the references to what no step may keep."""
    counts = [sys.getrefcount(each) for each in steps.WATCHED]
    return [*counts, library().failing_held(), *getattr(steps, "uses", list)()]


def kept(before: list[int]) -> list[str]:
    """Name what has more references than before, or fewer, for good."""
    if references() != before:
        gc.collect()
    names = [k for each in steps.WATCHED for k, v in vars(steps).items() if v is each]
    names += ["what C holds", *["a use"] * (len(before) - len(names) - 1)]
    pairs = zip(names, before, references(), strict=True)
    return [f"{name} {new - old:+}" for name, old, new in pairs if old != new]


def quiet() -> None:
    """Let everything be released that is released later."""
    getattr(steps, "quiet", lambda: None)()


def attempt(step: Callable[[], Any], name: str, how: str, at: int) -> dict[str, Any]:
    """Run a step with one call going wrong; say what came of it."""
    what, kind = WAYS.get(name, WELL | BADLY)[how]
    error = kind("raised by a foreign function")
    quiet()
    forget()
    before = references()
    unraisable.clear()
    said: dict[str, Any] = {
        "raised": "",
        "text": "",
        "is own": False,
        "from own": False,
    }
    arm(name, what, at, error)
    try:
        step()
        library().failing_held()  # Raises an exception that the step has left set.
    except BaseException as caught:
        said["raised"] = type(caught).__name__
        said["text"] = str(caught)
        said["is own"] = caught is error
        said["from own"] = error in chain(caught)
        for each in chain(caught):
            each.__traceback__ = each.__cause__ = each.__context__ = None
    said["with one set"] = library().failing_dirty()
    said["reached"] = disarm() > at
    error.__traceback__ = error.__cause__ = error.__context__ = None
    gc.collect(0)
    quiet()
    said["reported"] = sum(each is error for each in unraisable)
    said["reported others"] = [repr(each) for each in unraisable if each is not error]
    unraisable.clear()
    said["deleted"] = [each for each in forget() if each != 1]
    said["kept"] = kept(before)
    try:
        step()
        said["afterwards"] = ""
    except BaseException as caught:
        said["afterwards"] = repr(caught)
    return said


def attempts(step: Callable[[], Any], done: set[str]) -> Iterator[tuple[str, Any]]:
    """Try each way of each function at each call, except those that are done."""
    for name in steps.FUNCTIONS:
        arm(name, 0, -1, Fault())
        step()
        if disarm() == 0:
            continue
        for how in WAYS.get(name, WELL | BADLY):
            for at in range(MOST):
                key = f"{name}/{how}/{at}"
                if key in done:
                    continue
                yield key, None
                said = attempt(step, name, how, at)
                yield key, said
                if not said["reached"]:
                    break


def trying(module: str, name: str, done: set[str], pipe: Any) -> None:
    """Try a step in this process; write what came of it."""
    global steps
    steps = importlib.import_module(f"support.{module}")
    step = steps.STEPS[name]
    for _ in range(4):
        step()
    forget()
    gc.collect()
    gc.freeze()  # What exists now need not be looked at each time.
    for key, said in attempts(step, done):
        print("\0" + json.dumps([key, said]), file=pipe, flush=True)
    print("\0" + json.dumps(["", None]), file=pipe, flush=True)


def forked(module: str, name: str, done: set[str], answers: dict[str, Any]) -> bool:
    """Try a step in a process of its own; whether that has come to its end."""
    receive, send = os.pipe()
    if not (child := os.fork()):
        os.close(receive)
        with os.fdopen(send, "w") as pipe:
            os.dup2(pipe.fileno(), 2)
            try:
                trying(module, name, done, pipe)
            except BaseException:
                traceback.print_exc(file=pipe)
            pipe.flush()
            os._exit(0)
    os.close(send)
    key, noise = None, ""
    with os.fdopen(receive, errors="replace") as pipe:
        for line in pipe:
            text, mark, said = line.rpartition("\0")
            noise += text or ("" if mark else line)
            if not mark:
                continue
            key, found = json.loads(said)
            done.add(key)
            if found is not None:
                answers[key] = found | ({"wrote": noise} if noise else {})
                noise = ""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if key != "":
        answers[key or "start"] = {"ended": status, "wrote": noise}
    # An error of this program would come again.
    return key == "" or status == 0


def listed(module: str) -> list[str]:
    """Name the steps of a module, which this process does not import."""
    receive, send = os.pipe()
    if not (child := os.fork()):
        found = importlib.import_module(f"support.{module}")
        os.write(send, "\n".join(found.STEPS).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as pipe:
        names = pipe.read().split("\n")
    os.waitpid(child, 0)
    return names


def main(module: str, names: list[str]) -> None:
    """Print what came of each attempt, a line of JSON for each step."""
    sys.unraisablehook = lambda given: unraisable.append(given.exc_value)
    failing_calls.library()  # Each child would compile it.
    if module == "failing_stream_steps":
        # A driver does not work in a process that was forked after it was loaded, but
        # all else that the steps import need not be imported by each child.
        os.environ["DLX_LIBCUDA"] = str(simulated_driver.library_path())
        importlib.import_module("support.device_arrays")
        importlib.import_module("support.simulated_kernels")
    else:
        importlib.import_module(f"support.{module}")
    gc.freeze()
    for name in names or listed(module):
        answers: dict[str, Any] = {}
        done: set[str] = set()
        while not forked(module, name, done, answers):
            pass
        print(json.dumps([name, answers]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
