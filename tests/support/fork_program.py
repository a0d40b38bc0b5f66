"""Forks while threads are inside user code that dlx calls, and what came of each.

Started by `test_forks`: a child that has one of many threads is a program of its own.
"""

from __future__ import annotations

import gc
import json
import threading

from support.callback_steps import STEPS, Step, calls, happening, nothing
from support.forked_child import in_child


def all_steps() -> None:
    """Do all that dlx can."""
    with happening(nothing, -1):
        for step in STEPS.values():
            step()
        gc.collect()


def beside(step: Step, at: int) -> str:
    """Fork while another thread is in the n-th call of user code."""
    inside, leave = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        leave.wait()

    with happening(wait, at):
        thread = threading.Thread(target=step)
        thread.start()
        inside.wait()
        said = in_child(all_steps)
        leave.set()
        thread.join()
    return said


def within(step: Step, at: int) -> str:
    """Fork in the n-th call of user code itself; both sides go on."""
    said: list[str] = []

    def fork() -> None:
        said.append(in_child(all_steps))

    with happening(fork, at):
        step()
    return "".join(said)


def main() -> None:
    """Print what went wrong in each step."""
    all_steps()
    gc.freeze()
    found: dict[str, list[str]] = {}
    for name, step in STEPS.items():
        names = calls(step)
        wrong = []
        for at in sorted({0, len(names) // 2, len(names) - 1}):
            for fork in beside, within:
                if said := fork(step, at):
                    wrong.append(f"{fork.__name__} {names[at]}: {said}")
        step()
        found[name] = wrong
    print(json.dumps(found))


if __name__ == "__main__":
    main()
