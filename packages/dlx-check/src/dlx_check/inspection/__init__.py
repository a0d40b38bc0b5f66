"""``dlx.inspect``: what DLPack says of one object. Imported on first use."""

from __future__ import annotations

from dlx_check.abi import is_capsule
from dlx_check.inspection.capsules import read_capsule, read_table
from dlx_check.inspection.objects import inspect_object, inspect_type
from dlx_check.inspection.records import Capsule, Inspection

__all__ = ["Inspection", "inspect"]


def inspect(x: object, *, exports: bool = True) -> Inspection:
    """Return what DLPack says of ``x``; see `dlx.inspect`."""
    if is_capsule(x):
        return _inspect_capsule(x)
    if issubclass(type(x), type):
        return inspect_type(x)  # type: ignore[arg-type]
    return inspect_object(x, exports=exports)


def _inspect_capsule(x: object) -> Inspection:
    found = read_capsule(x)
    name, address = found.capsule.name, found.capsule.pointer
    table = None
    if name == "dlpack_exchange_api" and address is not None:
        table = read_table(address, None)
    return Inspection(
        subject=_kind(found.capsule),
        table=table,
        capsule=found.capsule,
        managed=found.managed,
        tensor=found.tensor,
        unreadable=found.unreadable,
    )


def _kind(capsule: Capsule) -> str:
    name = capsule.name
    if name in ("dltensor", "dltensor_versioned"):
        return "capsule with a tensor, not used"
    if name in ("used_dltensor", "used_dltensor_versioned"):
        return "capsule that was used: its pointer may lead nowhere, and is not read"
    if name == "dlpack_exchange_api":
        return "capsule with an exchange table"
    return "capsule that is not DLPack's"
