"""Targets that end, stop or confuse the process that checks them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import Any

from dlx_check import Target


def _numpy(take: str, **fields: Any) -> Target:
    return Target(
        name="hostile",
        imports="from conformance import hostile",
        make="np.array",
        take=f"hostile.{take}",
        show="np.array",
        address="lambda x: x.ctypes.data",
        view="lambda x: x[1:]",
        timeout=1.0,
        **fields,
    )


def kills_parent(x: Any, **keywords: Any) -> Any:
    """Kill the process that has forked this one, which ends it, too."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def take(x: Any, **keywords: Any) -> Any:
    """Import as NumPy does."""
    import numpy as np

    return np.from_dlpack(x, **keywords)


def _once(x: Any) -> bool:
    """Return whether this is the import of which the tests speak."""
    return bool(x.spec.null == "deleter")


def aborts(x: Any, **keywords: Any) -> Any:
    """Abort."""
    if _once(x):
        os.abort()
    return take(x, **keywords)


def hangs(x: Any, **keywords: Any) -> Any:
    """Never return."""
    if _once(x):
        time.sleep(1000)
    return take(x, **keywords)


def closes(x: Any, **keywords: Any) -> Any:
    """Close every descriptor, those of the suite included."""
    os.closerange(0, 1024)
    return take(x, **keywords)


def forks(x: Any, **keywords: Any) -> Any:
    """Fork, and let both processes return."""
    os.fork()
    return take(x, **keywords)


def leaves(x: Any, **keywords: Any) -> Any:
    """End the process as if all was well."""
    if _once(x):
        os._exit(0)
    return take(x, **keywords)


def exits(x: Any, **keywords: Any) -> Any:
    """Raise SystemExit."""
    if _once(x):
        sys.exit(0)
    return take(x, **keywords)


def kills(x: Any, **keywords: Any) -> Any:
    """Kill its own process."""
    if _once(x):
        os.kill(os.getpid(), signal.SIGKILL)
    return take(x, **keywords)


_SEEN: set[str] = set()


def remembers(x: Any, **keywords: Any) -> Any:
    """Refuse a newer minor version, once a tensor had no deleter."""
    if _once(x):
        _SEEN.add("deleter")
    if x.spec.version == (1, 99) and _SEEN:
        raise RuntimeError("it was there")
    return take(x, **keywords)


def remembers_two(x: Any, **keywords: Any) -> Any:
    """Refuse a newer minor version, once two other tensors were seen."""
    if x.spec.dtype == (99, 32, 1):
        _SEEN.add("dtype")
    if _once(x):
        _SEEN.add("deleter")
    if x.spec.version == (1, 99) and len(_SEEN) == 2:
        raise RuntimeError("both were there")
    return take(x, **keywords)


def target_of(name: str) -> Any:
    """Return the factory of a target."""
    return lambda: _numpy(name)


aborting, hanging, closing = (
    target_of("aborts"),
    target_of("hangs"),
    target_of("closes"),
)
forking, leaving, exiting = target_of("forks"), target_of("leaves"), target_of("exits")
killing, killing_parent = target_of("kills"), target_of("kills_parent")
remembering, remembering_two = target_of("remembers"), target_of("remembers_two")


def raising() -> Target:
    """Raise."""
    raise RuntimeError("on purpose")


def printing() -> Target:
    """Print on standard output, and start a thread."""
    print("noise")
    threading.Thread(target=time.sleep, args=(0.1,), daemon=True).start()
    return _numpy("take")


def ending() -> Target:
    """End the process."""
    os._exit(3)


def forking_at_once() -> Target:
    """Fork, and let both processes return."""
    os.fork()
    return _numpy("take")


