"""Compare what passes tensors between processes, with dlx and without.

    python benches/processes.py [--quick] [--json]

Both sides of a row alternate, and the best of each counts. A time is that from sending
to the receiver having the tensor. `--json` writes
`build/results/processes.json`. `tests/tasks.py processes` installs what it needs.
"""

import argparse
import logging
import mmap
import multiprocessing
import os
import pickle
import time
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing.reduction import ForkingPickler
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import dlx
import dlx_share
import dlx_share.mp
import numpy as np
from results import BUILD, Document, dump, machine
from rich.console import Console
from rich.table import Table

SMALL, BIG = 4 << 10, 256 << 20
Calls = dict[str, Callable[[], object]]


def best(calls: Calls, rounds: int, first: Calls | None = None) -> dict[str, float]:
    """Call each in turn, `rounds` times after one; return the least seconds.

    What ``first`` has under its name is called before, and not counted.
    """
    least = dict.fromkeys(calls, float("inf"))
    for turn in range(rounds + 1):
        for name, call in calls.items():
            if first and name in first:
                first[name]()
            start = time.perf_counter()
            call()
            took = time.perf_counter() - start
            if turn:
                least[name] = min(least[name], took)
    return least


def pickles(rounds: int) -> dict[str, float]:
    """Pickle out of band and load, in this process."""
    import torch

    def through(x: Any, dumps: Any) -> Callable[[], object]:
        def call() -> None:
            for _ in range(100):
                buffers: list[Any] = []
                text = dumps(x, protocol=5, buffer_callback=buffers.append)
                pickle.loads(text, buffers=buffers)

        return call

    def torch_of(size: int) -> Any:
        return torch.ones(size // 2, dtype=torch.bfloat16)

    tensor = dlx.from_dlpack(np.ones(SMALL, np.uint8))
    calls = {
        "pickle, NumPy, 4 KiB": through(np.ones(SMALL, np.uint8), pickle.dumps),
        "pickle, dlx.Tensor, 4 KiB": through(tensor, pickle.dumps),
        "pickle, torch by dlx, 4 KiB": through(torch_of(SMALL), dlx_share.dumps),
        "pickle, torch by dlx, 256 MiB": through(torch_of(BIG), dlx_share.dumps),
    }
    return {name: took / 100 for name, took in best(calls, 10 * rounds).items()}


def answer(pipe: Any) -> None:
    """Receive tensors, and say so."""
    import torch

    torch.set_num_threads(1)
    while pipe.recv() is not None:
        pipe.send(1)


def mapped(x: Any) -> None:
    """Copy into a segment as one would by hand."""
    file = os.memfd_create("bench")
    os.ftruncate(file, BIG)
    with mmap.mmap(file, BIG) as memory:
        np.frombuffer(memory, np.uint8)[:] = x
    os.close(file)


def shared(rounds: int) -> dict[str, float]:
    """Send 256 MiB through a pipe of `multiprocessing`."""
    import torch

    reducers = vars(ForkingPickler)["_extra_reducers"]
    own = reducers[torch.Tensor]
    dlx_share.mp.register(torch.Tensor)
    by_dlx = reducers[torch.Tensor]
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=answer, args=(there,), daemon=True
    )
    process.start()
    private = torch.ones(BIG, dtype=torch.uint8)
    theirs = torch.ones(BIG, dtype=torch.uint8).share_memory_()
    handle = dlx.share(private)
    ours = dlx.attach(handle, like=torch)

    def send(x: Any, reduce: Any) -> Callable[[], object]:
        def call() -> None:
            reducers[torch.Tensor] = reduce
            here.send(x() if callable(x) else x)
            here.recv()

        return call

    calls: Calls = {
        # torch moves what it sends into shared memory, so each has to be a new one.
        "multiprocessing, private, torch": send(private.clone, own),
        "a clone for it": private.clone,
        "multiprocessing, private, dlx": send(private, by_dlx),
        "memory mapped and copied": lambda: mapped(private.numpy()),
        "share and attach, private": lambda: dlx.attach(dlx.share(private), like=torch),
        "multiprocessing, shared, torch": send(theirs, own),
        "multiprocessing, shared, dlx": send(ours, by_dlx),
    }
    took = best(calls, rounds)
    took["multiprocessing, private, torch"] -= took.pop("a clone for it")
    data, other = bytes(handle), dlx.share(private)
    unmapped, standard = bytes(other), SharedMemory(create=True, size=BIG)
    quick: Calls = {
        "share, shared": lambda: dlx.share(ours, copy=False),
        "attach, mapped before": lambda: dlx.attach(data),
    }
    took |= best(quick, 100 * rounds)
    # Apart, since what maps slows down whatever is next.
    quick = {
        "attach": lambda: dlx.attach(unmapped),
        "SharedMemory": lambda: SharedMemory(standard.name).close(),
    }
    took |= best(quick, 100 * rounds)
    standard.unlink()
    here.send(None)
    process.join()
    return took


