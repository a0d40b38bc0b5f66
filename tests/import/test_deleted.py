"""Objects that have nothing left to export, and tensors that cannot be moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlx_producers import ByMethod
from support.fake_producers import Producer
from support.optional_libraries import requires


def deleted() -> Any:
    """Make an array of JAX, and delete it."""
    array = requires("jax.numpy").ones(3)
    array.delete()
    return array


@dlx.bridge(np.ndarray)
def total(array: Any) -> Any:
    """Compute with NumPy."""
    return array.sum()


ENTRIES: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": dlx.from_dlpack,
    "from_dlpack, copied": lambda x: dlx.from_dlpack(x, copy=True),
    "from_dlpack, on a device": lambda x: dlx.from_dlpack(x, device="cpu"),
    "convert to NumPy": lambda x: dlx.convert(x, np.ndarray),
    "convert to torch": lambda x: dlx.convert(x, requires("torch").Tensor),
    "convert to dlx": lambda x: dlx.convert(x, dlx.Tensor),
    "convert_tree": lambda x: dlx.convert_tree({"a": [x]}, np.ndarray),
    "borrow": lambda x: dlx.borrow(x).__enter__(),
    "bridge": total,
    "mixin": lambda x: ByMethod(x).__dlpack__(max_version=(1, 3)),
    "mixin, device": lambda x: ByMethod(x).__dlpack_device__(),
    "mixin, from_dlpack": lambda x: dlx.from_dlpack(ByMethod(x)),
}


@pytest.mark.parametrize("enter", ENTRIES.values(), ids=ENTRIES)
def test_a_deleted_array_of_jax_is_refused_as_such(enter: Callable[[Any], Any]) -> None:
    """R63: a BufferError; what JAX came across first is its cause."""
    with pytest.raises(BufferError, match=r"ArrayImpl has been deleted") as caught:
        enter(deleted())
    assert isinstance(caught.value.__cause__, TypeError | RuntimeError)


def test_an_array_that_was_imported_before_it_was_deleted_stays() -> None:
    """The advice of the error."""
    array = requires("jax.numpy").arange(3.0)
    tensor = dlx.from_dlpack(array)
    array.delete()
    assert tensor.numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize("answer", [False, None, 1, "yes"])
def test_only_an_object_that_says_so_is_deleted(answer: Any) -> None:
    """R60: all other exceptions of a producer pass."""

    class Broken(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            raise RuntimeError("own")

        def is_deleted(self) -> Any:
            return answer

    with pytest.raises(RuntimeError, match="own"):
        dlx.from_dlpack(Broken())


# No driver


MOVES: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": lambda x: dlx.from_dlpack(x, device="cuda"),
    "convert": lambda x: dlx.convert(x, np.ndarray, device="cuda"),
    "convert to torch": lambda x: dlx.convert(
        x, requires("torch").Tensor, device="cuda"
    ),
    "mixin": lambda x: dlx.from_dlpack(ByMethod(x), device="cuda"),
    "mixin's method": lambda x: ByMethod(x).__dlpack__(
        max_version=(1, 3), dl_device=(2, 0)
    ),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("derived", [False, True])
def test_a_tensor_of_torch_cannot_be_moved_to_a_gpu_without_a_driver(
    move: Callable[[Any], Any], derived: bool
) -> None:
    """R57: a BufferError that says what is missing."""
    torch = requires("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    tensor = torch.ones(3)
    if derived:
        tensor = tensor.as_subclass(type("Derived", (torch.Tensor,), {}))
    with pytest.raises(BufferError, match=r"cuda:0.*driver \S*libcuda") as caught:
        move(tensor)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", MOVES)
def test_an_array_of_jax_cannot_be_moved_to_a_gpu_without_a_driver(name: str) -> None:
    """R57: a BufferError too; what JAX says of its backends is the cause."""
    jax = requires("jax")
    if requires("torch").cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BufferError, match=r"cuda:0.*driver \S*libcuda") as caught:
        MOVES[name](jax.numpy.ones(3))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("library", ["jax.numpy", "torch"])
def test_copy_false_refuses_a_move_to_a_gpu_without_a_driver(library: str) -> None:
    """R58: as both classes."""
    if requires("torch").cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(dlx.CopyRefused, match="not on cuda:0"):
        dlx.from_dlpack(requires(library).ones(3), device="cuda", copy=False)


def test_other_failures_of_a_producer_asked_for_a_device_pass() -> None:
    """R60: what is derived from RuntimeError says something else."""

    class Broken(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            raise NotImplementedError("own")

    with pytest.raises(NotImplementedError, match="own"):
        dlx.from_dlpack(Broken(), device="cuda:0")
