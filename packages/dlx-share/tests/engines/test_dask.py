"""Tensors between two workers of dask.distributed."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import dlx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.optional_libraries import requires
from support.python_process import run_python

from .cases import BIG, CASES, MIB, address, describe, place
from .engine import engine

distributed = engine("distributed")
dask = engine("dask")
dask_config = engine("dask.config")

import dlx_share.dask  # noqa: E402

dlx_share.dask.register()


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Start two workers with dlx as their preload."""
    settings = {
        "distributed.worker.preload": ["dlx_share.dask"],
        "distributed.scheduler.active-memory-manager.start": False,
    }
    with (
        dask_config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def made(case: str) -> Any:
    """Make a case, or something of a MiB, in a worker."""
    return (CASES.get(case) or BIG[case])()


def send(
    client: Any, make: Callable[..., Any], use: Callable[[Any], Any], x: Any
) -> Any:
    """Make something in one worker, use it in the other, and return both results."""
    # `scheduler_info` may answer with the client's periodic update, without workers.
    one, other = client.nthreads()
    there = client.submit(make, x, workers=[one], pure=False)
    used = client.submit(use, there, workers=[other], pure=False)
    distributed.wait(used, timeout=60)
    return client.gather([there, used])


def test_the_module_is_one_of_dlx_too() -> None:
    assert import_module("dlx.dask") is dlx_share.dask


@pytest.mark.parametrize("case", CASES)
def test_a_tensor_arrives_as_it_was(client: Any, case: str) -> None:
    """README.md, Engines: in another worker, and in the client."""
    if case.startswith("mlx"):
        pytest.importorskip("mlx.core")
    gathered, described = send(client, made, describe, case)
    assert describe(gathered) == described == describe(CASES[case]())


def read_only(x: Any) -> Any:
    """Return whether dlx may not write to it."""
    return dlx.from_dlpack(x).readonly


@pytest.mark.parametrize("case", ["dlx read-only", "dlx float32"])
def test_read_only_is_kept(client: Any, case: str) -> None:
    """README.md, Engines: as pickles keep it."""
    gathered, elsewhere = send(client, made, read_only, case)
    assert gathered.readonly == elsewhere == (case == "dlx read-only")


@pytest.mark.parametrize("library", ["torch", "jax", "mlx", "dlx", "mixin"])
def test_a_frame_is_the_memory_of_the_tensor(library: str) -> None:
    """README.md, Engines: neither end copies; the addresses are equal."""
    if library == "mlx":
        pytest.importorskip("mlx.core")
    x = BIG[library]()
    header, frames = distributed.protocol.serialize(x)
    at = [dlx.from_dlpack(memoryview(frame)).data_ptr for frame in frames[-1:]]
    assert at == [address(x)]
    back = distributed.protocol.deserialize(header, frames)
    assert type(back) is type(x)
    if library != "mlx":  # It copies what it imports.
        assert address(back) == address(x)


def test_a_frame_that_nobody_may_write_to_is_copied_for_torch() -> None:
    """README.md, Engines: tried by writing."""
    header, frames = distributed.protocol.serialize(BIG["torch"]())
    store = bytes(frames[0])
    back = distributed.protocol.deserialize(header, [store])
    kept = bytes(store[:2])
    back[0] = 7
    assert store[:2] == kept


def test_numbers_that_numpy_has_go_the_way_of_distributed() -> None:
    """README.md, Engines: torch's own path stays."""
    torch = requires("torch")
    header, _ = distributed.protocol.serialize(torch.ones(3, requires_grad=True))
    assert header["sub-header"]["requires_grad"]
    header, _ = distributed.protocol.serialize(torch.ones(3))
    assert "dlx" not in header["sub-header"]
    header, _ = distributed.protocol.serialize(torch.ones(3, dtype=torch.bfloat16))
    assert "dlx" in header["sub-header"]


def more_than_dlpack(name: str) -> Any:
    """Make what DLPack cannot describe."""
    torch = requires("torch")
    if name == "sparse":
        return torch.eye(2).to_sparse()
    if name == "conjugate":
        return torch.ones(2, dtype=torch.complex64).conj()
    if name == "parameter":
        return torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    if name == "gradient":
        return torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    if name == "int4 of jax":
        return requires("jax.numpy").ones(3, "int4")
    return requires("jax").random.key(1)


def seen(x: Any) -> tuple[Any, ...]:
    """Describe what DLPack cannot describe."""
    layout = str(getattr(x, "layout", ""))
    return (
        type(x).__name__,
        str(x.dtype),
        getattr(x, "requires_grad", 0),
        layout,
        repr(x),
    )


@pytest.mark.parametrize(
    "name",
    ["sparse", "conjugate", "parameter", "gradient", "int4 of jax", "key of jax"],
)
def test_what_dlx_cannot_describe_is_pickled(client: Any, name: str) -> None:
    """README.md, Engines: without dlx, most of these never arrive."""
    gathered, there = send(client, more_than_dlpack, seen, name)
    assert seen(gathered) == there == seen(more_than_dlpack(name))


def among_others(name: str) -> Any:
    """Put a tensor beside something that only cloudpickle takes."""
    return {"tensor": BIG[name](), "function": lambda: name}


@pytest.mark.parametrize("name", ["torch", "jax", "dlx"])
def test_tensors_inside_of_others_arrive(client: Any, name: str) -> None:
    """README.md, Engines: in a dictionary with a lambda."""
    gathered, there = send(client, among_others, lambda x: describe(x["tensor"]), name)
    assert describe(gathered["tensor"]) == there == describe(BIG[name]())


# Sizes, and memory that is shared.


@pytest.mark.parametrize("library", ["torch", "jax", "mlx", "dlx"])
def test_dask_knows_how_large_a_tensor_is(library: str) -> None:
    """README.md, Engines: it plans by that."""
    if library == "mlx":
        pytest.importorskip("mlx.core")
    x = BIG[library]()
    assert dask.sizeof.sizeof(x) == dlx.from_dlpack(x).nbytes > MIB - 100


def test_dask_knows_how_large_a_sparse_tensor_is() -> None:
    """README.md, Engines: torch raises for `nbytes`, which workers would log."""
    torch = requires("torch")
    x = torch.eye(3, dtype=torch.float64).to_sparse()
    indices, values = 3 * 2 * 8, 3 * 8
    assert dask.sizeof.sizeof(x) == indices + values


def test_equal_tensors_have_equal_tokens() -> None:
    """README.md, Engines: a task of the same tensor is the same task."""
    x, y = CASES["dlx bfloat16"](), CASES["dlx bfloat16"]()
    token = dask.base.tokenize
    assert token(x) == token(y) != token(CASES["dlx int4"]())


def shared(_: Any) -> Any:
    """Share memory of this worker."""
    return dlx.share(dlx.from_dlpack(bytearray(MIB)))


def written(handle: Any) -> tuple[Any, Any]:
    """Write to shared memory, and return where it is."""
    t = dlx.attach(handle)
    memoryview(t)[5] = 7
    return place(t.data_ptr), bytes(handle) != b""


def test_a_handle_is_the_same_pages_everywhere(client: Any) -> None:
    """README.md, Engines: device and inode are equal, and writes are seen."""
    handle, (there, _) = send(client, shared, written, None)
    t = dlx.attach(handle)
    assert place(t.data_ptr) == there
    assert memoryview(t)[5] == 7


def test_a_handle_that_has_arrived_outlives_the_first(client: Any) -> None:
    """README.md, Engines: the scheduler may drop any replica."""
    one, other = client.nthreads()
    first = client.submit(shared, None, workers=[one], pure=False)
    second = client.submit(pickle.loads, client.submit(pickle.dumps, first), pure=False)
    client.replicate(second, workers=[other])
    distributed.wait(second)
    del first
    assert client.submit(written, second, workers=[other], pure=False).result()[1]


# What others send.

HEADER, FRAMES = distributed.protocol.serialize(BIG["jax"]())
OWN = HEADER["sub-header"]["dlx"]


@given(st.data())
def test_a_forged_header_is_a_buffer_error(data: st.DataObject) -> None:
    """README.md, Security: never other memory."""
    anything = st.one_of(
        *(st.none(), st.integers(-(2**70), 2**70), st.text(max_size=3), st.floats()),
        st.lists(st.integers(-(2**65), 2**65), max_size=3).map(tuple),
    )
    fields: Any = list(OWN)
    for index in data.draw(st.sets(st.integers(0, len(fields) - 1), min_size=1)):
        fields[index] = data.draw(anything)
    fields = data.draw(
        st.sampled_from([fields, fields[:-1], [*fields, 1], None, 5, {}])
    )
    forged = HEADER | {"sub-header": {"dlx": fields}}
    try:
        back = distributed.protocol.deserialize(forged, FRAMES)
    except BufferError:
        return
    assert dlx.from_dlpack(back).span[1] == len(memoryview(FRAMES[0]))


@pytest.mark.parametrize("own", [{}, {"dlx": None}, None, 5, {"sub-header": {}}])
def test_a_header_of_nobody_is_a_buffer_error(own: Any) -> None:
    """README.md, Security: JAX has no other serializer."""
    with pytest.raises(BufferError, match="damaged"):
        distributed.protocol.deserialize(HEADER | {"sub-header": own}, FRAMES)


@pytest.mark.parametrize("frames", [[], [b"", b""], [b"\0" * 5], [5]])
def test_forged_frames_are_a_buffer_error(frames: Any) -> None:
    """README.md, Security: all bytes have to be used."""
    with pytest.raises(BufferError, match=r"damaged|the buffer of 5 bytes"):
        distributed.protocol.deserialize(HEADER, frames)


def test_another_version_is_told() -> None:
    """README.md, Pickling: both ends need the same."""
    forged = HEADER | {"sub-header": {"dlx": (2, *OWN[1:])}}
    with pytest.raises(BufferError, match="version 2"):
        distributed.protocol.deserialize(forged, FRAMES)


# Registration.


def test_registered_workers_pass(client: Any) -> None:
    """README.md, Engines: `check` returns nothing."""
    dlx_share.dask.check(client)


def forget(_: Any = None) -> None:
    """Make a worker as one in which nothing was registered."""
    from dask.sizeof import sizeof

    del sizeof._lookup[dlx.Tensor]


def lose(_: Any = None) -> None:
    """Make a worker as one without dlx."""
    import sys

    sys.modules["dlx.pickling"] = None  # type: ignore[assignment]


def regain(_: Any = None) -> None:
    """Undo both."""
    import sys

    sys.modules.pop("dlx.pickling")
    import dlx_share.dask

    dlx_share.dask.register()


@pytest.mark.parametrize(
    ("spoil", "match"), [(forget, "has not been called"), (lose, "dlx.pickling")]
)
def test_a_worker_that_is_not_ready_is_named(
    client: Any, spoil: Any, match: str
) -> None:
    """README.md, Engines: by its address, and why."""
    one, other = client.nthreads()
    client.run(spoil, workers=[other])
    with pytest.raises(RuntimeError, match=match) as caught:
        dlx_share.dask.check(client)
    client.run(regain, workers=[other])
    assert other in str(caught.value)
    assert one not in str(caught.value)


def test_no_library_is_imported_before_its_tensors() -> None:
    """README.md, Engines: in any order of imports."""
    code = """
    import sys
    import dlx_share.dask
    from dask.sizeof import sizeof
    from distributed.protocol import deserialize, serialize
    dlx_share.dask.register()
    dlx_share.dask.register()
    assert not {"torch", "jax", "mlx"} & sys.modules.keys()
    import torch
    import torch.nn
    x = torch.ones(3, dtype=torch.bfloat16)
    header, frames = serialize(x)
    assert "dlx" in header["sub-header"] and sizeof(x) == 6
    back = deserialize(header, frames)
    assert back.data_ptr() == x.data_ptr()
    assert "jax" not in sys.modules
    """
    assert run_python(code) == (0, "", "")


def test_a_process_that_only_receives_needs_no_import() -> None:
    """README.md, Engines: the library is imported when its tensor arrives."""
    header, frames = distributed.protocol.serialize(CASES["jax bfloat16"]())
    code = f"""
    import dlx_share.dask, sys
    dlx_share.dask.register()
    from distributed.protocol import deserialize
    x = deserialize({header!r}, [bytearray({bytes(frames[0])!r})])
    assert type(x) is type(sys.modules["jax"].numpy.ones(1)) and x.shape == (4, 6)
    """
    assert run_python(code) == (0, "", "")
