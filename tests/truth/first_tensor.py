"""The numbers of a program's first tensor, for libraries that take a NumPy array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

SHAPES = ((3,), (2, 3), (), (0,), (2, 2), (2, 3, 4), (33,))


def draw_numbers(
    r: Random, dtypes: str, shapes: Sequence[tuple[int, ...]] = SHAPES
) -> tuple[str, str]:
    """Draw an expression for numbers that a dtype can hold, and the dtype."""
    shape, dtype = r.choice(shapes), r.choice(dtypes.split())
    numbers = f"np.arange(1, {math.prod(shape) + 1}).reshape({shape})"
    if dtype.startswith("complex"):
        numbers += " * (1 + 2j)"
    if dtype.startswith("bool"):
        numbers += " % 2"
    return f"({numbers})", dtype
