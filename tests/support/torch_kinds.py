"""Tensors of every kind that torch makes on the CPU, and every way into dlx.

Each way returns the numbers as a nested list, or raises.
`python -m support.torch_kinds` tries every kind in every way.
"""

from __future__ import annotations

import ctypes
import re
import warnings
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import tvm_ffi

from support.dlpack_abi import DLTensor, table_of
from support.dlx_producers import ByMethod, Stored
from support.optional_libraries import requires

torch = requires("torch")

Make = Callable[[], Any]


def numbers(**keywords: Any) -> Any:
    """Three complex numbers, neither real nor imaginary."""
    values = [1 + 2j, 3 - 4j, -5 + 6j]
    return torch.tensor(values, dtype=torch.complex64, **keywords)


def gradient() -> Any:
    """Return the gradient of a leaf after a backward pass through `conj()`."""
    leaf = numbers(requires_grad=True)
    (leaf.conj() * numbers()).sum().abs().backward()
    return leaf.grad


def inferred(make: Make) -> Make:
    """Make it in inference mode."""

    def inside() -> Any:
        with torch.inference_mode():
            return make()

    return inside


def quiet(make: Make) -> Make:
    """Make it without torch's deprecation warnings."""

    def inside() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make()

    return inside


def parameter(tensor: Any) -> Any:
    """Return a parameter that records no gradients."""
    return torch.nn.Parameter(tensor, requires_grad=False)


def subclassed(tensor: Any) -> Any:
    """Return it as a subclass of `torch.Tensor`."""
    return tensor.as_subclass(type("Sub", (torch.Tensor,), {}))


def quantized() -> Any:
    """Return three numbers in eight bits each."""
    return torch.quantize_per_tensor(torch.arange(3.0), 0.5, 0, torch.qint8)


def nested(layout: Any) -> Any:
    """Return two rows of different length."""
    rows = [torch.arange(2.0), torch.arange(3.0)]
    return torch.nested.nested_tensor(rows, layout=layout)


def square() -> Any:
    """Return two matrices of equal size in a jagged tensor."""
    rows = [torch.arange(4.0).reshape(2, 2)] * 2
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def narrowed() -> Any:
    """Return parts of rows, with gaps between them."""
    starts, lengths = torch.tensor([0, 1]), torch.tensor([1, 2])
    return torch.nested.narrow(
        torch.ones(2, 4), 1, starts, lengths, layout=torch.jagged
    )


def changed_base() -> Any:
    """Return a view whose base came to record gradients in place."""
    base = torch.zeros(3)
    view = base[:2]
    base.mul_(torch.ones(3, requires_grad=True))
    return view


PLAIN: dict[str, Make] = {
    "plain": lambda: torch.arange(6.0).reshape(2, 3),
    "complex": numbers,
    "whole": lambda: torch.arange(3),
    "view": lambda: torch.arange(6.0).reshape(2, 3)[1:],
    "view of a view": lambda: torch.arange(12.0).reshape(3, 4).t()[1:, ::2],
    "expanded": lambda: torch.arange(3.0).expand(2, 3),
    "0-d of a slice": lambda: torch.arange(3.0)[1],
    "detached": lambda: torch.arange(3.0).requires_grad_().detach(),
    "data": lambda: torch.arange(3.0).requires_grad_().data,
    "no_grad view": lambda: torch.no_grad()(lambda x: x[1:])(torch.arange(3.0)),
    "Parameter": lambda: parameter(torch.arange(3.0)),
    "inference": inferred(lambda: torch.arange(3.0)),
    "inference view": inferred(lambda: torch.arange(3.0)[1:]),
    "real": lambda: numbers().real,
    "conj of conj": lambda: numbers().conj().conj(),
    "copy on write": lambda: torch._lazy_clone(torch.arange(3.0)),
    "grad of real numbers": lambda: torch.autograd.grad(
        (x := torch.ones(3, requires_grad=True)).sum(), x
    )[0],
    "subclass": lambda: subclassed(torch.arange(3.0)),
}
LAZY: dict[str, Make] = {
    "conj": lambda: numbers().conj(),
    "conj, detached": lambda: numbers(requires_grad=True).conj().detach(),
    "conj.data": lambda: numbers().conj().data,
    "conj, imag, detached": lambda: numbers(requires_grad=True).conj().imag.detach(),
    "neg, detached": lambda: torch._neg_view(torch.ones(2)).detach(),
    "neg of conj, detached": lambda: torch._neg_view(numbers().conj()).detach(),
    "ihfft, detached": lambda: torch.fft.ihfft(torch.arange(6.0)).detach(),
    "adjoint, detached": lambda: torch.eye(2, dtype=torch.complex64).mul(1j).mH.data,
    "Parameter of conj": lambda: parameter(numbers().conj()),
    "state of conj": lambda: torch.nn.ParameterList(
        [torch.nn.Parameter(numbers().conj())]
    ).state_dict()["0"],
    "gradient through conj": gradient,
    "inference conj": inferred(lambda: numbers().conj()),
    "inference neg": inferred(lambda: numbers().conj().imag),
    "grad": lambda: torch.arange(3.0).requires_grad_(),
    "grad, view": lambda: torch.arange(3.0).requires_grad_()[1:],
    "grad, by its base": changed_base,
    "grad, conj": lambda: numbers(requires_grad=True).conj(),
    "grad, conj, imag": lambda: numbers(requires_grad=True).conj().imag,
    "grad, neg of conj": lambda: torch._neg_view(numbers(requires_grad=True).conj()),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "sparse CSR": quiet(lambda: torch.eye(2).to_sparse_csr()),
    "sparse BSR": quiet(lambda: torch.eye(4).to_sparse_bsr((2, 2))),
    "sparse, grad": lambda: torch.eye(2).to_sparse().requires_grad_(),
    "MKL-DNN": lambda: torch.arange(4.0).to_mkldnn(),
    "quantized": quiet(quantized),
    "nested": quiet(lambda: nested(torch.strided)),
    "nested, jagged": quiet(lambda: nested(torch.jagged)),
    "nested, transposed": quiet(
        lambda: torch.nested.nested_tensor([torch.eye(2)]).transpose(1, 2)
    ),
    "nested, jagged, transposed": quiet(lambda: square().adjoint()),
    "nested, jagged, with holes": quiet(narrowed),
    "zero": lambda: torch._efficientzerotensor(3),
    "subclass, conj": lambda: subclassed(numbers().conj()),
    "subclass, conj, detached": lambda: subclassed(
        numbers(requires_grad=True).conj().detach()
    ),
    "subclass, neg": lambda: subclassed(numbers().conj().imag.detach()),
    "subclass, grad": lambda: subclassed(torch.arange(3.0).requires_grad_()),
}
KINDS = PLAIN | LAZY


