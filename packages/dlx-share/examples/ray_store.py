"""Tensors in Ray's object store, which JAX reads in place."""

from __future__ import annotations

from typing import Any

import dlx_share.ray
import jax
import ray


def double(x: Any) -> Any:
    """Compute in a worker."""
    return 2 * x


def main() -> None:
    """Put an array, read it here twice, and once in a worker."""
    dlx_share.ray.register()  # where objects are made: here, and in workers by the hook
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        runtime_env={"worker_process_setup_hook": "dlx_share.ray.register"},
    )
    ref = ray.put(jax.numpy.ones(1000, "bfloat16"))
    x, y = ray.get([ref, ref])
    assert x.unsafe_buffer_pointer() == y.unsafe_buffer_pointer()  # in the store
    assert float(ray.get(ray.remote(double).remote(ref)).sum()) == 2000
    ray.shutdown()


if __name__ == "__main__":
    main()
