"""Tensors in dask: bfloat16 from one worker to the other, then one memory for both."""

from __future__ import annotations

from typing import Any

import dask
import dlx
import dlx_share.dask
import torch
from distributed import Client, LocalCluster


def make() -> Any:
    """Return a tensor of a dtype that NumPy lacks."""
    return torch.full((1000,), 2, dtype=torch.bfloat16)


def share() -> Any:
    """Return a handle, which the worker keeps as long as dask has this result."""
    return dlx.share(make())


def main() -> None:
    """Run tasks in two workers."""
    dlx_share.dask.register()
    dask.config.set({"distributed.worker.preload": ["dlx_share.dask"]})
    with (
        LocalCluster(n_workers=2, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        dlx_share.dask.check(client)  # names each worker that cannot read what is sent
        one, other = client.nthreads()
        x = client.submit(make, workers=[one])
        y = client.submit(torch.sum, x, workers=[other])  # from one worker to the other
        assert y.result() == 2000
        assert x.result().dtype == torch.bfloat16

        # The same pages: nothing is sent.
        h = client.submit(share, workers=[one])
        z = client.submit(dlx.attach, h, workers=[other])
        assert z.result().tolist() == x.result().tolist()


if __name__ == "__main__":
    main()
