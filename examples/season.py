"""One season of a bicycle-hire scheme: a table, three array libraries, and the table.

polars holds the season, torch fits the demand, JAX finds out how sensitive that demand
is to the weather, NumPy smooths, and a memory-mapped file keeps the features. dlx moves
the numbers between them; what it copies, it says in its log.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypeAlias, cast

import dlx
import jax
import numpy as np
import numpy.typing as npt
import polars as pl
import torch

DAYS = 180
STATIONS = ("Harbour", "Market", "Park")
WEATHER = ("temperature", "rain")

Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass
class Batch:
    """What a training step takes; the stations and days are for people."""

    inputs: dict[str, Any]
    hires: Any
    station: list[str]
    day: list[date]


def make_table() -> pl.DataFrame:
    """Return one row for each day and station; some rain gauges failed."""
    rng = np.random.default_rng(7)
    count = DAYS * len(STATIONS)
    number = np.repeat(np.arange(DAYS), len(STATIONS))
    temperature = 16 - 9 * np.cos(2 * np.pi * number / DAYS) + rng.normal(0, 2, count)
    rain = rng.exponential(2.0, count) * (rng.random(count) < 0.4)
    hires = 40 + 6 * temperature - 9 * rain + rng.normal(0, 8, count)
    table = pl.DataFrame(
        {
            "day": [date(2025, 4, 1) + timedelta(days=int(n)) for n in number],
            "station": list(STATIONS) * DAYS,
            "temperature": temperature,
            "rain": rain,
            "hires": np.maximum(hires, 0).round().astype("int64"),
        }
    )
    broken = pl.Series(rng.random(count) < 0.02)
    return table.with_columns(rain=pl.when(broken).then(None).otherwise(pl.col("rain")))


def fit(features: Any, target: Any) -> Any:
    """Return intercept and slopes, by gradient descent on standardized features."""
    mean, scale = features.mean(0), features.std(0)
    x = (features - mean) / scale
    weights = torch.zeros(x.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=2.0)
    for _ in range(400):
        optimizer.zero_grad()
        loss = torch.mean((weights[0] + x @ weights[1:] - target) ** 2)
        loss.backward()
        optimizer.step()
    slopes = weights[1:] / scale
    return torch.cat([weights[:1] - slopes @ mean, slopes])


def demand(weights: Any, weather: Any) -> Any:
    """Return the hires that the fit expects on one day, which are never negative."""
    return jax.nn.softplus(weights[0] + weather @ weights[1:])


def forecast(weights: Any, weather: Any) -> tuple[Any, Any]:
    """Return the demand on each day, and its slopes by the weather of that day."""
    both = jax.value_and_grad(demand, argnums=1)
    found: tuple[Any, Any] = jax.vmap(both, in_axes=(None, 0))(weights, weather)
    return found


@dlx.bridge(np.ndarray)
def weekly(values: Floats, width: int = 7) -> Floats:
    """Return a centred running mean, the ends of which are shorter."""
    kernel = np.ones(width, values.dtype)
    total = np.convolve(values, kernel, "same")
    return total / np.convolve(np.ones_like(values), kernel, "same")


def map_features(table: pl.DataFrame, path: Path) -> np.memmap[Any, np.dtype[Any]]:
    """Write the weather to a file, and return the file mapped copy-on-write."""
    columns = [dlx.convert(table[name], np, dtype="float32") for name in WEATHER]
    np.save(path, np.stack(columns, axis=1))
    return cast("np.memmap[Any, np.dtype[Any]]", np.load(path, mmap_mode="c"))


def main() -> None:
    """Fit the season, and print a summary by month."""
    logging.basicConfig(format="%(name)s: %(message)s", stream=sys.stdout)
    logging.getLogger("dlx").setLevel(logging.DEBUG)

    table = make_table().with_columns(pl.col("rain").fill_null(0.0))
    with tempfile.TemporaryDirectory() as folder:
        mapped = map_features(table, Path(folder) / "weather.npy")

    batch = Batch(
        inputs={"weather": mapped, "weekday": table["day"].dt.weekday().to_numpy()},
        hires=dlx.convert(table["hires"], np, dtype="float32"),
        station=table["station"].to_list(),
        day=table["day"].to_list(),
    )
    on_torch: Batch = dlx.convert_tree(batch, torch)
    features: Any = on_torch.inputs["weather"]
    hires: Any = on_torch.hires
    assert features.data_ptr() == mapped.ctypes.data  # the mapped file itself
    assert on_torch.day is batch.day

    weights = fit(features, hires)
    expected, slopes = forecast(
        dlx.convert(weights, jax, detach=True), dlx.convert(features, jax)
    )

    smooth_torch: Any = weekly(hires, 21)
    smooth_jax: Any = weekly(expected, width=21)
    error = float(jax.numpy.abs(smooth_jax - dlx.convert(smooth_torch, jax)).mean())

    result = table.with_columns(
        pl.Series("expected", dlx.convert(expected, np)),
        pl.Series("smooth", dlx.convert(smooth_torch, np)),
        pl.Series("per_degree", dlx.convert(slopes[:, 0], np)),
    )
    print("intercept, per degree, per mm:", dlx.convert(weights, np, detach=True))
    print(f"difference of the running means: {error:.2f} hires a day")
    print(
        result.group_by(pl.col("day").dt.month().alias("month"))
        .agg(pl.col("hires", "expected", "smooth", "per_degree").mean().round(1))
        .sort("month")
    )


if __name__ == "__main__":
    main()