def spawning() -> Target:
    """Start a process, and threads that are not daemons."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    for _ in range(3):
        threading.Thread(target=time.sleep, args=(1000,)).start()
    return _numpy("take")


def slow() -> Target:
    """Take a second."""
    time.sleep(1)
    return _numpy("take")


def endless() -> Target:
    """Never return."""
    time.sleep(1000)
    return _numpy("take")


def leaving_at_once() -> Target:
    """Raise SystemExit."""
    sys.exit(0)


def closing_at_once() -> Target:
    """Close every descriptor."""
    os.closerange(0, 1024)
    return _numpy("take")


def wrong_setup() -> Target:
    """Return a target whose runtime does not start."""
    return _numpy("take", setup="raise RuntimeError('no runtime')")


def wrong_field() -> Target:
    """Return a target with a field of the wrong type."""
    return _numpy("take", tensors=None)


def wrong_profile() -> Target:
    """Return a target that follows what is not known."""
    return _numpy("take", profiles="dlpack array-apy")


def wrong_kind() -> Target:
    """Return a target with a tensor of a kind that no check asks for."""
    return _numpy("take", tensors={"readonly": "np.ones(3)"})


def raising_kind() -> Target:
    """Return a target whose tensor cannot be made."""
    return _numpy("take", tensors={"read-only": "np.ones(3).reshape(2)"})


def no_tensor() -> Target:
    """Return a target with a tensor that is none."""
    return _numpy("take", tensors={"strided": "3"})


def class_for_tensor() -> Target:
    """Return a target with the class in place of a tensor."""
    return _numpy("take", tensors={"strided": "np.ndarray"})


def wrong_name() -> Target:
    """Return a target whose name leads out of a folder."""
    return replace(_numpy("take"), name="../hostile")


def wrong() -> Any:
    """Return something else."""
    return 7


def only_beside_the_suite() -> Target:
    """Return a target whose deviation no reproduction shows."""
    take = "lambda x: np.from_dlpack(x) if 'dlx_check' in sys.modules else x.missing"
    return Target(
        name="hostile",
        imports="import sys",
        make="np.array",
        take=take,
        show="np.array",
        address="lambda x: x.ctypes.data",
    )


class Raising:
    """What says where it is, and exports nothing."""

    def __init__(self, array: Any) -> None:
        """Keep the array."""
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU."""
        return 1, 0

    def __dlpack__(self, **_keywords: Any) -> Any:
        """Raise."""
        raise RuntimeError("on purpose")


def raising_producer() -> Target:
    """Return a target whose tensors raise when they are exported."""
    return Target(
        name="hostile",
        imports="from conformance import hostile",
        make="hostile.Raising",
        show="lambda x: x.array",
        type="hostile.Raising",
    )


def handling() -> Target:
    """Crash, but for a handler that ends the process as if all was well."""
    c = ctypes.CDLL(None)
    c.signal(int(signal.SIGABRT), ctypes.cast(c._exit, ctypes.c_void_p))
    return _numpy("aborts")


def shown(x: Any) -> Any:
    """Show a tensor, and end the process for what cannot be exported."""
    if x.dtype.hasobject:
        os.abort()
    return x.copy()


def unshowable() -> Target:
    """Refuse to export what it cannot show either."""
    kinds = {"objects": "np.array([object()])"}
    return replace(_numpy("take"), show="hostile.shown", cannot_export=kinds)


def readable(x: Any) -> Any:
    """Show a tensor, if its strides are positive and NumPy has the dtype."""
    if any(stride < 0 for stride in x.strides):
        raise MemoryError("no room")
    if x.dtype.kind == "c":
        raise TypeError("no such dtype")
    return x.copy()


def unreadable() -> Target:
    """Accept what it cannot read."""
    return replace(_numpy("take"), show="hostile.readable")


def scalarless() -> Target:
    """Make tensors of one dimension of scalars."""
    return replace(_numpy("take"), make="np.atleast_1d")


def flattening() -> Target:
    """Import one dimension, and read only half of it."""
    array = "[a * (a < 4) for a in [np.from_dlpack(x)] if a.ndim == 1][0]"
    return Target(
        name="hostile",
        imports="import sys",
        make="np.array",
        take=f"lambda x: {array}",
        show="np.array",
        address="lambda x: x.ctypes.data",
        dimensions=1,
    )


def naming_no_stream() -> Target:
    """Return a target that asks producers on CUDA for stream 0."""
    return Target(
        name="hostile",
        imports="",
        make="np.array",
        take="lambda x: x.__dlpack__(stream=0)",
        take_on="lambda x, stream: x.__dlpack__(stream=0)",
        show="np.array",
    )


