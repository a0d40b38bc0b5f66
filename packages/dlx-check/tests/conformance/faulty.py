"""Libraries with one fault each, as users have checked them.

Nothing of dlx is imported with them, so that reproductions run.
"""

from __future__ import annotations

import ctypes
from typing import Any


class Array:
    """A NumPy array that is exported and imported by NumPy's own means."""

    def __init__(self, data: Any) -> None:
        """Keep the array."""
        self.data = data

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU."""
        return 1, 0

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export it."""
        return self.data.__dlpack__(**keywords)


def _target(kind: str, **fields: Any) -> Any:
    from dlx_check import Target

    return Target(
        name="faulty",
        imports="from conformance import faulty",
        show="lambda x: x.data.copy()",
        address="lambda x: x.data.ctypes.data",
        type=f"faulty.{kind}",
        **{"make": f"lambda a: faulty.{kind}(np.array(a))", **fields},
    )


_KEPT: list[Any] = []


class InBytes(Array):
    """Its strides count bytes, so a reader leaves its memory."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export it."""
        capsule = self.data.__dlpack__(**keywords)
        head = object.__basicsize__
        managed = ctypes.c_void_p.from_address(id(capsule) + head).value or 0
        managed += 32 * ("versioned" in repr(capsule))
        strides = ctypes.c_void_p.from_address(managed + 32).value or 0
        for at in range(strides, strides + 8 * self.data.ndim, 8):
            ctypes.c_int64.from_address(at).value *= self.data.itemsize
        return capsule


class Keeping(Array):
    """It keeps the array that it exports for ever, and no reference to itself."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export it."""
        _KEPT.append(self.data)
        return super().__dlpack__(**keywords)


class KeepingCopies(Array):
    """It keeps the copies that it makes for ever."""

    def __dlpack__(self, *, copy: Any = None, **keywords: Any) -> Any:
        """Export it, or a copy."""
        if not copy:
            return super().__dlpack__(copy=copy, **keywords)
        _KEPT.append(self.data.copy())
        return _KEPT[-1].__dlpack__(**keywords)


class Bought(Array):
    """What is made of it stays, whether it is exported or not."""

    def __init__(self, data: Any) -> None:
        """Keep the array for ever."""
        super().__init__(data)
        _KEPT.append(data)


def keeping_arrays() -> Any:
    """Return a target that leaks what its tensors hold."""
    return _target("Keeping")


def keeping_shared_arrays() -> Any:
    """Return a target that leaks the array that it was given."""
    return _target("Keeping", make="faulty.Keeping")


def keeping_copies() -> Any:
    """Return a target that leaks its copies."""
    return _target("KeepingCopies")


def keeping_all() -> Any:
    """Return a target whose tensors never end."""
    return _target("Bought")


def slow() -> Any:
    """Return a target that takes a second for a large tensor."""
    make = "lambda a: faulty.Array(np.array([float(each) for each in a.flat]))"
    return _target("Array", make=make, timeout=0.5)


class Unowned(Array):
    """Shares the array that it is made of, and exports memory that nobody keeps."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export what is at the address."""
        import numpy as np

        interface = self.data.__array_interface__
        holder = type("Holder", (), {"__array_interface__": interface})()
        return np.asarray(holder).__dlpack__(**keywords)


def unowned() -> Any:
    """Return a target whose exports keep nothing alive."""
    return _target("Unowned", make="faulty.Unowned")


def strides_in_bytes() -> Any:
    """Return a target whose strides count bytes."""
    return _target("InBytes")


def keeping(x: Any, **keywords: Any) -> Array:
    """Import a tensor, and keep it for ever."""
    import numpy as np

    _KEPT.append(np.from_dlpack(x, **keywords))
    return Array(_KEPT[-1])


def forgetful(x: Any, **keywords: Any) -> Array:
    """Import a tensor, and let go of what holds its memory."""
    import numpy as np

    interface = np.from_dlpack(x, **keywords).__array_interface__
    holder = type("Holder", (), {"__array_interface__": interface})()
    return Array(np.asarray(holder))


def leaking() -> Any:
    """Return a target that never deletes what it imports."""
    return _target("Array", take="faulty.keeping")


def scribbling(x: Any, **keywords: Any) -> Array:
    """Import a tensor, and write to its memory."""
    import numpy as np

    found = np.from_dlpack(x, **keywords)
    if found.size and found.flags.c_contiguous:
        ctypes.memset(found.ctypes.data, 0, found.itemsize)
    return Array(found)


def writing() -> Any:
    """Return a target that writes to what it imports."""
    return _target("Array", take="faulty.scribbling")


class Copying(Array):
    """It exports copies, and does not say so."""

    def __dlpack__(self, *, copy: Any = None, **keywords: Any) -> Any:
        """Export a copy."""
        if copy is False:
            raise BufferError
        return self.data.copy().__dlpack__(**keywords)


def copying() -> Any:
    """Return a target that copies always."""
    frozen = "faulty.Copying(np.frombuffer(bytes(24), np.float32))"
    return _target("Copying", tensors={"read-only": frozen})


def freeing() -> Any:
    """Return a target that deletes what it imports, and goes on to read it."""
    return _target("Array", take="faulty.forgetful")


class Streaming(Array):
    """It exports as before DLPack 1.0."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        """Export it."""
        return self.data.__dlpack__()


class Bare(Array):
    """It exports, and cannot be asked for anything."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        """Export it."""
        return self.data.__dlpack__()


class Uncopied(Array):
    """It cannot be asked for copies."""

    def __dlpack__(  # type: ignore[override]
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None
    ) -> Any:
        """Export it."""
        return self.data.__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device
        )


def without_keywords() -> Any:
    """Return a target whose tensors take no keyword."""
    return _target("Bare")


def without_most_keywords() -> Any:
    """Return a target whose tensors know `stream` alone."""
    return _target("Streaming")


def without_copy() -> Any:
    """Return a target whose tensors know all keywords but `copy`."""
    return _target("Uncopied")


class Releasing(Array):
    """The deleter of its exports gives up a reference too many."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export it."""
        capsule = self.data.view().__dlpack__(**keywords)
        api, words = ctypes.pythonapi, ctypes.c_void_p
        head = object.__basicsize__
        managed = words.from_address(id(capsule) + head).value or 0
        place = managed + (16 if "versioned" in repr(capsule) else 56)
        kind = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
        own, this = kind(words.from_address(place).value or 0), id(self)

        def delete(address: int) -> None:
            own(address)
            for _ in range(2):
                api.Py_DecRef(words(this))

        _KEPT.append(found := kind(delete))
        words.from_address(place).value = ctypes.cast(found, words).value
        api.Py_IncRef(words(this))
        return capsule


def releasing() -> Any:
    """Return a target that deletes twice what an export holds."""
    return _target("Releasing")


class FreeingTwice(Array):
    """Its deleter gives memory back to the allocator twice."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export it."""
        capsule = self.data.__dlpack__(**keywords)
        managed = ctypes.c_void_p.from_address(id(capsule) + object.__basicsize__).value
        place = (managed or 0) + (16 if "versioned" in repr(capsule) else 56)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

        def delete(address: int) -> None:
            c = ctypes.CDLL(None)
            c.malloc.restype = ctypes.c_void_p
            block = ctypes.c_void_p(c.malloc(64))
            c.free(block)
            c.free(block)

        _KEPT.append(found := kind(delete))
        ctypes.c_void_p.from_address(place).value = ctypes.cast(
            found, ctypes.c_void_p
        ).value
        return capsule


def freeing_twice() -> Any:
    """Return a target whose deleter frees memory twice."""
    return _target("FreeingTwice")
