"""A fit across libraries: a polars table, torch, JAX, a NumPy function, a table again.

torch fits the rate of a radioactive decay to counts, JAX differentiates the same
likelihood twice for the errors, and a function written for NumPy looks at what is left.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import dlx

COUNTS = [982, 803, None, 553, 471, 370, 308, 246, 181, 164, 130, 116]


def loss(xp: Any, parameters: Any, minutes: Any, counts: Any) -> Any:
    """Minus the logarithm of the Poisson likelihood, in torch or ``jax.numpy``."""
    logarithm = parameters[0] - parameters[1] * minutes
    return (xp.exp(logarithm) - counts * logarithm).sum()


def fit(table: Any) -> tuple[Any, Any, Any]:
    """Return the parameters, which record gradients, and the data, all of torch."""
    import torch

    # Counts are integers in the table, and torch would not mix them with floats.
    minutes = dlx.convert(table["minutes"], torch, dtype="float32")
    counts = dlx.convert(table["counts"], torch, dtype="float32")
    parameters = torch.tensor([6.0, 0.1], requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [parameters], max_iter=100, line_search_fn="strong_wolfe"
    )

    def step() -> Any:
        optimizer.zero_grad()
        value = loss(torch, parameters, minutes, counts)
        value.backward()
        return value

    optimizer.step(step)
    return parameters, minutes, counts


def covariance(parameters: Any, minutes: Any, counts: Any) -> Any:
    """Return the inverse of the second derivatives, an array of JAX."""
    import jax

    # JAX does not see the gradients that torch records: `detach` says so.
    at = dlx.convert(parameters, jax, detach=True)
    data = dlx.convert_tree({"minutes": minutes, "counts": counts}, jax)

    def likelihood(parameters: Any) -> Any:
        return loss(jax.numpy, parameters, **data)

    second = jax.hessian(likelihood)(at)
    return jax.numpy.linalg.inv(second)


def main() -> None:
    """Fit, and print a table of parameters and one of residuals."""
    if not all(map(find_spec, ("numpy", "polars", "torch", "jax"))):
        return
    import numpy as np
    import polars as pl

    measured = pl.DataFrame({"minutes": np.arange(12.0), "counts": COUNTS})
    try:
        dlx.convert(measured["counts"], np)
    except BufferError as refused:  # DLPack has no missing values
        print("refused:", refused)
    table = measured.drop_nulls()
    parameters, minutes, counts = fit(table)
    errors = covariance(parameters, minutes, counts).diagonal() ** 0.5

    @dlx.bridge(np.ndarray)
    def pulls(found: Any, minutes: Any, counts: Any) -> Any:
        expected = np.exp(found[0] - found[1] * minutes)
        return (counts - expected) / np.sqrt(expected)

    found = parameters.detach()  # a bridge never detaches for its caller
    left = pulls(found, minutes, counts)
    print(type(left).__module__, "gave torch, and gets torch:", tuple(left.shape))

    columns = dlx.convert_tree({"value": found, "error": errors, "pull": left}, np)
    pull = columns.pop("pull")
    print(pl.DataFrame({"parameter": ["log N(0)", "rate"], **columns}))
    print(table.with_columns(pull=pull).filter(pl.col("pull").abs() > 1))


if __name__ == "__main__":
    main()
