"""`dlx.share` and `dlx.attach`: one memory in several processes of a host."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import dlx
import numpy as np
import pytest
from dlx_share.sharing import Handle
from hypothesis import given
from support.optional_libraries import requires
from support.python_process import run_python
from support.random_layouts import tensors, values
from support.shared_memory import ARRAY, ask, exporter, kill


@given(tensors())
def test_every_tensor_is_attached_as_it_was(t: dlx.Tensor) -> None:
    """README.md, Sharing: any dtype and layout."""
    with dlx.share(t) as h:
        back = dlx.attach(bytes(h))
    assert (back.shape, back.dtype, back.is_padded) == (t.shape, t.dtype, t.is_padded)
    assert values(back) == values(t)


def test_two_processes_have_one_memory() -> None:
    """README.md, Sharing: what one writes, the other reads."""
    with exporter() as (process, data):
        t = dlx.attach(data)
        assert t.tolist() == ARRAY.tolist()
        np.from_dlpack(t)[0, 0] = 7
        assert ask(process) == 7


def test_a_handle_attaches_to_one_mapping() -> None:
    """README.md, Sharing: in the exporting process, the memory itself."""
    with dlx.share(ARRAY) as h:
        one, other = dlx.attach(h), dlx.attach(bytes(h))
        assert one.data_ptr == other.data_ptr


def test_other_memory_is_copied_or_refused() -> None:
    """README.md, Sharing: the tensor keeps its own."""
    array = ARRAY.copy()
    with dlx.share(array) as h:
        np.from_dlpack(dlx.attach(h))[0, 0] = 7
    assert array[0, 0] == 0
    with pytest.raises(dlx.CopyRefused, match="memory of this process alone"):
        dlx.share(array, copy=False)


def test_memory_on_a_device_is_refused() -> None:
    """README.md, Sharing: not silently copied to the host."""
    t = dlx.from_pointer(4096, (2,), "float32", device="cuda:0")
    with pytest.raises(BufferError, match="cuda:0"):
        dlx.share(t)


def test_jax_writes_and_torch_reads_the_same_pages() -> None:
    """README.md, Sharing: two libraries, one memory."""
    torch, jnp = requires("torch"), requires("jax.numpy")
    with dlx.share(jnp.arange(6, dtype="bfloat16")) as h:
        one, other = dlx.attach(h, like=torch), dlx.attach(bytes(h), like="numpy")
        one[0] = 7
        assert one.dtype == torch.bfloat16
        assert other[0] == 7


def test_a_handle_that_has_arrived_holds_the_memory() -> None:
    """README.md, Sharing: and names this process to the next."""
    with exporter() as (process, data):
        h = Handle(data)
        kill(process)
        again = pickle.loads(pickle.dumps(h))
        h.close()
        assert dlx.attach(again).tolist() == ARRAY.tolist()


def test_a_closed_handle_is_told() -> None:
    """README.md, Sharing: what to keep."""
    h = dlx.share(ARRAY)
    data = bytes(h)
    h.close()
    assert repr(h) == "dlx_share.sharing.Handle(closed)"
    for use in bytes, dlx.attach, pickle.dumps:
        with pytest.raises(BufferError, match="closed"):
            use(h)
    with pytest.raises(BufferError, match="closed"):
        dlx.attach(data)


@pytest.mark.parametrize("mode", [None, "r", "rw", "cow"])
def test_a_closed_handle_is_told_whatever_is_attached_still(mode: Any) -> None:
    """README.md, What happens when: the handle is closed, before `attach`."""
    h = dlx.share(ARRAY)
    attached = dlx.attach(h, mode=mode)
    h.close()
    with pytest.raises(BufferError, match="closed"):
        dlx.attach(h, mode=mode)
    assert attached.tolist() == ARRAY.tolist()


def test_a_handle_says_what_it_holds() -> None:
    """README.md, Sharing: before anything is attached."""
    with dlx.share(dlx.empty((2, 3), "bfloat16")) as h:
        there = pickle.loads(pickle.dumps(h))
        assert (there.shape, there.dtype, there.readonly) == ((2, 3), "bfloat16", False)
        assert repr(there) == "dlx_share.sharing.Handle(bfloat16[2, 3], 12 bytes)"
    with dlx.share(np.ones(1), readonly=True) as h:
        assert repr(h) == "dlx_share.sharing.Handle(float64[1], 8 bytes, readonly)"


@pytest.mark.parametrize("x", [3, None, object()])
def test_what_is_no_handle_is_told_what_one_is(x: Any) -> None:
    """README.md, Sharing: a handle, its bytes, or a name."""
    with pytest.raises(TypeError, match=r"expected a dlx_share.Handle, its by"):
        dlx.attach(x)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_handle_is_one_of_its_own(duplicate: Any) -> None:
    """README.md, Sharing: each holds the memory until it is closed."""
    h = dlx.share(ARRAY)
    other = duplicate(h)
    h.close()
    with other:
        assert dlx.attach(other).tolist() == ARRAY.tolist()


def test_a_tree_of_handles_is_one_memory() -> None:
    """README.md, Sharing: a handle that has arrived names its own process."""
    with exporter() as (process, data):
        h = Handle(data)
        with dlx.share(dlx.attach(h), copy=False) as mine:
            assert not mine.is_copied
            kill(process)
            assert dlx.attach(bytes(mine)).data_ptr == dlx.attach(h).data_ptr


@pytest.mark.parametrize(
    ("method", "library"),
    [("fork", "torch"), ("spawn", "numpy"), ("forkserver", "numpy")],
)
def test_processes_of_each_kind_have_the_memory(method: str, library: str) -> None:
    """README.md, Sharing: a handle as an argument."""
    requires(library)
    # In a process of its own: others of pytest have threads, with which none can fork.
    code = f"""
import dlx, multiprocessing, {library}
from support.process_work import write
if __name__ == "__main__":
    x = dlx.empty((2, 3), "float32", like={library}, shared=True)
    with multiprocessing.get_context({method!r}).Pool(1) as pool:
        with dlx.share(x, copy=False) as h:
            pool.apply(write, (h,))
        assert x.tolist() == [[7, 7, 7]] * 2, x
"""
    assert run_python(code) == (0, "", "")
