"""Rules for what instances export."""

from __future__ import annotations

from typing import Any

from .case import Case, description, elements, owns_table

__all__ = ["EXPORTS"]

_NOWHERE = (16, 0)  # a device that dlx does not move tensors to


def _has_table(case: Case) -> None:
    case.check(
        "the class has an exchange table of its own",
        "call super().__init_subclass__(**keywords) in each __init_subclass__ "
        "of its bases",
    )
    if not owns_table(case.cls):
        raise case.broken("it has that of a base")


def _is_made(case: Case) -> None:
    case.check("make returns new instances of the class", "change make")
    x = case.call("make", case.make)
    if type(x) is not case.cls:
        raise case.broken(f"it returned {type(x).__qualname__}")
    case.check(
        "instances can be exported",
        "export anything that dlx.from_dlpack accepts, and let make return an instance "
        "with elements",
    )
    if not case.read(x).size:
        raise case.broken("the instance has no elements")


def _is_stable(case: Case) -> None:
    case.check(
        "each export describes the same tensor",
        "return the same tensor from __dlx_export__ each time",
    )
    x = case.make()
    first, second = case.read(x), case.read(x)
    if description(first) != description(second):
        raise case.broken(f"two exports are {first} and {second}")
    if case.shares_memory:
        case.check(
            "exports share memory",
            "return what the instance holds, or pass shares_memory=False if the export "
            "is computed",
        )
        if first.data_ptr != second.data_ptr:
            raise case.broken("two exports have different addresses")


def _agrees(case: Case) -> None:
    case.check(
        "__dlpack__ exports what dlx reads",
        "list the mixin before other bases, and do not override __dlpack__",
    )
    x = case.make()
    ours, theirs = case.read(x), case.capsule(x)
    if description(ours) != description(theirs) or (
        case.shares_memory and ours.data_ptr != theirs.data_ptr
    ):
        raise case.broken(f"they are {theirs} and {ours}, or in different memory")
    case.check(
        "__dlpack_device__ names the device of the export",
        "list the mixin before other bases, and do not override __dlpack_device__",
    )
    device = ours.device
    named = case.call("__dlpack_device__", x.__dlpack_device__)
    if named != (device.type, device.id):
        raise case.broken(f"it returned {named!r} for memory on {device}")
    case.check(
        "a consumer that does not ask for DLPack 1 gets an unversioned capsule",
        "pass max_version on in __dlpack__, or do not override it",
    )
    for version in (None, (0, 8)):
        try:
            capsule = x.__dlpack__(max_version=version)
        except BufferError:
            continue  # Read-only memory has no such capsule.
        except Exception as error:
            found = f"__dlpack__ raised {type(error).__name__}: {error}"
            raise case.broken(found) from error
        if "_versioned" in repr(capsule):
            raise case.broken(f"it gets {capsule!r}")


def _copies(case: Case) -> None:
    case.check(
        "copy=True gives memory of its own, with the same elements",
        "pass copy on in __dlpack__, or do not override it",
    )
    x = case.make()
    own, copied = case.capsule(x), case.capsule(x, copy=True)
    if case.shares_memory and own.data_ptr == copied.data_ptr:
        raise case.broken("the copy has the address of the original")
    if elements(own) != elements(copied):
        raise case.broken(f"the copy of {own} is {copied}, with other elements")


def _refuses(case: Case) -> None:
    x = case.make()
    pass_on = "pass the keyword on in __dlpack__, or do not override it"
    case.check("a device that cannot be served is a BufferError", pass_on)
    _refused(case, x, dl_device=_NOWHERE)
    _refused(case, x, dl_device=_NOWHERE, copy=False)
    if case.read(x).device == "cpu":
        case.check("a stream for memory on the CPU is a BufferError", pass_on)
        _refused(case, x, stream=1)
        _refused(case, x, stream=-1)


def _refused(case: Case, x: Any, **keywords: Any) -> None:
    asked = ", ".join(f"{name}={value!r}" for name, value in keywords.items())
    try:
        x.__dlpack__(max_version=(1, 3), **keywords)
    except BufferError:
        return
    except Exception as error:
        found = f"__dlpack__({asked}) raised {type(error).__name__}: {error}"
        raise case.broken(found) from error
    raise case.broken(f"__dlpack__({asked}) exported")


EXPORTS = (_has_table, _is_made, _is_stable, _agrees, _copies, _refuses)
