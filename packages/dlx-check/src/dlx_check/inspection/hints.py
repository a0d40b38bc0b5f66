"""What libraries are known to do that their exports do not say.

The package's `tests/test_inspect_hints.py` shows each entry with the installed library.
The versions are those in which it was seen, so an entry ends at the newest one that was
run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlx_check.core import dlx
from dlx_check.inspection.records import Hint

__all__ = ["KNOWN", "Known", "hints_for", "library_of", "module_of"]


def _always(x: Any) -> bool:
    return True


def _torch_says(x: Any, name: str) -> bool:
    """Ask the base of torch's classes, whatever the class of a tensor allows."""
    torch_c: Any = sys.modules["torch._C"]
    with torch_c.DisableTorchFunctionSubclass():
        return bool(getattr(torch_c.TensorBase, name)(x))


@dataclass(frozen=True)
class Known:
    """One thing that a library does, and to which of its tensors it applies."""

    module: str
    """The module with the `__version__`."""
    oldest: str
    newest: str
    text: str
    applies: Callable[[Any], bool] = _always


_IMMUTABLE = (
    "its tensors are immutable, which its unversioned capsules cannot say: "
    "a consumer that writes, as torch may, changes them"
)

_IMMUTABLE_UNLESS_ASKED = (
    "its arrays are immutable, and exported as READ_ONLY only to a consumer that "
    "passes max_version: others may write to them"
)

KNOWN = (
    Known(
        "torch",
        "2.15.0",
        "2.15.0",
        "exports hold the tensor, not its storage: x.data = y or x.set_() frees the "
        "memory under them, so export x.detach(); x.share_memory_() frees it, too, so "
        "call that first",
    ),
    Known(
        "torch",
        "2.15.0",
        "2.15.0",
        "this is a negative view, whose exports show the elements without the sign: "
        "export x.resolve_neg()",
        lambda x: _torch_says(x, "is_neg"),
    ),
    Known(
        "torch",
        "2.15.0",
        "2.15.0",
        "this is a conjugated view, which the table exports not conjugated: "
        "export x.resolve_conj()",
        lambda x: _torch_says(x, "is_conj"),
    ),
    Known("jaxlib", "0.10.2", "0.10.2", _IMMUTABLE),
    Known("jaxlib", "0.12.0.1", "0.12.0.1", _IMMUTABLE_UNLESS_ASKED),
    Known("mlx.core", "0.32.4", "0.32.4", _IMMUTABLE),
    Known("tensorflow", "2.21.0", "2.21.0", _IMMUTABLE),
    Known("pyarrow", "26.0.1", "26.0.1", _IMMUTABLE_UNLESS_ASKED),
    Known(
        "tvm_ffi",
        "0.1.15",
        "0.1.15",
        "it drops READ_ONLY of what it imports, so this memory may be protected",
    ),
)
"""Every hint, in the order of the report."""


def module_of(class_: type) -> str:
    """Return what a class calls its module; "" for one without."""
    module = getattr(class_, "__module__", "")
    return module if isinstance(module, str) else ""


def library_of(class_: type) -> tuple[str, str] | None:
    """Return the top module of a class and its version, if it states one."""
    name = module_of(class_).partition(".")[0]
    version = getattr(sys.modules.get(name), "__version__", None)
    return (name, version) if isinstance(version, str) else None


def hints_for(x: object) -> tuple[Hint, ...]:
    """Return what is known of the library of ``x``, in the version that is loaded."""
    # Its modules, devices and dtypes are exported by nobody.
    if not dlx._core.is_tensor(x):
        return ()
    package = module_of(type(x)).partition(".")[0]
    found = []
    for known in KNOWN:
        if known.module.partition(".")[0] != package:
            continue
        version = getattr(sys.modules.get(known.module), "__version__", None)
        if not isinstance(version, str) or not _within(known, version):
            continue
        if known.applies(x):
            found.append(
                Hint(known.module, version, known.oldest, known.newest, known.text)
            )
    return tuple(found)


def _within(known: Known, version: str) -> bool:
    return _release(known.oldest) <= _release(version) <= _release(known.newest)


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, without what marks a build or a candidate."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
