"""Tensors between Ray's actors of one host, by shared memory."""

from __future__ import annotations

from typing import Any

import dlx_share.ray
import ray
import torch

dlx_share.ray.register_transport()  # before the class of the actor


class Holder:
    """An actor that sends and receives tensors."""

    @ray.method(tensor_transport="DLX_SHM")  # type: ignore[untyped-decorator]
    def make(self) -> Any:
        """Return a tensor, which is copied once and frozen."""
        return torch.ones(1000, dtype=torch.bfloat16)

    def total(self, x: Any) -> float:
        """Read the tensor of another actor."""
        return float(x.sum())


def main() -> None:
    """Pass a tensor from one actor to the other."""
    ray.init(num_cpus=2, include_dashboard=False)
    actor = ray.remote(num_cpus=0, enable_tensor_transport=True)(Holder)
    one, other = actor.remote(), actor.remote()
    assert ray.get(other.total.remote(one.make.remote())) == 1000
    ray.shutdown()


if __name__ == "__main__":
    main()
