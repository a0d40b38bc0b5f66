"""A kernel of Triton, which compiles the source of a module."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    """Write twice each element."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