class Unversioned:
    """Read-only memory that is handed out without a flag, whatever is asked for."""

    def __init__(self, array: Any) -> None:
        """Keep the array."""
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU."""
        return 1, 0

    def __dlpack__(self, *, copy: bool = False, **_keywords: Any) -> Any:
        """Export unversioned."""
        return self.array.copy().__dlpack__()


def unversioned() -> Target:
    """Return a target whose tensors are read-only, which its capsules cannot say."""
    return Target(
        name="hostile",
        imports="from conformance import hostile",
        make="hostile.Unversioned",
        show="lambda x: x.array",
        tensors={"read-only": "hostile.Unversioned(np.ones(3, np.float32))"},
    )


class Tabled:
    """A tensor whose type has a table, and no `__dlpack__`."""

    def __init__(self, array: Any) -> None:
        """Keep nothing: no row reads it."""


def tabled() -> Target:
    """Return a target whose type has a table alone."""
    from dlx import Tensor

    Tabled.__dlpack_c_exchange_api__ = Tensor.__dlpack_c_exchange_api__  # type: ignore[attr-defined]
    return Target(
        name="hostile",
        imports="from conformance import hostile",
        make="hostile.Tabled",
        cannot_export={"nothing": "hostile.Tabled(0)"},
    )


def tabled_alone() -> Target:
    """Return it without a way to make a tensor."""
    return replace(tabled(), make=None, type="hostile.Tabled", cannot_export={})


def misspelled_field() -> Target:
    """Return a target whose `address` has another name."""
    return _numpy("take", adress="lambda x: 0")


def misspelled_address() -> Target:
    """Return a target whose `address` reads what is not there."""
    return replace(_numpy("take"), address="lambda x: x.ctypes.dat")


def misspelled_method() -> Target:
    """Return a target whose `address` is a method that it does not call."""
    return replace(_numpy("take"), address="lambda x: x.item")


def misspelled_make() -> Target:
    """Return a target whose `make` names no function."""
    return replace(_numpy("take"), make="lambda a: np.aray(a)")


def misspelled_take() -> Target:
    """Return a target whose `take` names no module."""
    return replace(_numpy("take"), make=None, take="lambda x: hostil.take(x)")


def misspelled_function() -> Target:
    """Return a target whose `show` is a function that reads what is not there."""

    def show(x: Any) -> Any:
        return x.cpy()

    return replace(_numpy("take"), show=show)


def misspelled_type() -> Target:
    """Return a target whose `type` is not there."""
    return replace(_numpy("take"), type="np.ndaray")


def instance_as_type() -> Target:
    """Return a target whose `type` is no class."""
    return replace(_numpy("take"), type="np.zeros(3)")


def shown_as_list() -> Target:
    """Return a target whose `show` makes no array."""
    return replace(_numpy("take"), show="lambda x: x.tolist()")


def misspelled_tensor() -> Target:
    """Return a target whose tensor of a kind is not there."""
    return replace(_numpy("take"), tensors={"read-only": "np.frozzen(3)"})


def misspelled_keyword() -> Target:
    """Return a target whose importer has a keyword of another name."""
    return replace(_numpy("take"), keywords=frozenset({"copi"}))


def unclosed() -> Target:
    """Return a target whose `make` is no Python."""
    return replace(_numpy("take"), make="np.array(")


def raising_show() -> Target:
    """Return a target whose `show` takes one element alone."""
    return replace(_numpy("take"), show="lambda x: int(x)")


def raising_view() -> Target:
    """Return a target whose `view` raises, whatever it gets."""
    return replace(_numpy("take"), view="lambda x: 1 / 0")


def number_as_view() -> Target:
    """Return a target whose `view` makes none."""
    return replace(_numpy("take"), view="lambda x: 7")


def unquoted_cpu() -> Target:
    """Return a target whose `cpu` is a name that nothing has."""
    return _numpy("take", cpu="cpu")


def wrong_cpu() -> Target:
    """Return a target whose `cpu` is no text."""
    return _numpy("take", cpu=7)


def wrong_free() -> Target:
    """Return a target whose `free` is no text."""
    return _numpy("take", free=7)


def number_as_function() -> Target:
    """Return a target whose `take` is a number."""
    return replace(_numpy("take"), take="3")


def many_dimensions() -> Target:
    """Return a target with more dimensions than the checks make."""
    return _numpy("take", dimensions=70)


def no_dimensions() -> Target:
    """Return a target with fewer dimensions than none."""
    return _numpy("take", dimensions=-1)


def misspelled_free() -> Target:
    """Return a target whose `free` calls what is not there."""
    return _numpy("take", free="x.fre()")


def wrong_change() -> Target:
    """Return a target whose `change` calls what is not there."""
    return _numpy("take", change="nothing(x)")


def unnamed_kind() -> Target:
    """Return a target with a tensor of a kind without a name."""
    return _numpy("take", tensors={"strided": "np.ones(3)[::2]", 3: "3"})


def number_as_kind() -> Target:
    """Return a target with a number in place of an expression."""
    return _numpy("take", cannot_export={"objects": 3})


def raising_kinds() -> Target:
    """Return a target that can make nothing of what it cannot export."""
    return _numpy("take", cannot_export={"objects": "1 / 0"})


def numbers_as_tensors() -> Target:
    """Return a target with a function that makes no tensor."""
    return _numpy("take", cannot_export={"objects": lambda: 3})


def class_as_tensor() -> Target:
    """Return a target with a class in place of what it cannot export."""
    return _numpy("take", cannot_export={"objects": "np.ndarray"})


def no_profile() -> Target:
    """Return a target that means to follow nothing."""
    return _numpy("take", profiles="")


def _written(**fields: Any) -> Target:
    """Return a target that can write, with other fields."""
    write = "lambda x, value: x.__setitem__((0,) * x.ndim, value)"
    return _numpy("take", **{"write": write, **fields})


def idle_write() -> Target:
    """Return a target whose `write` does nothing."""
    return _written(write="lambda x, value: None")


def arity_of_make() -> Target:
    """Return a target whose `make` has no parameter."""
    return replace(_numpy("take"), make="lambda: 3")


def arity_of_write() -> Target:
    """Return a target whose `write` gets no value."""
    return _written(write="lambda x: 3")


def arity_of_take_on() -> Target:
    """Return a target whose `take_on` gets no stream."""
    return _numpy("take", take_on="lambda x: x")


def null_address() -> Target:
    """Return a target whose tensors are nowhere."""
    return replace(_numpy("take"), address="lambda x: 0")


def wild_address() -> Target:
    """Return a target whose tensors are where no memory is."""
    return replace(_numpy("take"), address="lambda x: 16")


def number_as_writable() -> Target:
    """Return a target whose `writable` returns a number."""
    return _numpy("take", writable="lambda x: 1")


def numpy_writable() -> Target:
    """Return a target whose `writable` returns a bool of NumPy."""
    return _written(writable="lambda x: np.bool_(x.flags.writeable)")


def never_writable() -> Target:
    """Return a target that writes to what it calls read-only."""
    return _written(writable="lambda x: False")


def always_writable() -> Target:
    """Return a target that calls what is read-only writable."""
    frozen = {"read-only": "np.frombuffer(bytes(24), np.float32)"}
    return _written(writable="lambda x: True", tensors=frozen)


def frozen(array: Any) -> Any:
    """Make an array that is read-only."""
    made = array.copy()
    made.flags.writeable = False
    return made


def writable_frozen() -> Target:
    """Return a target that calls what it cannot write to writable."""
    return replace(_written(writable="lambda x: True"), make="hostile.frozen")


def thawing(x: Any, **keywords: Any) -> Any:
    """Import a tensor, and let it be written to."""
    return _Thawed(take(x, **keywords))


class _Thawed:
    """A tensor that says that it is read-only, and can be written to."""

    def __init__(self, array: Any) -> None:
        """Keep the array."""
        self.array = array

    def set(self, value: float) -> None:
        """Write the first element."""
        size = self.array.itemsize
        ctypes.memset(self.array.ctypes.data, int(value), size)


def thawed() -> Target:
    """Return a target whose `writable` is right of all but its imports."""
    return Target(
        name="hostile",
        imports="from conformance import hostile",
        take="hostile.thawing",
        show="lambda x: x.array.copy()",
        address="lambda x: x.array.ctypes.data",
        write="lambda x, value: x.set(value)",
        writable="lambda x: x.array.flags.writeable",
    )


def raising_address() -> Target:
    """Return a target whose own `address` raises AttributeError."""
    return replace(_numpy("take"), address="hostile.address")


def address(x: Any) -> int:
    """Raise as a library does that is wrong inside."""
    return _inner(x)


def _inner(x: Any) -> int:
    return int(x.nothing)


def hiding() -> Target:
    """Return a target that calls a writable array read-only."""
    kinds = {"read-only": "np.ones(6, 'f4')"}
    return replace(_numpy("take"), imports="", take=None, tensors=kinds)


class Sharing(Unversioned):
    """A tensor that drops `copy=`."""

    def __dlpack__(self, *, max_version: Any = None, **_keywords: Any) -> Any:
        """Export the memory itself."""
        return self.array.__dlpack__(max_version=max_version)


def sharing() -> Target:
    """Return a target that drops `copy=` and does not say where elements are."""
    return Target(
        name="hostile",
        imports="from conformance import hostile",
        make="lambda a: hostile.Sharing(np.array(a))",
        show="lambda x: x.array.copy()",
        tensors={"negative": "hostile.Sharing(np.arange(6, dtype='f4')[::-1])"},
    )


def sharing_elsewhere() -> Target:
    """Return it with the address of something else."""
    return replace(sharing(), address="lambda x: id(x)")
