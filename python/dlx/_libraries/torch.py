"""Python calls to torch: sample tensors, and the reason why a tensor is refused."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

_NUMBERS = {"uint8": 0, "int64": 4, "float32": 6, "float64": 7, "complex64": 9}
"""`ScalarType` in torch's `c10/core/ScalarType.h`."""

_NARROW = {f"torch.{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)}


def known_to(cls: type) -> Any:
    """Return torch, as ``torch.Tensor`` knows it; None of any other class."""
    if cls.__module__ == "torch":
        for name in ("__dlpack__", "backward", "__reduce_ex__"):  # if one is replaced
            known = getattr(vars(cls).get(name), "__globals__", {})
            if known.get("__name__") == "torch._tensor":
                return known["torch"]
    return None


def _of(tensor: Any) -> Any:
    """Return torch, as its class knows it: `sys.modules` may have another, or none."""
    known = filter(None, map(known_to, type(tensor).__mro__))
    return next(known, None) or sys.modules["torch"]


@contextmanager
def _untraced(torch: Any) -> Iterator[None]:
    """Leave the trace that is on alone.

    torch abandons the trace in which an operator raises, and ends the process when the
    traced function returns.
    """
    trace = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        yield
    finally:
        torch._C._set_tracing_state(trace)


@contextmanager
def _asking(torch: Any) -> Iterator[None]:
    """Ask tensors outside of a trace, whatever their class says."""
    with _untraced(torch), torch._C.DisableTorchFunctionSubclass():
        yield


def plain(cls: type, tensor: type) -> Any:
    """Return torch, if ``cls`` is ``torch.Tensor`` or ``Parameter``; else None.

    ``tensor`` is the first of its bases that Python made.
    """
    torch = known_to(tensor)
    name = None if cls is tensor else "torch.nn.parameter.Parameter"
    if torch is None or name not in (None, f"{cls.__module__}.{cls.__qualname__}"):
        return None
    return torch


def samples(torch: ModuleType) -> list[SimpleNamespace]:
    """Make tensors of every kind that needs no device and causes no warning.

    Whether one has an autograd state is None if that may vary. If its elements are in
    memory, its storage is the address of its StorageImpl, the start of the memory, and
    its size in bytes.
    """
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
        plain += [(torch.zeros(3, device="cpu", dtype=torch.uint8), False)]
        dual = _dual(torch, real)
        plain += [(dual, True)]
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
    found: list[SimpleNamespace] = []
    for x, has in lazy + plain:
        number = _NUMBERS[str(x.dtype).removeprefix("torch.")]
        memory = None
        if len(found) >= len(lazy):
            storage = x.untyped_storage()
            memory = storage._cdata, storage.data_ptr(), storage.nbytes()
        key_set = keys(x).raw_repr()
        grad = torch._C.TensorBase.requires_grad.__get__(x)  # whatever the class says
        sample = SimpleNamespace(tensor=x, address=x._cdata, keys=key_set)
        sample.number, sample.has_state, sample.records = number, has, grad
        sample.has_tangent, sample.storage = x is dual, memory
        found.append(sample)
    return found


def key_sets(torch: ModuleType, backend: str) -> list[int] | None:
    """Return the key sets of plain tensors, outside and in inference mode.

    They are put together as in torch's `TensorImpl.cpp`, which needs no device. None if
    torch does not name the keys.
    """
    key, key_set = torch._C.DispatchKey, torch._C.DispatchKeySet
    names = [backend, f"Autocast{backend}", f"Autograd{backend}", "ADInplaceOrView"]
    try:
        of, cast, grad, view = (key_set(getattr(key, name)) for name in names)
    except AttributeError:
        return None
    return [(of | cast | grad | view).raw_repr(), (of | cast).raw_repr()]


def _dual(torch: Any, x: Any) -> Any:
    """Return ``x`` with a tangent, by what needs no import."""
    level = torch.autograd.forward_ad._current_level
    if level >= 0:
        return torch._VF._make_dual(x, torch.ones_like(x), level=level)
    level = torch._C._enter_dual_level()
    try:
        return torch._VF._make_dual(x, torch.ones_like(x), level=level)
    finally:
        torch._C._exit_dual_level(level=level)


def is_offset(tensor: Any, address: int) -> bool:
    """Whether ``address`` is just the byte offset of a tensor without memory."""
    torch = _of(tensor)
    base = torch._C.TensorBase
    with _asking(torch):
        offset = base.storage_offset(tensor) * base.element_size(tensor)
        return bool(address == offset)


def is_lazy(tensor: Any) -> bool:
    """Whether a tensor is a lazily conjugated or negated view."""
    torch = _of(tensor)
    base = torch._C.TensorBase
    with _asking(torch):
        return bool(base.is_neg(tensor) or base.is_conj(tensor))


def is_lazy_on_cpu(tensor: Any) -> bool:
    """Whether it is one, on the CPU."""
    torch = _of(tensor)
    with _asking(torch):
        return is_lazy(tensor) and bool(torch._C.TensorBase.is_cpu.__get__(tensor))


def only_exports(tensor: Any) -> bool:
    """Whether a tensor can be exported, and nothing else, as torch's read-only ones."""
    # Most classes have torch's own.
    own = next(filter(known_to, type(tensor).__mro__), None)
    if own is None or type(tensor).__dlpack__ is own.__dlpack__:  # type: ignore[attr-defined]
        return False
    try:
        with _untraced(_of(tensor)):
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


def increment_of(tensor: Any) -> Any:
    """Return the function that tells torch that a sequence of tensors was written to.

    It does nothing if torch has none.
    """
    torch = _of(tensor)
    try:
        torch._C._increment_version(())
    except (AttributeError, TypeError):  # of older versions, which take one tensor
        told = getattr(torch.autograd.graph, "increment_version", None)
        return lambda tensors: [told(x) for x in tensors if told]
    return torch._C._increment_version


def recorded_stream(x: Any, given: Any, handle: int, device: int) -> Any:
    """Return ``given`` as ``x.record_stream`` takes it: torch's only takes its own."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return given
    if isinstance(given, torch.cuda.Stream):
        return given
    return torch.cuda.ExternalStream(handle, device)


def _would_import(torch: Any, tensor: Any) -> bool:
    """Whether an operator would look for torch, and end the process as it is gone.

    Those of classes with operators of their own look for it in `sys.modules`.
    """
    own = getattr(type(tensor), "__torch_dispatch__", None)
    is_own = own is not torch._C._disabled_torch_dispatch_impl
    return is_own and sys.modules.get("torch") is not torch


def has_tangent(tensor: Any) -> bool:
    """Whether a tensor has a tangent of forward-mode AD."""
    torch = _of(tensor)
    # The only level there is, which C++ may have entered without its Python module.
    with _asking(torch):
        # torch ends the process for lazy quantized tensors, and functional ones without
        # memory.
        if torch._C.TensorBase.is_quantized.__get__(tensor):
            return False
        if torch._is_functional_tensor(tensor):
            return False
        if _would_import(torch, tensor):
            return True
        try:
            return torch._VF._unpack_dual(tensor, level=0).tangent is not None
        except Exception:
            # Of a class that refuses this, or that cannot be made again.
            if torch.autograd.forward_ad._current_level >= 0:
                raise
            return False


def records(tensor: Any) -> str | None:
    """Say what torch would record of an operation in place; None if nothing."""
    torch = _of(tensor)
    with _asking(torch):
        grad = torch._C.TensorBase.requires_grad
        if torch._C.is_grad_enabled() and grad.__get__(tensor):
            return "requires grad"
    return "has a tangent" if has_tangent(tensor) else None


def is_whole(tensor: Any) -> bool:
    """Whether an integer of 8 bits is one: torch exports ``int4`` as ``int8``."""
    torch = _of(tensor)
    with _asking(torch):
        return torch._C.TensorBase.dtype.__get__(tensor) in (torch.uint8, torch.int8)


def refusal(tensor: Any, grad: bool) -> str | None:
    """Explain why DLPack cannot carry a tensor, and which calls help; None if it can.

    ``grad`` tells whether ``requires_grad`` counts.
    """
    torch = _of(tensor)
    is_wrapper = only_exports(tensor)
    with _asking(torch):
        if lost := _nowhere(torch, tensor):
            return f"the torch tensor {lost}"
        found, calls = _reasons(torch, tensor, grad)
    if not calls:
        return None
    advice = f"pass tensor{''.join(calls)}"
    if is_wrapper:
        advice += ", of the tensor that it wraps"
    elif calls == [".detach()"]:
        advice += ", or detach=True to dlx.convert or dlx.bridge"
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

    requires_grad = torch._C.TensorBase.requires_grad  # whatever the class says
    if grad and requires_grad.__get__(tensor):
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
    if grad and has_tangent(tensor):
        note("has a tangent, which DLPack cannot carry", ".detach()")
    if (name := str(tensor.dtype)) in _NARROW:
        byte = "uint8" if "uint" in name else "int8"
        note(f"is of {name}, which torch exports as {byte}", f".view(torch.{byte})")
    if tensor.is_neg():
        note("is a lazily negated view", ".resolve_neg()")
    return found, calls
