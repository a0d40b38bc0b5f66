"""Tensors between ranks of MPI: `mpiexec -n 2 python -m mpi4py mpi_ranks.py`."""

from __future__ import annotations

import pickle
from typing import Any

import dlx
import dlx_share
import jax
from mpi4py import MPI
from mpi4py.util import pkl5


def main() -> None:
    """Send memory, then objects, then a handle."""
    world = MPI.COMM_WORLD
    t = dlx.empty((4,), "bfloat16")
    if world.rank == 0:
        world.Send(dlx.from_buffer(bytes(range(8)), (4,), "bfloat16"), 1)
    elif world.rank == 1:
        world.Recv(t, 0)
        assert t.raw().tobytes() == bytes(range(8))

    # Objects: a `dlx.Tensor` as it is, and with this, tensors of other libraries.
    for each in MPI.pickle, pkl5.pickle:  # pkl5 has one of its own
        each.__init__(dlx_share.dumps, pickle.loads)
    made = {"x": jax.numpy.ones(4, "bfloat16")} if world.rank == 0 else None
    x: Any = pkl5.Intracomm(world).bcast(made)  # out of band
    assert x["x"].sum() == 4

    # On one host, a handle: the memory is not sent.
    h = dlx.share(x["x"]) if world.rank == 0 else None
    y = dlx.attach(world.bcast(h), like=jax)
    world.Barrier()  # who made the handle keeps it until all have it
    assert y.sum() == 4


if __name__ == "__main__":
    main()
