"""Programs of objects that stand in for others: mixins, forwarders, old producers."""

from __future__ import annotations

from random import Random
from typing import Any

from . import arrow_programs, buffer_programs, numpy_programs, torch_programs
from .libraries import FOUND
from .program import Library
from .says import package_of

WRAPPERS = (
    "x = Forward(x)",
    "x = Old(x)",
    "x = Proxy(x)",
    "x = Held(x)",
    "x = Given(x)",
    "x = dlx.from_dlpack(x)",
    "x = dlx.from_dlpack(x, copy=True)",
    "look(Forward(x), 'dlx.from_dlpack(x)'); x = Forward(x)",
    "look(Forward(Old(x)), 'dlx.from_dlpack(x)'); x = Forward(x)",
    "look(Proxy(Old(x)), 'dlx.convert(x, np.ndarray)'); x = Proxy(x)",
    "x = xp.asarray(x)",
    # tvm-ffi has no names for complex dtypes, and forgets READ_ONLY.
    "x = tvm_ffi.from_dlpack(x) if 'complex' not in str(x.dtype) "
    "and not getattr(x, 'readonly', False) else x",
    "x = Interface(x)",
    "x = Carrier(x)",
    "x = Flagged(x, 8)",
    "x = Flagged(x, 1 << 63, 9)",
    "x = Flagged(x, 0, 9)",
    "x = Flagged(frozen(np.array(x)), 0, 9)",
    "x = tabled(x)",
    "look(x, 'dlx.from_dlpack(x)'); x = retabled(x)",
    "x = retabled(x)",
    "x = vetoed(x)",
)


def start(r: Random) -> str:
    """Draw the first line."""
    kinds: list[Any] = [numpy_programs, buffer_programs]
    if "torch" in FOUND:
        kinds.append(torch_programs)
    if "pa" in FOUND:
        kinds.append(arrow_programs)
    return str(r.choice(kinds).start(r))


def step(r: Random, x: Any) -> str:
    """Draw a line."""
    if r.randrange(2) == 0:
        return r.choice(WRAPPERS)
    known: dict[str, Any] = {
        "numpy": numpy_programs,
        "torch": torch_programs,
        "pyarrow": arrow_programs,
    }
    return str(known.get(package_of(x), buffer_programs).step(r, x))


LIBRARY = Library(start, step)
