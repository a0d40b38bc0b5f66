"""One large array in many processes: spawn, fork, pools, joblib, a DataLoader, names.

Each scheme gives workers handles of an input and of a result, which the workers fill in
parts. What a worker's memory grows by is measured: pages that it shares do not count as
its own (`Pss_Anon` of `/proc/self/smaps_rollup`).
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import dlx
import joblib
import numpy as np
import torch
from dlx_share import Handle
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

ROWS, COLUMNS = 2048, 2048
MIB = 1 << 20
Floats = NDArray[np.float32]


class Job(NamedTuple):
    """Rows of the input that a worker computes, and where the result goes."""

    source: Handle
    result: Handle
    rows: slice


class Done(NamedTuple):
    """What a worker returns: a small tensor, and what its own memory grew by."""

    pid: int
    sums: dlx.Tensor
    anonymous_mib: float


def anonymous_mib() -> float:
    """Return how much memory belongs to this process alone."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(x.split()[1]) / 1024 for x in lines if x.startswith("Pss_Anon:"))


def work(job: Job) -> Done:
    """Double some rows into the shared result."""
    before = anonymous_mib()
    x: Floats = dlx.attach(job.source, like=np)
    out: Floats = dlx.attach(job.result, like=np)
    np.multiply(x[job.rows], 2, out=out[job.rows])
    sums = out[job.rows].sum(axis=1, dtype=np.float64)
    return Done(os.getpid(), dlx.from_dlpack(sums), anonymous_mib() - before)


def die(job: Job) -> None:
    """Write one number and be killed, as by the kernel's OOM killer."""
    dlx.attach(job.result, like=np)[0, 0] = -1
    os.kill(os.getpid(), signal.SIGKILL)


def pool(method: str, jobs: Sequence[Job]) -> Iterable[Done]:
    """Run jobs by `multiprocessing.Pool`."""
    with mp.get_context(method).Pool(2) as workers:
        return workers.map(work, jobs)


def executor(method: str, jobs: Sequence[Job]) -> Iterable[Done]:
    """Run jobs by `concurrent.futures`."""
    with ProcessPoolExecutor(2, mp_context=mp.get_context(method)) as workers:
        return list(workers.map(work, jobs))


def by_joblib(_method: str, jobs: Sequence[Job]) -> Iterable[Done]:
    """Run jobs by joblib, which starts loky's processes."""
    run: Any = joblib
    done: list[Done] = run.Parallel(n_jobs=2)(run.delayed(work)(job) for job in jobs)
    return done


class Rows(Dataset[torch.Tensor]):  # type: ignore[misc]
    """Rows of shared memory; a worker attaches them when it reads the first."""

    def __init__(self, handle: Handle) -> None:
        """Remember the handle, which a spawned worker gets pickled."""
        self.handle = handle
        self._rows: torch.Tensor | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.handle.shape[0]

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return a row: a view, which torch's collation copies into the batch."""
        rows = self._rows
        if rows is None:
            # "cow", because torch copies all of a handle that is only read-only.
            rows = self._rows = dlx.attach(self.handle, like=torch, mode="cow")
        return rows[index]


def collate(batch: list[dlx.Tensor]) -> torch.Tensor:
    """Stack tensors of dlx, which torch's collation does not know."""
    return torch.stack([dlx.convert(row, torch) for row in batch])


class RowsOfDlx(Dataset[dlx.Tensor]):  # type: ignore[misc]
    """The same rows as tensors of dlx."""

    def __init__(self, handle: Handle) -> None:
        """Remember the handle."""
        self.handle = handle

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.handle.shape[0]

    def __getitem__(self, index: int) -> dlx.Tensor:
        """Attach and return one row."""
        row: dlx.Tensor = dlx.attach(self.handle)[index]
        return row


def own_briefly(pipe: Connection, name: str) -> None:
    """Own a named segment until told to end."""
    with dlx.share(np.arange(4.0), name=name) as handle:
        pipe.send((handle, bytes(handle)))
        pipe.recv()


def outlive_owner() -> None:
    """Use memory whose owner has ended, by a tensor, a handle, its bytes, its name."""
    here, there = mp.get_context("spawn").Pipe()
    spawn = mp.get_context("spawn")
    owner = spawn.Process(target=own_briefly, args=(there, "brief"))
    owner.start()
    handle, raw = here.recv()
    code = "import dlx; print(dlx.attach('shm:brief').tolist())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    print("another program reads", other.stdout.strip())
    tensor = dlx.attach("shm:brief")
    here.send("end")
    owner.join()
    print("after the owner's end:", tensor.tolist(), dlx.attach(handle).tolist())
    for gone in raw, "shm:brief":
        try:
            dlx.attach(gone)
        except BufferError as error:
            print(f"  refused: {error}")


def main() -> None:
    """Run every scheme on the same two arrays."""
    x: Floats = dlx.empty((ROWS, COLUMNS), "float32", like=np, shared=True)
    out: Floats = dlx.empty((ROWS, COLUMNS), "float32", like=np, shared=True)
    x[:] = np.arange(ROWS, dtype=np.float32)[:, None]
    schemes: list[tuple[Callable[[str, Sequence[Job]], Iterable[Done]], str]] = [
        (run, method) for run in (pool, executor) for method in ("spawn", "fork")
    ]
    with dlx.share(x, readonly=True) as source, dlx.share(out) as result:
        parts = [slice(i, i + ROWS // 4) for i in range(0, ROWS, ROWS // 4)]
        jobs = [Job(source, result, rows) for rows in parts]
        for run, method in [*schemes, (by_joblib, "loky")]:
            out[:] = 0
            done = list(run(method, jobs))
            assert np.array_equal(out, 2 * x)
            assert sum(map(sum, (each.sums.tolist() for each in done))) == out.sum()
            most = max(each.anonymous_mib for each in done)
            print(
                f"{run.__name__:10} {method:6} each worker's own: {most:.1f} MiB more"
            )
            assert most < x.nbytes / MIB / 4, "a copy was made"
        with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as workers:
            try:
                workers.submit(die, jobs[0]).result()
            except BrokenProcessPool:
                print("a worker was killed; what it wrote stays:", out[0, 0])
        for data, join in ((Rows(source), None), (RowsOfDlx(source), collate)):
            loader: DataLoader[Any] = DataLoader(
                data, 512, num_workers=2, collate_fn=join
            )
            total = sum(float(batch[:, 0].sum()) for batch in loader)
            assert total == x[:, 0].sum()
            print(f"DataLoader of {type(data).__name__}: {total}")
    outlive_owner()
    left = [path.name for path in Path("/dev/shm").iterdir() if "dlx" in path.name]
    print("left in /dev/shm:", left)


if __name__ == "__main__":
    main()
