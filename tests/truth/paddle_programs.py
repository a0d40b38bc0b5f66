"""Programs of Paddle."""

from __future__ import annotations

from random import Random

from .first_tensor import draw_numbers
from .program import Library, one_of

DTYPES = (
    "float32 float64 int32 int64 bool uint8 complex64 complex128 float16 bfloat16 int8 "
    "int16 float8_e4m3fn float8_e5m2"
)

STEPS = (
    "x = x[0]",
    "x = x[1:]",
    "x = x[::-1]",
    "x = x[::2]",
    "x = x[..., 0]",
    "x = x.T",
    "x = x.transpose([1, 0])",
    "x = x.t()",
    "x = x.reshape([-1])",
    "x = x.flatten()",
    "x = x.unsqueeze(0)",
    "x = x.squeeze()",
    "x = x.expand([2, *x.shape])",
    "x = x.conj()",
    "x = x.real()",
    "x = x.imag()",
    "x = x + x",
    "x = -x",
    "x = x.clone()",
    "x = x.detach()",
    "x = x.contiguous()",
    "x = paddle.as_strided(x, (2, 2), (1, 1)) if x.size > 3 and x.is_dense() else x",
    "x = paddle.as_strided(x, (3,), (0,)) if x.size and x.is_dense() else x",
    # Paddle counts the offset of a view in elements of the new type, and reads beyond.
    "x = paddle.view(x.clone(), 'int16')",
    "x = x.astype('float32')",
    "x.stop_gradient = False",
    "x.stop_gradient = False; x = x * 2",
    "x.stop_gradient = False; x = x.detach()",
    "x.stop_gradient = False; x = x[...]",
    "x.stop_gradient = False; (x * x).sum().backward(); x = x.grad",
    "with paddle.no_grad(): x = x * 1",
    "paddle.seed(1); x = paddle.create_parameter([2, 3], 'float32')",
    "paddle.seed(1); x = paddle.nn.Linear(2, 3).weight",
    "paddle.seed(1); x = paddle.nn.Linear(2, 3).state_dict()['weight']",
    "x = x.to_sparse_coo(1)",
    "x = x.to_sparse_csr()",
    "x = paddle.zeros_like(x)",
    "x = paddle.to_tensor('abc')",
    "x = paddle.to_tensor(np.arange(6.))",
    "x.zero_()",
    "x.add_(x)",
    "x.reshape_([-1])",
    "x.unsqueeze_(0)",
    "x[0] = 5",
    "x._clear_data()",
    "x = paddle.jit.to_static(lambda t: t)(x)",
    "x = paddle.vision.transforms.functional.hflip(x)",
    "x = copy.copy(x)",
    "x = copy.deepcopy(x)",
    "x = x.numpy()",
    "x = x.value()",
    "x = x.get_tensor()",
)
FRAMES = (
    "with paddle.no_grad(): look(x, TEXT)",
    "look(x.detach(), TEXT)",
    "look(x.clone(), TEXT)",
)


def start(r: Random) -> str:
    """Draw the first line."""
    numbers, dtype = draw_numbers(r, DTYPES)
    if dtype.startswith(("bfloat", "float8")):
        return f"x = paddle.to_tensor({numbers}.astype('f4')).astype('{dtype}')"
    return f"x = paddle.to_tensor({numbers}.astype('{dtype}'))"


step = one_of(STEPS)
LIBRARY = Library(start, step, FRAMES, ("paddle",))
