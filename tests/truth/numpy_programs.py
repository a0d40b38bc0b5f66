"""Programs of NumPy, and of the dtypes of ml_dtypes."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from .program import Library

SHAPES = ((3,), (2, 3), (), (0,), (1,), (2, 3, 4), (4, 4), (2, 0, 3), (1, 5), (70,))
DTYPES = (
    "'f4' 'f8' 'i4' 'i8' 'u1' 'i2' 'i1' 'u2' 'u4' 'u8' 'f2' '?' 'c8' 'c16' "
    "'>f4' '>i2' '>c8' "
    "ml_dtypes.bfloat16 ml_dtypes.float8_e4m3fn ml_dtypes.float8_e5m2 "
    "ml_dtypes.float8_e4m3b11fnuz ml_dtypes.float8_e3m4 ml_dtypes.float8_e8m0fnu "
    "ml_dtypes.float6_e2m3fn ml_dtypes.float4_e2m1fn ml_dtypes.int4 ml_dtypes.uint4 "
    "ml_dtypes.int2"
)

ANY = (
    "x = x.copy()",
    "x = x.view()",
    "x = x[...]",
    "x = x[None]",
    "x = x.reshape(-1)",
    "x = x.ravel('K')",
    "x = np.broadcast_to(x, (3, *x.shape))",
    "x = np.asfortranarray(x)",
    "x = np.squeeze(x)",
    "x = x.T",
    "x = x + x",
    "x = -x",
    "x = np.conj(x)",
    "x = x.real",
    "x = x.imag",
    "x = x.view('u1')",
    "x = x.view('i2')",
    "x = x.view('>u2')",
    "x = x.view('V2')",
    "x = x.view('m8[s]')",
    "x = x.view('M8[ns]')",
    "x = x.astype('f8')",
    "x = x.astype('S3')",
    "x = x.astype('U2')",
    "x = x.astype('O')",
    "x = x.astype(x.dtype.newbyteorder())",
    "x = x.view(x.dtype.newbyteorder())",
    # NumPy exports uninitialized memory for a scalar string.
    "x = x.byteswap() if x.dtype.kind != 'S' else x",
    "x = frozen(x)",
    "x = frozen(x)",
    "x = frozen(x)[...]",
    "x.flags.writeable = False",
    "x = misaligned(x)",
    "x = mapped(x)",
    "x = mapped(x, 'r')",
    "x = mapped(x, 'c')",
    "x = np.frombuffer(x.tobytes(), x.dtype)",
    "x = np.frombuffer(bytearray(x.tobytes()), x.dtype)",
    "x = np.asarray(memoryview(x))",
    "x = np.asarray(memoryview(x).toreadonly())",
    "x = pickled(x)",
    "x = copy.copy(x)",
    "x = copy.deepcopy(x)",
    "x = x.view(np.matrix)",
    "x = x.view(np.recarray)",
    "x = x.view(np.ma.MaskedArray)",
    "x = np.ma.array(x, mask=True)",
    "x = np.ma.array(x)",
    "x = np.ma.array(x, mask=True).data",
    # Another class, where the module was reloaded.
    "x = np.ma.core.array(x, mask=True)",
    "x = np.ma.core.array(x)",
    "x = np.ma.array(x, mask=[True] + [False] * (len(x) - 1))",
    "x = masked.Masked(x, mask=True)",
    "x = masked.Masked(x, mask=x == x)",
    "x = masked.Masked(x)",
    "x = vetoed(x)",
    "x = x.view(Shy)",
    "x = x.view(Firm)",
    "x = np.char.array(['ab', 'c'])",
    "x = x.view(type('Sub', (np.ndarray,), {}))",
    "x = x.view(type('Sub', (np.memmap,), {}))",
    "x = np.lib.stride_tricks.as_strided(x, (3, 2), (0, 0)) if x.size else x",
    "x = np.lib.stride_tricks.as_strided(x, x.shape, x.strides, writeable=False)",
    "x = x[()]",
    "x = np.zeros((2, 3), [('a', x.dtype), ('b', 'i4')])['a']",
    "x = np.zeros((2, 3), [('a', 'i1'), ('b', x.dtype)])['b']",
    "x = np.zeros((2, 3), [('a', x.dtype, 2)])['a']",
    "x = np.zeros((2, 3), [('a', x.dtype), ('b', 'i4')])",
    "x = np.zeros(3, np.dtype((np.void, 4)))",
    "x = np.zeros(3, np.dtype(('i4', [('a', 'i2'), ('b', 'i2')])))",
    "x.setflags(align=False)",
    "x = xp.asarray(x)",
    "x = xp.asarray(frozen(x))",
    "x = np.require(x, requirements='F')",
    "x = np.nditer(x).operands[0]",
    "x = np.from_dlpack(x)",
    "x = x.dtype.type(1)",
)
IN_PLACE = (
    "x.shape = x.shape[::-1]",
    "x.shape = (-1,)",
    "x.shape = (1, *x.shape)",
    "x.resize(2, refcheck=False)",
    "x.sort()",
    "x += 1",
    "x.fill(3)",
    "x[...] = np.nan",
    "x[0] = -np.inf",
    "x.dtype = 'u1'",
    "x.dtype = x.dtype.newbyteorder()",
    "x.strides = x.strides[::-1]",
    "np.ndarray.partition(x, 0)",
)
FRAMES = (
    "look(memoryview(x), TEXT)",
    # Not viewed with another dtype: its padding is undefined.
    "look(np.arange(1, 4).astype('g'), TEXT)",
    "look(x.view(), TEXT)",
    "look(x[...], TEXT)",
)


def start(r: Random) -> str:
    """Draw the first line."""
    shape, dtype = r.choice(SHAPES), r.choice(DTYPES.split())
    size = math.prod(shape)
    made = f"np.arange(1, {size + 1})"
    if "c" in dtype[:3]:
        made += " * (1 + 2j)"
    if dtype == "'?'":
        made += " % 3 == 0"
        return f"x = ({made}).reshape({shape})"
    if "int" in dtype:
        made += " % 2"
        return f"x = ({made}).astype({dtype}).reshape({shape})"
    return f"x = ({made}).astype({dtype}).reshape({shape})"


def view(r: Random, x: Any) -> str:
    """Draw a line that changes the dimensions."""
    if x.ndim == 0:
        return "x = x[None]"
    axis, other = r.randrange(x.ndim), r.randrange(x.ndim)
    return r.choice(
        (
            "x = x[::-1]",
            "x = x[1:]",
            "x = x[::2]",
            "x = x[..., ::-1]",
            "x = x[..., ::-2]",
            "x = x[0]",
            "x = x[..., 0]",
            "x = x[:0]",
            "x = x[::-1, ::-1]",
            f"x = np.swapaxes(x, {axis}, {other})",
            f"x = np.moveaxis(x, {axis}, {other})",
            f"x = np.flip(x, {axis})",
            "x = np.rot90(x)",
            f"x = np.diagonal(x, 0, {axis}, {other})",
            f"x = np.take(x, [0], {axis})",
            f"x = np.lib.stride_tricks.sliding_window_view(x, 2, {axis})",
            "x = np.broadcast_to(x[:1], x.shape)",
            "x = x[x == x]",
        )
    )


def step(r: Random, x: Any) -> str:
    """Draw a line."""
    kind = r.randrange(8)
    if kind < 4 and hasattr(x, "ndim"):
        return view(r, x)
    if kind < 7:
        return r.choice(ANY)
    return r.choice(IN_PLACE)


LIBRARY = Library(start, step, FRAMES)
