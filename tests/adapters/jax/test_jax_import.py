"""Arrays of JAX on the CPU, which come in by their Python buffer."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlx_producers import Stored
from support.jax_arrays import says_read_only
from support.optional_libraries import requires

NAMED = "bool int8 int16 int32 uint8 uint16 uint32 float16 float32 complex64"
UNNAMED = "bfloat16 float8_e4m3fn float8_e5m2"


def described(tensor: dlx.Tensor) -> tuple[Any, ...]:
    """Return all that a tensor says of itself."""
    return (
        tensor.data_ptr,
        tensor.shape,
        tensor.strides,
        tensor.dtype,
        tensor.device,
        tensor.readonly,
        tensor.is_copied,
        repr(tensor),
        repr(tensor.__dlpack__(max_version=(1, 3))).partition(" at ")[0],
    )


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 0), (2, 3), (1, 2, 1)])
@pytest.mark.parametrize("name", f"{NAMED} {UNNAMED}".split())
def test_the_buffer_says_what_the_capsule_says(
    name: str, shape: tuple[int, ...]
) -> None:
    """R39: and all are read-only, which old releases of JAX do not say."""
    jnp = requires("jax.numpy")
    x = jnp.ones(shape, name)
    tensor = dlx.from_dlpack(x)
    assert tensor.readonly
    assert "maybe" not in repr(tensor)
    if says_read_only(x):
        capsule = dlx.from_dlpack(x.__dlpack__(max_version=(1, 3)))
        assert described(tensor) == described(capsule)
    assert dlx.convert(x, dlx.Tensor).data_ptr == tensor.data_ptr


def test_the_buffer_is_what_is_read() -> None:
    """The buffer holds the array, a capsule its memory."""
    x = requires("jax.numpy").ones(3)
    held = sys.getrefcount(x)
    tensor = dlx.from_dlpack(x)
    assert sys.getrefcount(x) == held + 1
    del tensor
    assert sys.getrefcount(x) == held


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_the_elements_are_ready(name: str) -> None:
    """The buffer waits for what JAX still computes."""
    jax = requires("jax")
    start = jax.numpy.ones((300, 300), name)

    def work(x: Any) -> Any:
        return jax.lax.fori_loop(0, 30, lambda _, y: (y @ x) / 300, x)

    made = jax.jit(work)(start)
    seen = np.asarray(dlx.convert(made, np.ndarray), dtype="float32")
    assert (seen == 1).all()


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_the_memory_outlives_the_array(name: str) -> None:
    """docs/design.md, Who owns what: the array is freed with the tensor."""
    x = requires("jax.numpy").arange(6).astype(name)
    alive = weakref.ref(x)
    array = dlx.convert(x, np.ndarray)
    del x
    gc.collect()
    assert array.tolist() == [0, 1, 2, 3, 4, 5]
    del array
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_numpy_gets_a_read_only_array_of_the_same_memory(name: str) -> None:
    """R43: as `numpy.asarray` gives it."""
    x = requires("jax.numpy").ones(3, name)
    array = dlx.convert(x, np.ndarray, copy=False)
    assert not array.flags.writeable
    assert array.ctypes.data == x.unsafe_buffer_pointer()
    assert array.dtype == np.asarray(x).dtype


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_torch_gets_a_copy(name: str) -> None:
    """R42: torch would write to it."""
    torch = requires("torch")
    x = requires("jax.numpy").ones(3, name)
    made = dlx.convert(x, torch.Tensor)
    assert made.data_ptr() != x.unsafe_buffer_pointer()


def test_a_borrowed_array_is_read_by_its_buffer() -> None:
    """`borrow` lends the same memory."""
    x = requires("jax.numpy").arange(3.0)
    with dlx.borrow(x) as (tensor, _):
        assert tensor.data_ptr == x.unsafe_buffer_pointer()
        assert tensor.tolist() == [0, 1, 2]


def test_options_are_honoured() -> None:
    """R52: what is asked besides the tensor goes by `__dlpack__`."""
    x = requires("jax.numpy").arange(3.0)
    address = x.unsafe_buffer_pointer()
    assert dlx.from_dlpack(x, device="cpu").data_ptr == address
    assert dlx.from_dlpack(x, copy=False).data_ptr == address
    copied = dlx.from_dlpack(x, copy=True)
    assert copied.data_ptr != address
    assert not copied.readonly
    with pytest.raises(BufferError):
        dlx.from_dlpack(x, device="cuda:0", copy=False)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_an_imported_array_survives_its_donation(name: str) -> None:
    """R63: what is computed in its place is other memory, and it is refused itself."""
    jax = requires("jax")
    x = jax.numpy.arange(8).astype(name)
    tensor = dlx.from_dlpack(x)
    made = jax.jit(lambda y: y + 1, donate_argnums=0)(x)
    made.block_until_ready()
    assert [float(n) for n in tensor.numpy()] == list(range(8))
    assert [float(n) for n in np.asarray(made)] == list(range(1, 9))
    if x.is_deleted():
        with pytest.raises(BufferError, match="has been deleted"):
            dlx.from_dlpack(x)


def test_a_tracer_is_refused() -> None:
    """R61: it has no elements yet."""
    jax = requires("jax")
    with pytest.raises(AttributeError, match="Tracer"):
        jax.jit(lambda x: dlx.from_dlpack(x).numpy())(jax.numpy.ones(3))


SHARDED = """
import dlx, jax, numpy as np
mesh = jax.make_mesh((2,), ("a",))
part = jax.NamedSharding(mesh, jax.P("a"))
x = jax.device_put(np.arange(4.0, dtype="float32"), part)
class Holder(dlx.ExchangeMixin, exchange="data"):
    def __init__(self, data):
        self.data = data

