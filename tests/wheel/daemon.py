"""A daemon thread that is inside a producer when the interpreter ends.

The thread is unwound by glibc then (before CPython 3.14), with the unwinder that the
extension was linked against. It must not take the process down.
"""

import os
import sys
import threading

import dlx

inside, leave = threading.Event(), threading.Lock()
leave.acquire()


class Producer:
    """Waits inside `__dlpack__` until the interpreter ends."""

    def __dlpack__(self, **keywords: object) -> None:
        """Wait."""
        inside.set()
        leave.acquire()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Be on the CPU."""
        return 1, 0


thread = threading.Thread(target=dlx.from_dlpack, args=(Producer(),), daemon=True)
thread.start()
inside.wait()


class Last:
    """Dies when no thread gets the GIL any more."""

    def __del__(self, leave=leave, exists=os.path.exists) -> None:  # type: ignore[no-untyped-def]
        """Let the thread go on, and give it time to end."""
        leave.release()
        task = f"/proc/self/task/{thread.native_id}"
        any(not exists(task) for _ in range(100_000))


sys.last = Last()  # type: ignore[attr-defined]
