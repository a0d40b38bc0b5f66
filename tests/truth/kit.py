"""The names that programs use, besides those of the libraries."""

from __future__ import annotations

import copy
import ctypes
import io
import mmap
import pickle
import tempfile
from array import array
from typing import Any

import dlx
import numpy as np
from support.concurrent_threads import in_thread

from .games import first_look, reloaded
from .libraries import FOUND
from .standins import Carrier, Flagged, Forward, Given, Held, Interface, Old, Proxy
from .tabled import retabled, tabled
from .vetoes import Firm, Shy, vetoed
from .wrong import Wrong


def echo(x: Any) -> Any:
    """Send ``x`` through tvm-ffi's C++ and back."""
    return FOUND["tvm_ffi"].get_global_func("testing.echo")(x)


def mapped(numbers: Any, mode: str = "r+") -> Any:
    """Return an array over a mapped file; with ``r`` not even C code can write."""
    if numbers.dtype.hasobject:
        raise TypeError("the file would hold addresses of objects that are gone")
    with tempfile.NamedTemporaryFile() as file:
        file.write(numbers.tobytes() or b"0")
        file.flush()
        # The mapping outlives the file.
        found = np.memmap(file.name, numbers.dtype, mode, 0, numbers.shape)  # type: ignore[call-overload]
    return found


def mapped_bytes(size: int, writable: bool = True) -> mmap.mmap:
    """Return an ``mmap.mmap`` with the bytes 1, 2, 3 and so on."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(n % 251 + 1 for n in range(size)))
        file.flush()
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return mmap.mmap(file.fileno(), size, access=access)


def misaligned(numbers: Any) -> Any:
    """Return the same elements, misaligned by one byte."""
    memory = np.zeros(numbers.nbytes + 1, np.uint8)[1:]
    moved = memory.view(numbers.dtype).reshape(numbers.shape)
    moved[...] = numbers
    return moved


def frozen(x: Any) -> Any:
    """Return a read-only view."""
    view = x.view()
    view.flags.writeable = False
    return view


def pickled(x: Any) -> Any:
    """Return ``x`` after pickling and unpickling."""
    return pickle.loads(pickle.dumps(x))


def saved(x: Any) -> Any:
    """Return ``x`` after `torch.save` and `torch.load`."""
    torch = FOUND["torch"]
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def seen_by(bridged: Any, x: Any) -> Any:
    """Return the argument that a bridged function receives for ``x``."""
    seen: list[Any] = []
    bridged(x, seen.append)
    return seen[0]


def identity(x: Any, see: Any = lambda x: None) -> Any:
    """Pass the argument to ``see`` and return it; this is what gets bridged."""
    see(x)
    return x


_BRIDGES: dict[Any, Any] = {}


def bridge(to: Any) -> Any:
    """Return `identity`, bridged; one function per target, as a program would have."""
    if to not in _BRIDGES:
        _BRIDGES[to] = dlx.bridge(to)(identity)
    return _BRIDGES[to]


def keep_out(see: Any, out: Any) -> Any:
    """Pass ``out`` to ``see``; this is what gets bridged."""
    see(out)


def out_seen_by(to: Any, x: Any) -> Any:
    """Return the ``out`` that a bridged function receives for ``out=x``."""
    if (to, "out") not in _BRIDGES:
        _BRIDGES[to, "out"] = dlx.bridge(to)(keep_out)
    seen: list[Any] = []
    _BRIDGES[to, "out"](seen.append, out=x)
    return seen[0]


class Growing:
    """Exports a tensor, and adds it to a container meanwhile, as a cache does."""

    def __init__(self, inner: Any, tree: Any) -> None:
        """Keep both."""
        self.inner, self.tree = inner, tree

    def __dlpack__(self, **keywords: Any) -> Any:
        """Add another item, and forward to the inner object."""
        if len(self.tree) == 1:
            if isinstance(self.tree, dict):
                self.tree["late"] = self.inner
            else:
                self.tree.append(self.inner)
        return self.inner.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        """Forward to the inner object."""
        return self.inner.__dlpack_device__()


def grown(convert: Any, x: Any, kind: type = dict) -> Any:
    """Return what ``x`` became in a container that changed while it was converted."""
    tree: Any = kind()
    if isinstance(tree, dict):
        tree["early"] = Growing(x, tree)
    else:
        tree.append(Growing(x, tree))
    made = convert(tree)
    early, *late = made.values() if isinstance(made, dict) else made
    if any(type(each) is not type(early) for each in late):
        raise Wrong("an item of a container was left as it was")
    return early


def taken(x: Any) -> Any:
    """Return a copy of a tensor that a kernel may use during its call alone.

    A launcher hands on what is no tensor by its class as it is.
    """
    if isinstance(x, dlx.Tensor):
        return dlx.from_dlpack(x, copy=True)
    if hasattr(type(x), "__dlpack__"):
        raise Wrong("a kernel was given what is no tensor of dlx")
    raise BufferError("no tensor to a launcher")


_READING = dlx.launcher(taken, give="tensor", contiguous=False)
_WRITING = dlx.launcher(taken, give="tensor", contiguous=False, out=0)


def launched(x: Any, out: int | None = None) -> Any:
    """Return what a kernel gets that is launched on ``x``, or that writes to it."""
    return (_READING if out is None else _WRITING)(x)


def namespace() -> dict[str, Any]:
    """Return the names for a program: the imported libraries, and the kit."""
    if "torch" in FOUND:
        from .torch_kit import KIT as more

        return KIT | more | FOUND
    return KIT | FOUND


KIT: dict[str, Any] = {
    "dlx": dlx,
    "array": array,
    "copy": copy,
    "ctypes": ctypes,
    "mmap": mmap,
    **{
        each.__name__: each
        for each in (
            Held,
            Given,
            Interface,
            Forward,
            Old,
            Proxy,
            Carrier,
            Flagged,
            echo,
            mapped,
            mapped_bytes,
            misaligned,
            frozen,
            pickled,
            saved,
            seen_by,
            identity,
            bridge,
            out_seen_by,
            in_thread,
            grown,
            launched,
            tabled,
            retabled,
            Firm,
            Shy,
            vetoed,
            first_look,
            reloaded,
        )
    },
}
