"""One memory in two processes: JAX computes in one, torch writes in the other.

The first process shares what JAX has computed. The second attaches it as a tensor of
torch, without a copy, and writes to it; the first sees that.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

import dlx


def circle(xp: Any) -> Any:
    """Return points on a circle, computed by a library."""
    angles = xp.linspace(0, 1, 5, dtype="float32")
    return xp.stack([xp.cos(angles), xp.sin(angles)])


def compute(pipe: Connection) -> None:
    """Compute in JAX, and share the result."""
    import jax

    # The one copy: JAX's arrays are in memory of their process alone.
    with dlx.share(circle(jax.numpy)) as handle:
        mine = dlx.attach(handle)
        pipe.send(handle)
        pipe.recv()  # torch has written
        pipe.send(mine.tolist()[1])


def main() -> None:
    """Attach the memory of the other process as a tensor of torch."""
    import torch

    # A fork of a process in which JAX or torch has threads may hang.
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=compute, args=(other,))
    process.start()
    with pipe.recv() as handle:
        x: Any = dlx.attach(handle, like=torch)
    print(x)
    x[1] = 7
    pipe.send("written")
    print("in the other process:", pipe.recv())
    process.join()
    print("after its end:", x[1].tolist())


if __name__ == "__main__":
    main()