def make(kind: str, size: int) -> Any:
    """Make something to send, in a worker."""
    if kind == "handle":
        return dlx.share(np.ones(size, np.uint8))
    if kind == "jax":
        import jax

        return jax.block_until_ready(jax.numpy.ones(size // 4, "float32"))
    import torch

    dtype = getattr(torch, kind)
    return torch.ones(size // dtype.itemsize, dtype=dtype)


def same(x: Any) -> Any:
    """Return it as a result of its own."""
    return x


def take(x: Any) -> int:
    """Have it."""
    return len(dlx.attach(x) if isinstance(x, dlx_share.sharing.Handle) else x)


def switch(by_dlx: bool) -> None:
    """Have a worker with dlx send torch's tensors by it, or as without it."""
    import torch
    from dask.sizeof import sizeof
    from distributed.protocol import torch as theirs
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    known = sizeof, dask_serialize, dask_deserialize
    if not hasattr(dlx, "_of_bench"):
        vars(dlx)["_of_bench"] = [each.dispatch(torch.Tensor) for each in known]
    without = (
        *(sizeof.dispatch(object), theirs.serialize_torch_Tensor),
        theirs.deserialize_torch_Tensor,
    )
    now = vars(dlx)["_of_bench"] if by_dlx else without
    for dispatch, function in zip(known, now, strict=True):
        dispatch.register(torch.Tensor, function)


def dask(rounds: int) -> dict[str, float]:
    """Pass results between two workers, with and without dlx as preload."""
    import dask
    from distributed import Client, LocalCluster

    clients = {}
    for name, preload in ("today", []), ("dlx", ["dlx_share.dask"]):
        with dask.config.set({"distributed.worker.preload": preload}):
            cluster = LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None
            )
            clients[name] = Client(cluster)

    def send(name: str, kind: str, size: int) -> Callable[[], object]:
        client = clients[name]
        one, other = client.nthreads()
        x = client.submit(make, kind, size, workers=[one], pure=False)
        client.gather(client.submit(take, x, workers=[one], pure=False))

        def call() -> None:
            # A new key each time, or the receiver would have it already.
            sent = client.submit(same, x, workers=[one], pure=False)
            client.submit(take, sent, workers=[other], pure=False).result()

        return call

    calls = {
        "dask, JAX float32, today": send("today", "jax", BIG),
        "dask, JAX float32, dlx": send("dlx", "jax", BIG),
        # In the same workers: two clusters differ by more than dlx does.
        "dask, torch float32, today": send("dlx", "float32", BIG),
        "dask, torch float32, dlx": send("dlx", "float32", BIG),
        "dask, torch bfloat16, dlx": send("dlx", "bfloat16", BIG),
        "dask, handle, 256 MiB": send("dlx", "handle", BIG),
        "dask, torch float32, 4 KiB": send("dlx", "float32", SMALL),
    }
    workers = clients["dlx"]
    first: Calls = {name: partial(workers.run, switch, True) for name in calls}
    first["dask, torch float32, today"] = partial(workers.run, switch, False)
    took = best(calls, 4 * rounds, first)
    for client in clients.values():
        cluster = client.cluster
        client.close()
        cluster.close()
    return took


class Actor:
    """Sends and takes objects of Ray."""

    def register(self) -> None:
        """Have dlx make the objects."""
        import dlx_share.ray

        dlx_share.ray.register()

    def keep(self, kind: str) -> None:
        """Keep something to send."""
        self.kept = np.ones(BIG, np.uint8) if kind == "numpy" else make(kind, BIG)
        if kind == "dlx":
            self.kept = dlx.from_dlpack(self.kept)

    def send(self) -> Any:
        """Send it."""
        return self.kept

    def take(self, x: Any) -> int:
        """Have it."""
        return len(x)


def ray(rounds: int) -> dict[str, float]:
    """Return objects from one actor to another."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=2 << 30,
        log_to_driver=False,
        logging_level="error",
    )
    actor = ray.remote(num_cpus=0)(Actor)
    taker = actor.remote()

    def send(kind: str, registered: bool) -> Callable[[], object]:
        sender = actor.remote()
        if registered:
            ray.get(sender.register.remote())
        ray.get(sender.keep.remote(kind))
        return lambda: ray.get(taker.take.remote(sender.send.remote()))

    calls = {
        "Ray, torch float32, today": send("float32", False),
        "Ray, torch float32, dlx": send("float32", True),
        "Ray, JAX float32, today": send("jax", False),
        "Ray, JAX float32, dlx": send("jax", True),
        "Ray, NumPy": send("numpy", False),
    }
    took = best(calls, rounds)
    ray.shutdown()
    return took


GOALS: list[tuple[str, str | float, float]] = [
    ("pickle, dlx.Tensor, 4 KiB", "pickle, NumPy, 4 KiB", 1.0),
    ("pickle, torch by dlx, 4 KiB", "pickle, NumPy, 4 KiB", 1.0),
    ("pickle, torch by dlx, 256 MiB", "pickle, torch by dlx, 4 KiB", 2.0),
    ("multiprocessing, private, dlx", "multiprocessing, private, torch", 0.5),
    ("share and attach, private", "memory mapped and copied", 0.7),
    ("multiprocessing, shared, dlx", "multiprocessing, shared, torch", 1.0),
    ("share, shared", 5e-6, 1.0),
    ("attach, mapped before", 15e-6, 1.0),
    ("attach", "SharedMemory", 1.0),
    ("dask, JAX float32, dlx", "dask, JAX float32, today", 0.4),
    ("dask, torch bfloat16, dlx", "dask, torch float32, today", 1.5),
    ("dask, torch float32, dlx", "dask, torch float32, today", 1.05),
    ("dask, handle, 256 MiB", "dask, torch float32, 4 KiB", 1.3),
    ("Ray, torch float32, dlx", "Ray, torch float32, today", 0.2),
    ("Ray, JAX float32, dlx", "Ray, NumPy", 1.3),
]
"""What is measured, what it is compared with (or seconds), and the ratio accepted."""


PARTS = {"pickle": pickles, "multiprocessing": shared, "dask": dask, "ray": ray}


def rows(took: dict[str, float]) -> list[Document]:
    """Compare what was measured with the goals."""
    made = []
    for path, against, most in GOALS:
        its = against if isinstance(against, float) else took.get(against)
        if path in took and its:
            name = "its goal" if isinstance(against, float) else against
            row: Document = {
                "path": path,
                "dlx": took[path],
                "against": name,
                "its": its,
            }
            made.append(row | {"ratio": took[path] / its, "budget": most})
    return made


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--json", action="store_true", help="write the results")
    parser.add_argument("--only", choices=PARTS, help="one part of them")
    options = parser.parse_args()
    rounds = 3 if options.quick else 10
    warnings.simplefilter("ignore")
    about = machine({}, "benches/processes.py")
    took: dict[str, float] = {}
    for name, part in PARTS.items():
        if options.only not in (None, name):
            continue
        took |= part(rounds)
        if options.json and options.only is None:
            written = {"machine": about, "rows": rows(took)}
            dump(written, BUILD / "processes.json")
    compared = rows(took)
    table = Table("path", "ms", "compared with", "ms", "ratio", "at most", "")
    for row in compared:
        verdict = "met" if row["ratio"] <= row["budget"] else "missed"
        times = f"{row['dlx'] * 1e3:.3f}", f"{row['its'] * 1e3:.3f}"
        ratio = f"{row['ratio']:.2f}", f"{row['budget']:g}", verdict
        table.add_row(row["path"], times[0], row["against"], times[1], *ratio)
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
