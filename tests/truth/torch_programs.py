"""Programs of torch."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from .program import Library

SHAPES = ((3,), (2, 3), (), (0,), (1,), (2, 3, 4), (4, 4), (2, 0, 3), (1, 5), (33,))
DTYPES = (
    "float32 complex64 complex64 complex128 float64 int64 int32 int16 int8 uint8 bool "
    "float16 bfloat16 uint16 uint32 uint64 complex32 float8_e4m3fn float8_e5m2 "
    "float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
)

ANY = (
    "x = x.detach()",
    "x = x.detach()",
    "x = x.data",
    "x = x.conj()",
    "x = x.conj()",
    "x = x.imag",
    "x = x.real",
    "x = torch._neg_view(x)",
    "x = x.resolve_conj()",
    "x = x.resolve_neg()",
    "x = x.clone()",
    "x = x.contiguous()",
    "x = x[None]",
    "x = x.reshape(-1)",
    "x = x.view(-1)",
    "x = x.flatten()",
    "x = x.squeeze()",
    "x = x.unsqueeze(-1)",
    "x = x[...]",
    "x = x.expand(3, *x.shape)",
    "x = x + x",
    "x = -x",
    "x = x * (1 + 2j)",
    "x = x.abs()",
    "x = x.view_as(x)",
    "x = x.as_strided((), ())",
    "x = x.new_zeros(3)",
    "x = torch.zeros_like(x)",
    "x = copy.copy(x)",
    "x = copy.deepcopy(x)",
    "x = pickled(x)",
    "x = saved(x)",
    "x = torch.view_as_real(x)",
    "x = torch.view_as_complex(x)",
    "x = torch.ops.aten.alias(x)",
    # Of a clone: a lazy clone of a loaded tensor ends the process, also without dlx.
    "x = torch._lazy_clone(x.clone())",
    "w = x.clone(); x = torch._lazy_clone(w)",
    "x = x.clone(); w = torch._lazy_clone(x)",
    "x = x.type(torch.float32)",
    "x = x.to(torch.complex64)",
    "x = x.view(torch.uint8)",
    "x = x.view(torch.int16)",
    "x = x.view(torch.bfloat16)",
    "x = x.view(torch.float16)",
    "x = torch.as_tensor(x)",
    "x = torch.asarray(x)",
    "x = torch.tensor(x.tolist())",
    "x = x.share_memory_()",
    "x = x.pin_memory() if torch.cuda.is_available() else x",
    "x = vetoed(x)",
)
GRADS = (
    "x = x.requires_grad_()",
    "x = x.requires_grad_().conj().detach()",
    "x = x.requires_grad_().conj().imag.detach()",
    "x = torch._neg_view(x.requires_grad_()).detach()",
    "x = x.requires_grad_() * 1",
    "x = x.requires_grad_(False)",
    "x = torch.nn.Parameter(x)",
    "x = torch.nn.Parameter(x, requires_grad=False)",
    "x = torch.nn.Parameter(x.conj()).data",
    "x = x.detach().requires_grad_(); x.conj().real.sum().backward(); x = x.grad",
    "x = x.detach().requires_grad_(); x.conj().imag.sum().backward(); x = x.grad",
    "x = x.detach().requires_grad_(); "
    "(x.conj() * 2).sum().abs().backward(); x = x.grad",
    "x = x.detach().requires_grad_(); "
    "x, = torch.autograd.grad(x.conj().real.sum(), x, create_graph=True)",
    "m = torch.nn.Module(); m.p = torch.nn.Parameter(x); x = m.state_dict()['p']",
    "m = torch.nn.Module(); m.register_buffer('b', x); x = m.state_dict()['b']",
    "with torch.no_grad(): x = x.requires_grad_().conj()",
    "with torch.no_grad(): x = x.requires_grad_()[...]",
    "with torch.inference_mode(): x = x * 1",
    "with torch.inference_mode(): x = x.clone().conj()",
    "with torch.inference_mode(): x = x.conj()",
    "with torch.inference_mode(): x = torch._neg_view(x.clone())",
    "with torch.inference_mode(): x = x.requires_grad_()",
    "x.grad = torch.ones_like(x).conj()",
    "x.grad = x.detach().conj(); x = x.grad",
    "x = torch.fft.ihfft(x)",
    "x = torch.fft.ihfft(x.requires_grad_()).detach()",
    "x = torch.fft.rfft(x)",
    "x = torch.linalg.svd(x)[2]",
    "x = torch.linalg.svd(x.requires_grad_())[2].detach()",
    "x = torch.linalg.eig(x)[1].mH",
    "x = torch.func.vmap(lambda t: t.conj())(x)",
    "x = torch.func.vmap(lambda t: torch._neg_view(t))(x)",
    "x = func.grad(lambda t: t.conj().real.sum())(x)",
    "x = func.jvp(lambda t: t.conj(), (x,), (x,))[1]",
    "x = func.functionalize(lambda t: t.conj())(x)",
    # The result has the square of the number of elements.
    "x = func.jacrev(lambda t: t.conj().real)(x) if x.numel() < 50 else x",
)
IN_PLACE = (
    "x.t_()",
    "x.transpose_(0, 1)",
    "x.squeeze_()",
    "x.unsqueeze_(0)",
    "x.resize_(2).zero_()",
    "x.resize_(2, 2).zero_()",
    "x.resize_(0)",
    "x.set_(torch.arange(4).to(x.dtype))",
    "x.set_()",
    "x.data = torch.arange(5).to(x.dtype)",
    "x.data = x.data.conj()",
    "x.data = torch._neg_view(x.data)",
    "x.detach_()",
    "x.conj_physical_()",
    "x.add_(1)",
    "x.zero_()",
    "x.swapaxes_(0, -1)",
    "x.as_strided_((2,), (1,))",
    "x.untyped_storage().resize_(4096).fill_(0)",
    "x.untyped_storage().resize_(0)",
    "x.set_(x.untyped_storage(), 0, (1,), (1,)) if x.numel() else x",
    "torch._C._set_conj(x, True)",
    "torch._C._set_neg(x, True)",
    "x[0] = float('nan')",
    "x[0] = float('-inf')",
)
OTHERS = (
    "x = x.to('meta')",
    "x = x.to_sparse()",
    "x = x.to_sparse_csr()",
    "x = x.to_sparse().coalesce().values()",
    "x = x.to_sparse().coalesce().indices()",
    "x = x.to_mkldnn()",
    "x = torch.quantize_per_tensor(x.float(), 0.5, 1, torch.quint8)",
    "x = torch.quantize_per_tensor(x.float(), 0.5, 1, torch.qint8).int_repr()",
    "x = torch.nested.nested_tensor([x, x])",
    "x = nested.nested_tensor([x, x], layout=torch.jagged)",
    "x = torch.nested.nested_tensor([x, x]).values()",
    "x = fake_mode().from_tensor(x)",
    "x = x.as_subclass(Subclass)",
    "x = x.as_subclass(Talking)",
    "x = two_tensor(x)",
    "x = torch._to_functional_tensor(x)",
    "x = torch._efficientzerotensor(x.shape, dtype=x.dtype)",
    "x = leaked(torch.func.vmap, x)",
    "x = leaked(func.grad, x)",
    "x = torch.masked.masked_tensor(x, x == x)",
    "x = x[0].expand(2, 0)",
    "x = x.untyped_storage()",
    "x = ReadOnly(x)",
    "x = ReadOnly(x)",
    "x = x.view(torch.{small})",
    "x = distributed(x)",
    "x = torch.nn.UninitializedParameter()",
)
SMALL = "int1 int2 int4 int7 uint1 uint3 uint4 uint6 bits8"
FRAMES = (
    "with torch.no_grad(): look(x, TEXT)",
    "with torch.inference_mode(): look(x, TEXT)",
    "with fake_mode(): look(x, TEXT)",
    "torch.func.vmap(lambda x: look(x, TEXT))(x)",
    "func.grad(lambda x: look(x, TEXT).sum())(x)",
    "func.functionalize(lambda x: look(x, TEXT))(x)",
    "func.jvp(lambda x: look(x, TEXT), (x,), (x,))",
    "with dual_level(): look(dual(x), TEXT)",
    "look([x][0].detach(), TEXT)",
    "traced(lambda x: look(x, TEXT), x)",
    "with Refusing(): look(x, TEXT)",
)


def start(r: Random) -> str:
    """Draw the first line."""
    shape = r.choice(SHAPES)
    dtype = r.choice(DTYPES.split())
    size = math.prod(shape)
    made = f"torch.arange(1, {size + 1}).reshape({shape})"
    if dtype == "bool":
        return f"x = {made} % 3 == 0"
    made += f".to(torch.{dtype})"
    return f"x = {made} * (1 + 2j)" if dtype.startswith("complex") else f"x = {made}"


def view(r: Random, x: Any) -> str:
    """Draw a line that changes the dimensions."""
    if x.ndim == 0:
        return "x = x.expand(3)"
    axis, other = r.randrange(x.ndim), r.randrange(x.ndim)
    return r.choice(
        (
            "x = x[1:]",
            "x = x[::2]",
            "x = x[0]",
            "x = x[..., 1:]",
            "x = x[..., 0]",
            f"x = x.transpose({axis}, {other})",
            f"x = x.movedim({axis}, {other})",
            f"x = x.select({axis}, 0)",
            f"x = x.narrow({axis}, 1, 1)",
            f"x = x.unfold({axis}, 2, 1)",
            f"x = x.flip({axis})",
            f"x = x.diagonal(0, {axis}, {other})",
            f"x = x.chunk(2, {axis})[-1]",
            f"x = x.swapaxes({axis}, {other})",
            "x = x.mT",
            "x = x.T",
            "x = x.mH",
            "x = x.adjoint()",
            "x = x.as_strided((2, 2), (1, 1))",
            "x = x.as_strided((3,), (0,))",
            "x = x.expand(2, *x.shape)",
            "x = x.unbind()[-1]",
            "x = x[:0]",
        )
    )


def has_dimensions(x: Any) -> bool:
    """Whether there are dimensions that views can change."""
    try:
        return hasattr(x, "ndim")
    except RuntimeError:  # a tensor that can only be exported
        return False


def step(r: Random, x: Any) -> str:
    """Draw a line."""
    kind = r.randrange(16)
    if kind < 5:
        return r.choice(ANY)
    if kind < 8 and has_dimensions(x):
        return view(r, x)
    if kind < 11:
        return r.choice(GRADS)
    if kind < 13:
        return r.choice(IN_PLACE)
    if kind < 14:
        return r.choice(OTHERS).replace("{small}", r.choice(SMALL.split()))
    return r.choice(
        ("x = x.conj()", "x = x.detach()", "x = x.requires_grad_()", "x = x.data")
    )


LIBRARY = Library(start, step, FRAMES, ("torch",))
