"""Rules for how instances are made: of tensors, like others, of new memory."""

from __future__ import annotations

import ctypes
import types
import weakref
from typing import Any

from dlx_check.core import dlx

from .case import Case, elements, owns_table

__all__ = ["INSTANCES"]


def _imports(case: Case) -> None:
    case.check(
        "from_dlpack makes an instance that exports the tensor that it was given",
        "define the class method __dlx_import__(cls, tensor)",
    )
    x = case.make()
    source = case.read(x).to(copy=True)
    made = case.imported(source)
    exported = case.read(made)
    if elements(exported) != elements(source):
        raise case.broken(f"it exports {exported}, with other elements than {source}")


def _reads_strides(case: Case) -> None:
    here = case.read(case.make())
    whole = here.dtype.bits * here.dtype.lanes
    if here.device != "cpu" or whole != 8 * here.dtype.itemsize or here.ndim == 0:
        return
    case.check(
        "from_dlpack reads strides",
        "read tensor.strides in __dlx_import__, or raise BufferError for a tensor with "
        "gaps",
    )
    wide = dlx.empty((*here.shape[:-1], max(8, 2 * here.shape[-1])), here.dtype)
    size = here.dtype.itemsize
    # Zeros and others, of which each second makes another row.
    data = b"".join(bytes(size - 1) + bytes([i % 5 < 2]) for i in range(wide.size))
    ctypes.memmove(wide.data_ptr, data, wide.nbytes)
    source = wide[..., ::2]
    try:
        usual = case.cls.from_dlpack(source.to(copy=True))
        made = case.cls.from_dlpack(source)
    except Exception:
        return  # A class may refuse it.
    exported = case.read(made)
    is_usual = elements(case.read(usual)) == elements(source)
    if is_usual and elements(exported) != elements(source):
        raise case.broken(f"it exports {exported}, with other elements than {source}")


def _keeps_dtypes(case: Case) -> None:
    x = case.make()
    here = case.read(x)
    if here.device != "cpu" or not case.shares_memory:
        return
    case.check(
        "from_dlpack changes no dtype",
        "raise BufferError in __dlx_import__ for a dtype that the class has not, "
        "and cast nothing in __init__",
    )
    for dtype in "float64", "int16":
        source = dlx.empty(here.shape, dtype)
        ctypes.memset(source.data_ptr, 0, source.nbytes)
        try:
            made = case.cls.from_dlpack(source)
        except Exception:
            continue  # A class may refuse it.
        exported = case.read(made)
        if exported.dtype != dtype:
            raise case.broken(f"it exports {exported} for {source}")


class _Owner:
    """An owner of memory whose end can be observed."""

    def __init__(self, tensor: dlx.Tensor) -> None:
        self.tensor = tensor


def _owned(tensor: dlx.Tensor, readonly: bool = False) -> tuple[dlx.Tensor, Any]:
    """Return a copy on the CPU, and a weak reference that dies with its memory."""
    copy = tensor.to(copy=True)
    owner = _Owner(copy)
    over = dlx.from_pointer(
        copy.data_ptr, copy.shape, copy.dtype, owner=owner, readonly=readonly
    )
    return over, weakref.ref(owner)


def _keeps_imports(case: Case) -> None:
    x = case.make()
    here = case.read(x)
    if here.device != "cpu":
        return
    case.check(
        "an instance keeps the memory alive that it was made from",
        "store the tensor that __dlx_import__ gets, or pass it as owner= "
        "to dlx.from_pointer",
    )
    source, lives = _owned(here)
    address = source.data_ptr
    made = case.imported(source)
    del source
    if case.read(made).data_ptr == address and lives() is None:
        raise case.broken("it exports memory that has been released")
    case.check(
        "read-only memory stays read-only",
        "pass readonly=tensor.readonly to dlx.from_pointer, or copy the elements",
    )
    source, _ = _owned(here, readonly=True)
    try:
        made = case.cls.from_dlpack(source)
    except BufferError:
        return  # A class may refuse it.
    exported = case.read(made)
    if exported.data_ptr == source.data_ptr and not exported.readonly:
        raise case.broken("an instance over read-only memory exports it as writable")


def _is_like(case: Case) -> None:
    case.check(
        "__dlx_like__ makes an instance over the tensor that it was given",
        "return a new instance of type(self) from __dlx_like__(self, tensor)",
    )
    x = case.make()
    own = case.read(x)
    source = own.to(copy=True)
    made = case.call("dlx.convert", dlx.convert, source, x)
    exported = case.read(made)
    if case.shares_memory and exported.data_ptr == own.data_ptr:
        raise case.broken("the new instance has the memory of the old one")
    if elements(exported) != elements(source):
        raise case.broken(f"it exports {exported}, with other elements than {source}")


def _allocates(case: Case) -> None:
    case.check(
        "__dlx_empty__ allocates new, writable memory as requested",
        "return another, writable object of that shape, dtype and device each time",
    )
    x = case.make()
    here = case.read(x)
    wanted = here.shape, here.dtype, here.device
    hook = case.cls.__dlx_empty__
    memory = [case.call("__dlx_empty__", hook, *wanted) for _ in range(2)]
    first, second = tensors = [case.read(x) for x in memory]
    for tensor in tensors:
        if (tensor.shape, tensor.dtype, tensor.device) != wanted or tensor.readonly:
            raise case.broken(f"it returned {tensor!r} for {wanted}")
    if first.data_ptr == second.data_ptr:
        raise case.broken("it returned the same memory twice")
    shape, dtype, device = wanted
    case.call("dlx.empty", dlx.empty, shape, dtype, device=device, like=case.cls)


def _is_inherited(case: Case) -> None:
    name = f"{case.cls.__name__}Further"
    try:
        further: Any = types.new_class(name, (case.cls,))
    except TypeError:
        return  # The class is final, or takes keywords.
    case.check(
        "a subclass has an exchange table of its own",
        "call super().__init_subclass__(**keywords) in __init_subclass__",
    )
    if not owns_table(further):
        raise case.broken("it has that of its base")
    case.check(
        "from_dlpack of a subclass makes an instance of the subclass",
        "make instances of cls in __dlx_import__(cls, tensor)",
    )
    x = case.make()
    source = case.read(x).to(copy=True)
    case.call("from_dlpack of a subclass", further.from_dlpack, source)


INSTANCES = (
    *(_imports, _reads_strides, _keeps_dtypes, _keeps_imports),
    *(_is_like, _allocates, _is_inherited),
)
