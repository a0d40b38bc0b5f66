"""Programs of MLX."""

from __future__ import annotations

from random import Random

from .first_tensor import draw_numbers
from .program import Library, one_of

DTYPES = (
    "float32 int32 int64 bool_ uint8 complex64 float16 bfloat16 int8 uint16 uint32 "
    "uint64 int16 float64"
)

STEPS = (
    "x = x[0]",
    "x = x[1:]",
    "x = x[::-1]",
    "x = x[::2]",
    "x = x[..., 0]",
    "x = x.T",
    "x = x.reshape(-1)",
    "x = x[None]",
    "x = x.conj()",
    "x = x.real",
    "x = x.imag",
    "x = x + x",
    "x = -x",
    "x = mx.broadcast_to(x, (2, *x.shape))",
    "x = mx.as_strided(x, (2, 2), (1, 0)) if x.size > 3 else x",
    "x = mx.transpose(x)",
    "x = mx.array(x)",
    "x = mx.contiguous(x)",
    "x = mx.stop_gradient(x)",
    "x = x.view(mx.uint8)",
    "x = x.astype(mx.float32)",
    "x = x.astype(mx.bfloat16)",
    "mx.eval(x)",
    "v = x + 1",
    "v = x[:1]",
    "x[0] = 5",
    "v = x; x[0] = 5",
    "x = mx.compile(lambda t: t + t)(x)",
    "x = mx.vmap(lambda t: t * 2)(x)",
    "x = mx.grad(lambda t: (t * t).sum())(x)",
    "x = mx.array(np.arange(1, 17))",
    "x = copy.copy(x)",
    "x = copy.deepcopy(x)",
    "x = np.array(x)",
    "x = np.array(x, copy=False)",
    "x = memoryview(x)",
)
FRAMES = (
    "mx.vmap(lambda x: look(x, TEXT))(x)",
    "mx.grad(lambda x: look(x, TEXT).sum())(x)",
    "mx.compile(lambda x: look(x, TEXT))(x)",
    "with mx.stream(mx.cpu): look(x, TEXT)",
    "look(x * 1, TEXT)",
)


def start(r: Random) -> str:
    """Draw the first line."""
    numbers, dtype = draw_numbers(r, DTYPES)
    return f"x = mx.array({numbers}).astype(mx.{dtype})"


step = one_of(STEPS)
LIBRARY = Library(start, step, FRAMES, ("mx",))