def lent(tensor: Any) -> Any:
    """Return the numbers that a mixin class's table lends."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        # Tables do not ask subclasses: nothing is lent, and a consumer exports instead.
        return np.from_dlpack(tvm_ffi.from_dlpack(Stored(tensor))).tolist()
    out = DLTensor()
    instance = Stored(tensor)
    entry = table_of(Stored).dltensor_from_py_object_no_sync
    assert entry(instance, ctypes.byref(out)) == 0
    shape, strides = out.shape[: out.ndim], out.strides[: out.ndim]
    item = out.dtype.bits // 8
    count = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    memory = (ctypes.c_char * (count * item)).from_address(out.data)
    array = np.frombuffer(memory, {2: "f4", 5: "c8", 0: "i8"}[out.dtype.code])
    steps = [step * item for step in strides]
    return np.lib.stride_tricks.as_strided(array, shape, steps).tolist()


def borrowed(tensor: Any) -> Any:
    """Return the numbers lent to a block."""
    with dlx.borrow(tensor) as (view, _):
        return view.numpy().tolist()


def in_jax(tensor: Any) -> Any:
    """Return it as a JAX array, which has no 64-bit types."""
    jax = requires("jax")
    if tensor.dtype == torch.int64:
        tensor = tensor.to(torch.int32)
    return np.asarray(dlx.convert(tensor, jax.Array)).tolist()


@dlx.bridge(np.ndarray, result=np.ndarray)
def bridged(array: Any) -> Any:
    """Read an array."""
    return array.tolist()


WAYS: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": lambda x: dlx.from_dlpack(x).numpy().tolist(),
    "a copy": lambda x: dlx.from_dlpack(x, copy=True).numpy().tolist(),
    "for a device": lambda x: dlx.from_dlpack(x, device="cpu").numpy().tolist(),
    "convert to NumPy": lambda x: dlx.convert(x, np.ndarray).tolist(),
    "convert to dlx": lambda x: dlx.convert(x, dlx.Tensor).numpy().tolist(),
    "convert to tvm-ffi": lambda x: np.from_dlpack(
        dlx.convert(x, tvm_ffi.Tensor)
    ).tolist(),
    "convert to JAX": in_jax,
    "convert to a mixin class": lambda x: np.from_dlpack(
        dlx.convert(x, Stored)
    ).tolist(),
    "convert_tree": lambda x: dlx.convert_tree({"a": [x]}, np.ndarray)["a"][0].tolist(),
    "borrow": borrowed,
    "bridge": bridged,
    "mixin, by __dlpack__": lambda x: np.from_dlpack(Stored(x)).tolist(),
    "mixin, by a method": lambda x: np.from_dlpack(ByMethod(x)).tolist(),
    "mixin, by its table": lambda x: np.from_dlpack(
        tvm_ffi.from_dlpack(Stored(x))
    ).tolist(),
    "mixin, lent": lent,
}
HARMLESS = {"borrow", "mixin, lent"}
"""Ways that lose no gradient, because a kernel records none."""


def truth(tensor: Any) -> Any:
    """Return the numbers of a tensor, through torch's own operators."""
    with torch.no_grad():
        plain = tensor.as_subclass(torch.Tensor) if _is_sub(tensor) else tensor
        if plain.is_nested:
            plain = plain.contiguous().to_padded_tensor(0.0)
        if plain.layout != torch.strided:
            plain = plain.to_dense()
        if plain.is_quantized:
            plain = plain.dequantize()
        return plain.clone().resolve_conj().resolve_neg().tolist()


def _is_sub(tensor: Any) -> bool:
    return type(tensor).__name__ == "Sub"


def advised(tensor: Any, message: str) -> Any:
    """Return what a message says to pass."""
    found = re.search(r"pass (tensor(\.\w+\([^()]*\))+)(, or|$)", message)
    assert found, message
    return eval(found[1], {"tensor": tensor})


def check(make: Make, way: Callable[[Any], Any]) -> str | None:
    """Return the message if the way refuses, else check the numbers.

    The message's advice must lead to the right numbers, too.
    """
    tensor = make()
    given, message = None, None
    try:
        given = way(tensor)
    except BufferError as error:
        message = str(error)
    if message is not None:
        assert "\n" not in message
        given = way(advised(tensor, message))
    assert given == truth(tensor)
    return message


def main() -> None:
    """Try every kind in every way except JAX, which is slow to start."""
    warnings.simplefilter("ignore")
    del WAYS["convert to JAX"]
    for name, make in KINDS.items():
        for way, read in WAYS.items():
            message = check(make, read)
            assert message is None or name in LAZY, (name, way, message)


if __name__ == "__main__":
    main()
