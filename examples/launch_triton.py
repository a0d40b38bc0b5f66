# mypy: ignore-errors
"""A kernel of Triton for tensors of any library; without a GPU it is interpreted.

`TRITON_INTERPRET=1` runs kernels in Python, on torch's own tensors.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import dlx
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

if find_spec("triton"):
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(x, y, out, n, BLOCK: tl.constexpr):
        """Write the sum of each two elements."""
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        there = at < n
        tl.store(out + at, tl.load(x + at, mask=there) + tl.load(y + at, there), there)


def interpreted(x, y, out, n):
    """Interpret the kernel, which wants tensors of torch: these are views."""
    tensors = map(torch.from_dlpack, (x, y, out))
    kernel[(triton.cdiv(n, 4),)](*tensors, n, BLOCK=4)


def compiled(x, y, out, n):
    """Launch on torch's current stream, as Triton does."""
    kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)


if torch.cuda.is_available():
    add = dlx.launcher(
        compiled, give="pointer", out="out", stream=torch.cuda.current_stream
    )
else:
    add = dlx.launcher(interpreted, give="tensor", out="out", dtype="float32")


def main() -> None:
    """Add an array of another library to a tensor of torch."""
    if not find_spec("triton"):
        print("Triton is not here")
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.arange(6.0, device=device)
    y = dlx.convert(torch.ones(6, device=device), dlx.Tensor)
    out = torch.empty(6, device=device)
    add(x, y, out, 6)
    print(f"{add} on {device}: {out.tolist()}")


if __name__ == "__main__":
    main()
