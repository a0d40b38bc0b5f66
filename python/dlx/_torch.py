"""Python calls to torch: sample tensors, and the reason why a tensor is refused."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    # The tensor; its dispatch key set; whether it has an autograd state, None if that
    # may vary; whether it records gradients; and, if its elements are in memory, the
    # address of its StorageImpl, the start of the memory, and its size in bytes.
    Sample = tuple[Any, int, bool | None, bool, tuple[int, int, int] | None]


def samples(torch: ModuleType) -> list[Sample]:
    """Make tensors of every kind that needs no device and causes no warning."""
    with torch.inference_mode(False), torch.enable_grad():
        real = torch.zeros(2, device="cpu", dtype=torch.float32)
        if type(real) is not torch.Tensor:  # of a mode that makes others
            return []
        whole = torch.zeros(2, 3, device="cpu", dtype=torch.int64)
        number = torch.zeros((), device="cpu", dtype=torch.complex64)
        leaf = torch.zeros(2, device="cpu", dtype=torch.complex64, requires_grad=True)
        conj, detached = leaf.conj(), leaf.detach()
        plain: list[tuple[Any, bool | None]]
        lazy: list[tuple[Any, bool | None]]
        plain = [(real, False), (whole, False), (number, False), (leaf, True)]
        plain += [(detached, None), (leaf * 1, True), (real[1:], True)]
        # Memory that torch did not allocate: the owner is not the data pointer.
        plain += [(torch.frombuffer(bytearray(40), dtype=torch.float64), False)]
        plain += [(whole.t(), True), (detached[:1].detach(), None)]
        lazy = [(conj, True), (conj.imag, True), (torch._neg_view(conj), True)]
        lazy += [(x.detach(), None) for x, _ in lazy]
        meta = torch.zeros(2, device="meta")
        sparse = torch.zeros(2, device="cpu", layout=torch.sparse_coo)
        zero = torch._efficientzerotensor(2, device="cpu")
        lazy += [(meta, False), (sparse, False), (zero, False)]
    with torch.inference_mode():
        inferred = torch.zeros(2, device="cpu", dtype=torch.complex64)
        plain += [(inferred, False), (inferred[1:], None)]
        lazy += [(inferred.conj(), None)]
    keys = torch._C._dispatch_keys
    found: list[Sample]
    found = [(x, keys(x).raw_repr(), has, x.requires_grad, None) for x, has in lazy]
    for x, has in plain:
        storage = x.untyped_storage()
        memory = (storage._cdata, storage.data_ptr(), storage.nbytes())
        found.append((x, keys(x).raw_repr(), has, x.requires_grad, memory))
    return found


def is_offset(tensor: Any, address: int) -> bool:
    """Whether ``address`` is just the byte offset of a tensor without memory."""
    torch_c: Any = sys.modules["torch._C"]
    base = torch_c.TensorBase  # whatever the class says
    with torch_c.DisableTorchFunctionSubclass():
        offset = base.storage_offset(tensor) * base.element_size(tensor)
        return bool(address == offset)


def is_lazy(tensor: Any, on_cpu: bool = False) -> bool:
    """Whether a tensor is a lazily conjugated or negated view; if asked, on the CPU."""
    torch_c: Any = sys.modules["torch._C"]
    base = torch_c.TensorBase  # whatever the class says
    with torch_c.DisableTorchFunctionSubclass():
        lazy = base.is_neg(tensor) or base.is_conj(tensor)
        return bool(lazy and (not on_cpu or base.is_cpu.__get__(tensor)))


def only_exports(tensor: Any) -> bool:
    """Whether a tensor can be exported, and nothing else, as torch's read-only ones."""
    base: Any = sys.modules["torch"].Tensor
    if type(tensor).__dlpack__ is base.__dlpack__:
        return False
    try:
        tensor.detach()
    except RuntimeError:
        return True
    return False


# What a class has by which one gets from its instances, which have no elements of
# their own, to a tensor: the method, and what is said of them.
_WRAPPERS = (
    (
        "to_local",
        "is distributed; pass tensor.to_local(), or tensor.full_tensor() for all of it",
    ),
    ("wait", "is still being communicated; pass tensor.wait()"),
    (
        "get_data",
        "is masked; pass tensor.to_tensor(value), or tensor.get_data() with the masked "
        "elements",
    ),
    ("materialize", "has no elements yet; call tensor.materialize(shape) first"),
)


def refusal(tensor: Any, grad: bool) -> str | None:
    """Explain why DLPack cannot carry a tensor, and which calls help; None if it can.

    ``grad`` tells whether ``requires_grad`` counts.
    """
    torch: Any = sys.modules["torch"]
    is_wrapper = only_exports(tensor)
    with torch._C.DisableTorchFunctionSubclass():
        if lost := _nowhere(torch, tensor):
            return f"the torch tensor {lost}"
        found, calls = _reasons(torch, tensor, grad)
    if not calls:
        return None
    advice = f"pass tensor{''.join(calls)}"
    if is_wrapper:
        advice += ", of the tensor that it wraps"
    elif calls == [".detach()"]:
        advice += ", or detach=True to dlx.convert"
    return f"the torch tensor {', and '.join(found)}; {advice}"


def _nowhere(torch: Any, tensor: Any) -> str | None:
    """Explain what lacks elements of its own, or cannot be turned into what has."""
    for name, why in _WRAPPERS:
        if hasattr(type(tensor), name) and not hasattr(torch.Tensor, name):
            return why
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    if fake is not None and isinstance(tensor, fake.FakeTensor):
        return (
            "is a FakeTensor, which has no elements; expected a tensor with memory: "
            "in what torch compiles or exports, call dlx in a torch.library.custom_op"
        )
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return "is inside a transform of torch.func; expected a tensor outside of it"
    if tensor.is_quantized and not str(tensor.dtype).startswith("torch.q"):
        return (
            f"is quantized and seen as {tensor.dtype}, which torch itself cannot read; "
            "expected the int_repr() of what it is a view of"
        )
    if tensor.is_meta:
        return (
            "is on the meta device, which has no elements; expected a tensor with "
            "memory"
        )
    return None


def _reasons(torch: Any, tensor: Any, grad: bool) -> tuple[list[str], list[str]]:
    """List what is wrong, and the calls that fix it, in calling order."""
    found, calls = [], []

    def note(what: str, call: str) -> None:
        found.append(what)
        calls.append(call)

    if grad and tensor.requires_grad:
        note("requires grad, which DLPack cannot carry", ".detach()")
    if tensor.is_nested:
        # torch cannot pad a nested tensor that is not contiguous.
        contiguous = "" if tensor.is_contiguous() else ".contiguous()"
        note("is nested", f"{contiguous}.to_padded_tensor(0.0)")
    elif tensor.layout != torch.strided:
        note(f"has the layout {tensor.layout}", ".to_dense()")
    if tensor.is_quantized:
        note("is quantized", ".dequantize()")
    if tensor._is_zerotensor():
        note("has no memory, because all its elements are 0", ".clone()")
    if tensor.is_conj():
        note("is a lazily conjugated view", ".resolve_conj()")
    if tensor.is_neg():
        note("is a lazily negated view", ".resolve_neg()")
    return found, calls
