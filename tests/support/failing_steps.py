"""Ways through dlx that call an exchange table, whose n-th call goes wrong.

All are on the CPU; `failing_stream_steps.py` has those that order streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import dlx_share
import numpy as np

from support.failing_calls import TABLE, FailingProducer, failing_class
from support.failing_consumers import allocated, exported, lent, taken
from support.fake_table import Forward
from support.wrapped_functions import doubled, launch, launch_pointers

Failing = failing_class()


class OnlyTable(Failing):  # type: ignore[misc, valid-type]
    """The same without `__dlpack__`, and with the table of its base."""

    __dlpack__ = property()
    __dlpack_device__ = property()


class Plain(FailingProducer):
    """An array of a library without a table."""


class Old(Plain):
    """One from before DLPack 1."""

    def __dlpack__(self, *, stream: Any = None) -> Any:  # type: ignore[override]
        """Export a legacy capsule."""
        return self.capsule(versioned=False)


class Stored(dlx.ExchangeMixin, exchange="data"):
    """An array class over an attribute."""

    def __init__(self, data: Any) -> None:
        """Keep what it exports."""
        self.data = data

    @classmethod
    def __dlx_empty__(cls, shape: Any, dtype: Any, device: Any) -> Any:
        """Make memory in the library."""
        return dlx.empty(shape, dtype, like=Failing)


class Importing(Stored, exchange="data"):
    """An array class that keeps its data in the library."""

    @classmethod
    def __dlx_import__(cls, tensor: Any) -> Any:
        """Convert to the library."""
        return cls(dlx.convert(tensor, Failing))


ARRAY = np.arange(6, dtype="f4").reshape(2, 3)
READ_ONLY = np.broadcast_to(np.float32(1), (2, 3))
BACKWARD = ARRAY[::-1]
OUT = np.zeros((2, 3), "f4")
TENSOR = dlx.from_dlpack(np.arange(6, dtype="f4").reshape(2, 3))
X, ONLY = Failing(), OnlyTable()
PLAIN, OLD, ODD = Plain(), Old(), Plain(dtype=(18, 0, 1))
ODD_TABLE, READ_ONLY_X = OnlyTable(dtype=(18, 0, 1)), Failing(flags=1)
ENDLESS = OnlyTable(deleter=None)
FORWARD, STORED, NESTED = Forward(X), Stored(X), Stored(Stored(ONLY))
WATCHED: list[Any] = [ARRAY, OUT, TENSOR, X, ONLY, FORWARD, STORED, NESTED]
WATCHED += [PLAIN, OLD, ODD, ODD_TABLE, READ_ONLY_X]
TREE = {"a": X, "b": [STORED, (ARRAY, 3)]}
NEW: dict[str, Any] = {"max_version": (1, 3)}


@dlx.bridge(Failing)
def bridged_there(array: Any) -> Any:
    """Compute in the library."""
    return array


@dlx.launcher(give="tensor", out=["b"])
def launch_tensors(a: Any, b: Any) -> None:
    """Take two tensors, and write to one."""


def borrow() -> None:
    """Lend three tensors."""
    with dlx.borrow(X, STORED, ONLY):
        pass


def borrow_out() -> None:
    """Lend one to be written to."""
    with dlx.borrow(ARRAY, out=X):
        pass


def share() -> None:
    """Share a tensor with itself."""
    with dlx.share(X) as handle:
        dlx.attach(bytes(handle), like=Failing)


def refused(call: Callable[..., Any], *arguments: Any) -> None:
    """Call with a tensor that dlx refuses."""
    try:
        call(*arguments)
    except BufferError as error:
        if "dtype" not in str(error):
            raise
    else:
        raise SystemError("it was accepted")


def used() -> None:
    """Use a tensor in the ways that hold it otherwise."""
    tensor = dlx.from_dlpack(X)
    views = tensor.numpy(), tensor[0], tensor.raw(), memoryview(tensor)
    del tensor
    del views


def copied() -> None:
    """Copy tensors that nothing else holds."""
    dlx.from_dlpack(X).__dlpack__(copy=True, **NEW)
    dlx.from_dlpack(dlx.from_dlpack(X), copy=True)


STEPS: dict[str, Callable[[], Any]] = {
    "from_dlpack": lambda: dlx.from_dlpack(X),
    "from_dlpack without a protocol": lambda: dlx.from_dlpack(ONLY),
    "from_dlpack with a copy": lambda: dlx.from_dlpack(X, copy=True),
    "from_dlpack without a copy": lambda: dlx.from_dlpack(X, copy=False),
    "from_dlpack with a device": lambda: dlx.from_dlpack(ONLY, device="cpu"),
    "from_dlpack of a wrapper": lambda: dlx.from_dlpack(FORWARD),
    "from_dlpack of a mixin": lambda: dlx.from_dlpack(STORED),
    "from_dlpack of a nested mixin": lambda: dlx.from_dlpack(NESTED),
    "uses of a tensor": used,
    "copies of a tensor": copied,
    "convert to NumPy": lambda: dlx.convert(X, np.ndarray),
    "convert to NumPy with a dtype": lambda: dlx.convert(
        ONLY, np.ndarray, dtype="float64"
    ),
    "convert from NumPy": lambda: dlx.convert(ARRAY, Failing),
    "convert of a tensor": lambda: dlx.convert(TENSOR, Failing),
    "convert with a copy": lambda: dlx.convert(X, Failing, copy=True),
    "convert without a copy": lambda: dlx.convert(ARRAY, Failing, copy=False),
    "convert of read-only memory": lambda: dlx.convert(READ_ONLY, Failing),
    "convert of negative strides": lambda: dlx.convert(BACKWARD, Failing),
    "convert of a mixin": lambda: dlx.convert(STORED, Failing),
    "convert to a mixin": lambda: dlx.convert(X, Stored),
    "convert to a mixin that imports": lambda: dlx.convert(X, Importing),
    "convert like an instance": lambda: dlx.convert(ARRAY, X),
    "convert_tree": lambda: dlx.convert_tree(TREE, np.ndarray),
    "convert_tree to the library": lambda: dlx.convert_tree(TREE, Failing),
    "borrow": borrow,
    "borrow to write": borrow_out,
    "launcher of addresses": lambda: launch(X, STORED),
    "launcher of pointers": lambda: launch_pointers(X, ONLY),
    "launcher of tensors": lambda: launch_tensors(ARRAY, X),
    "bridge": lambda: doubled(X),
    "bridge into an array": lambda: doubled(X, out=ONLY),
    "bridge to the library": lambda: bridged_there(ARRAY),
    "bridge of a mixin": lambda: doubled(STORED),
    "empty": lambda: dlx.empty((2, 3), "float32", like=Failing),
    "empty like an instance": lambda: dlx.empty((2, 3), "float32", like=X),
    "empty in a hook": lambda: dlx.empty((2, 3), "float32", like=Stored),
    "empty in shared memory": lambda: dlx.empty(4, "int8", like=Failing, shared=True),
    "from_dlpack of a refused tensor": lambda: refused(dlx.from_dlpack, ODD_TABLE),
    "from_dlpack of a refused capsule": lambda: refused(dlx.from_dlpack, ODD),
    "convert of a refused capsule": lambda: refused(dlx.convert, ODD, np.ndarray),
    "launcher of a refused tensor": lambda: refused(launch, ODD_TABLE, X),
    "from_dlpack of a capsule": lambda: dlx.from_dlpack(PLAIN.capsule()),
    "from_dlpack by protocol": lambda: dlx.from_dlpack(PLAIN),
    "from_dlpack by an old protocol": lambda: dlx.from_dlpack(OLD),
    "from_dlpack by protocol with a copy": lambda: dlx.from_dlpack(PLAIN, copy=True),
    "convert by protocol": lambda: dlx.convert(PLAIN, np.ndarray),
    "convert by an old protocol": lambda: dlx.convert(OLD, Failing),
    "convert by protocol to the library": lambda: dlx.convert(PLAIN, Failing),
    "convert from a read-only table": lambda: dlx.convert(Stored(READ_ONLY_X), Failing),
    "launcher by protocol": lambda: launch(PLAIN, OLD),
    "a capsule that nobody takes": lambda: dlx.from_dlpack(X).__dlpack__(**NEW),
    "a capsule of a mixin that nobody takes": lambda: Stored(PLAIN).__dlpack__(**NEW),
    "from_dlpack without a deleter": lambda: dlx.from_dlpack(ENDLESS),
    "from_dlpack without a deleter, copied": lambda: dlx.from_dlpack(
        ENDLESS, copy=True
    ),
    "convert without a deleter": lambda: dlx.convert(ENDLESS, np.ndarray),
    "launcher without a deleter": lambda: launch(ENDLESS, X),
    "as_pointer": lambda: dlx.as_pointer(X),
    "inspect": lambda: dlx.inspect(X),
    "share and attach": share,
    "pickle": lambda: dlx_share.dumps([dlx.from_dlpack(X)]),
    "__dlpack__ of a mixin": lambda: STORED.__dlpack__(**NEW),
    "__dlpack__ of a mixin with a copy": lambda: STORED.__dlpack__(copy=True),
    "__dlpack_device__ of a mixin": lambda: NESTED.__dlpack_device__(),
    "export of a mixin to NumPy": lambda: np.from_dlpack(STORED),
    "export by table": lambda: exported(STORED),
    "export by table of a nested mixin": lambda: exported(NESTED),
    "view by table": lambda: lent(STORED),
    "view by table of a nested mixin": lambda: lent(NESTED),
    "import by table": lambda: taken(Importing, X.export()),
    "import by table of dlx": lambda: taken(dlx.Tensor, X.export()),
    "allocation by table": lambda: allocated(Stored),
}
FUNCTIONS = [*TABLE, "deleter"]
