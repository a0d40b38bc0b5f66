"""`convert` to JAX's arrays, by a function of JAX's extension."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import dlx
import numpy as np
import pytest
from dlx._libraries import importers
from support.optional_libraries import requires

Made = tuple[Any, ...]


def tensor_of(shape: tuple[int, ...], dtype: str) -> dlx.Tensor:
    """Return memory as JAX wants it aligned."""
    tensor = dlx.empty(shape, dtype)
    np.asarray(tensor.numpy())[...] = 1
    return tensor


def described(made: Any) -> Made:
    """Return what JAX knows of an array."""
    return (
        type(made),
        made.dtype,
        made.shape,
        made.sharding,
        made.committed,
        made.weak_type,
        made.unsafe_buffer_pointer(),
        np.asarray(made).tolist(),
    )


@pytest.fixture
def own() -> Any:
    """Return JAX's own importer, with which nothing has been compared yet."""
    found = requires("jax.dlpack").from_dlpack
    importers._Jax.public = importers._Jax.function = None
    return found


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (1, 4)])
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int32", "float16", "float32", "complex64"]
)
def test_the_array_is_what_the_importer_of_jax_makes(
    own: Any, dtype: str, shape: tuple[int, ...]
) -> None:
    """At the first call and later."""
    jax = requires("jax")
    tensor = tensor_of(shape, dtype)
    made = [dlx.convert(tensor, jax.Array, copy=False) for _ in range(2)]
    assert importers._Jax.function is not None
    assert [described(each) for each in made] == [described(own(tensor))] * 2
    if tensor.size:
        assert made[1].unsafe_buffer_pointer() == tensor.data_ptr


def test_the_memory_lives_as_long_as_the_array(own: Any) -> None:
    """docs/design.md, Who owns what."""
    del own
    jax = requires("jax")
    for _ in range(2):
        made = dlx.convert(tensor_of((1000,), "float32"), jax.Array)
        other = [tensor_of((1000,), "int32") for _ in range(20)]
        assert np.asarray(made).tolist() == [1.0] * 1000
        del other


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128"])
def test_wide_dtypes_keep_their_numbers_or_are_refused(own: Any, dtype: str) -> None:
    """docs/design.md, From one library to another: JAX narrows them without x64."""
    del own
    jax = requires("jax")
    tensor = tensor_of((3,), dtype)
    assert dlx.convert(tensor_of((3,), "float32"), jax.Array).dtype == "float32"
    for _ in range(2):
        with jax.enable_x64(False), pytest.raises(BufferError, match="would import"):
            dlx.convert(tensor, jax.Array)
        with jax.enable_x64(True):
            assert dlx.convert(tensor, jax.Array).dtype == dtype


def test_another_importer_of_jax_is_called(
    own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function is used only for the importer it was proven for."""
    jax = requires("jax")
    tensor = tensor_of((3,), "float32")
    dlx.convert(tensor, jax.Array)
    calls = []

    def importer(x: Any) -> Any:
        calls.append(x)
        return own(x)

    monkeypatch.setattr("jax.dlpack.from_dlpack", importer)
    dlx.convert(tensor, jax.Array)
    assert calls == [tensor]


def fails(*_: Any) -> Any:
    """Stand for a function with other arguments."""
    raise TypeError("unexpected arguments")


def copies(*_: Any) -> Any:
    """Stand for a function that makes another array."""
    return requires("jax.numpy").ones(3)


@pytest.mark.parametrize("function", [None, fails, copies])
def test_a_function_that_does_otherwise_is_not_used(
    own: Any, function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAX's own importer is what remains."""
    jax = requires("jax")
    name = "jax._src.lib._jax.dlpack_managed_tensor_to_buffer"
    tensor = tensor_of((3,), "float32")
    expected = described(own(tensor))
    if function is None:
        # The importer itself has lost it, too, so it is called by another.
        monkeypatch.setattr("jax.dlpack.from_dlpack", lambda _: own(tensor))
        monkeypatch.setattr(importers._Jax, "call", fails)
    else:
        proven = requires("jax._src.lib")._jax.dlpack_managed_tensor_to_buffer

        def importer(x: Any) -> Any:
            with monkeypatch.context() as patch:
                patch.setattr(name, proven)
                return own(x)

        monkeypatch.setattr("jax.dlpack.from_dlpack", importer)
        monkeypatch.setattr(name, function)
    for _ in range(2):
        assert described(dlx.convert(tensor, jax.Array)) == expected
    assert importers._Jax.function is None


def test_what_the_function_refuses_the_importer_of_jax_refuses(own: Any) -> None:
    """R60: with the words that JAX has for it."""
    jax = requires("jax")
    tensor = dlx.empty((3,), "float6_e2m3fn")
    dlx.convert(tensor_of((3,), "float32"), jax.Array)
    with pytest.raises(BufferError) as caught:
        dlx.convert(tensor, jax.Array)
    with pytest.raises(Exception) as expected:  # noqa: PT011
        own(tensor)
    assert str(expected.value).splitlines()[0] in str(caught.value)


DEVICES = """
import dlx, jax, numpy as np
tensor = dlx.empty((4,), "float32")
for device in jax.devices():
    with jax.default_device(device):
        for _ in range(2):
            made, own = dlx.convert(tensor, jax.Array), jax.dlpack.from_dlpack(tensor)
            assert made.sharding == own.sharding, (made.sharding, own.sharding)
            assert made.committed == own.committed
"""


def test_the_array_is_on_the_device_where_jax_puts_it() -> None:
    """Whatever the default device is."""
    requires("jax")
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    code = f"import os; os.environ.update({flags})\n{DEVICES}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_traced_function_may_convert() -> None:
    """The array is a constant of the compiled function."""
    jax = requires("jax")
    tensor = tensor_of((3,), "float32")
    add = jax.jit(lambda x: x + dlx.convert(tensor, jax.Array))
    assert add(jax.numpy.ones(3)).tolist() == [2, 2, 2]


def test_a_copy_that_jax_makes_is_made_when_the_call_returns() -> None:
    """docs/convert.md: what the source gets afterwards does not come through."""
    jnp, raw = requires("jax.numpy"), np.zeros((1 << 26) + 64, "u1")
    start = -raw.ctypes.data % 64 + 4  # JAX copies what is less aligned
    source = raw[start : start + (1 << 26)].view("f4")
    assert all(dlx.convert(source, jnp).is_ready() for _ in range(5))