def refused(x, what):
    for way in (
        dlx.from_dlpack,
        lambda x: dlx.from_dlpack(x, copy=True),
        lambda x: dlx.from_dlpack(x, device="cpu"),
        lambda x: dlx.convert(x, np),
        lambda x: dlx.convert(x, dlx.Tensor),
        lambda x: dlx.convert_tree([x], np),
        lambda x: dlx.borrow(x).__enter__(),
        lambda x: dlx.launcher(lambda a: 0, give="tensor")(x),
        lambda x: dlx.bridge(np)(lambda a: a)(x),
        lambda x: dlx.from_dlpack(Holder(x)),
        lambda x: Holder(x).__dlpack__(max_version=(1, 3)),
    ):
        try:
            way(x)
        except BufferError as error:
            assert what in str(error), error
        else:
            raise AssertionError(f"taken by {way}")

for _ in range(20):
    dlx.from_dlpack(jax.numpy.ones(3))
refused(x, "pass numpy.asarray(x), or x.addressable_shards[0].data")
assert dlx.from_dlpack(np.asarray(x)).tolist() == [0, 1, 2, 3]
gone = jax.numpy.ones(3)
gone.delete()
refused(gone, "has been deleted")
for shard, seen in zip(x.addressable_shards, ([0, 1], [2, 3])):
    assert dlx.from_dlpack(shard.data).tolist() == seen
other = jax.device_put(np.arange(3.0, dtype="float32"), jax.devices()[1])
assert dlx.from_dlpack(other).tolist() == [0, 1, 2]
one = jax.NamedSharding(jax.make_mesh((1,), ("a",)), jax.P())
assert dlx.from_dlpack(jax.device_put(np.float32([5]), one)).tolist() == [5]
"""


def test_sharded_and_deleted_arrays_are_refused_and_shards_are_right() -> None:
    """R60: by each way; a committed array and one of a mesh of one are right."""
    requires("jax")
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    code = f"import os; os.environ.update({flags})\n{SHARDED}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_array_that_is_not_row_major_keeps_its_layout() -> None:
    """A buffer describes row-major elements alone."""
    jax, layouts = requires("jax"), requires("jax.experimental.layout")
    x = jax.numpy.arange(12, dtype="float32").reshape(3, 4)
    turned = layouts.Format(layouts.Layout((1, 0)), x.sharding)
    y = jax.device_put(x, turned)
    tensor = dlx.from_dlpack(y)
    assert tensor.strides == (1, 3)
    assert np.array_equal(np.from_dlpack(tensor), np.asarray(x))


def refusing(**keywords: Any) -> Any:
    """Refuse an export."""
    raise BufferError("refused by the array")


def borrowed(x: Any) -> None:
    """Read in a block."""
    with dlx.borrow(x):
        pass


READ: dict[str, Any] = {
    "from_dlpack": dlx.from_dlpack,
    "convert": lambda x: dlx.convert(x, np),
    "convert_tree": lambda x: dlx.convert_tree([x], np),
    "borrow": borrowed,
    "launcher": dlx.launcher(lambda x: None),
    "bridge": dlx.bridge(np)(lambda x: None),
    "mixin": lambda x: dlx.from_dlpack(Stored(x)),
    "table of a mixin": lambda x: requires("torch").from_dlpack(Stored(x)),
}
reads = pytest.mark.parametrize("read", READ.values(), ids=READ)


@reads
def test_an_array_that_refuses_its_export_is_refused(read: Any) -> None:
    """Its buffer does not overrule what it says itself."""
    jnp = requires("jax.numpy")
    x = jnp.ones(3)
    read(x)
    x.note = "other attributes do not matter"
    read(x)
    x.__dlpack__ = refusing
    with pytest.raises(BufferError, match="refused by the array"):
        read(x)
    read(jnp.ones(3))


@reads
def test_a_class_that_was_told_to_refuse_is_asked(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, for all its arrays, until it is itself again."""
    x = requires("jax.numpy").ones(3)
    read(x)
    with monkeypatch.context() as patch:
        patch.setattr(type(x), "__dlpack__", lambda self, **of: refusing())
        with pytest.raises(BufferError, match="refused by the array"):
            read(x)
    assert dlx.from_dlpack(x).data_ptr == x.unsafe_buffer_pointer()
    read(x)
