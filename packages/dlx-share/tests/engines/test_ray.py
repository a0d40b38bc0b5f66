"""Tensors in Ray's object store, and between two actors."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires
from support.python_process import run_python

from .cases import BIG, CASES, MIB, address, describe, place
from .engine import engine

ray = engine("ray")

import dlx_share.ray  # noqa: E402

dlx_share.ray.register()
dlx_share.ray.register_transport()

LIBRARIES = ["torch", "jax", "mlx", "numpy", "dlx", "mixin"]
IN_PLACE = ["jax", "numpy", "dlx", "mixin"]


class Worker:
    """What an actor does with tensors."""

    def make(self, case: str) -> Any:
        """Make a case here."""
        return (CASES.get(case) or BIG[case])()

    def describe(self, x: Any) -> Any:
        """Say what has arrived here."""
        return describe(x)

    def place(self, x: Any) -> Any:
        """Say where that is."""
        return place(address(x))

    def write(self, x: Any) -> Any:
        """Write to what has arrived, and say where that is."""
        x[0] = 7
        return place(address(x))

    def write_shared(self, handle: Any) -> Any:
        """Write to what a handle attaches, and say where that is."""
        return self.write(dlx.attach(handle, like="torch"))

    @ray.method(tensor_transport="DLX_SHM")  # type: ignore[untyped-decorator]
    def send(self, shared: bool) -> Any:
        """Send a tensor directly, over memory that is shared already or is not."""
        torch = requires("torch")
        x = torch.zeros(MIB, dtype=torch.uint8)
        if shared:
            self.handle = dlx.share(x)
            x = dlx.attach(self.handle, like=torch)
        self.kept = x
        return {"x": x}

    @ray.method(tensor_transport="DLX_SHM")  # type: ignore[untyped-decorator]
    def send_all(self, cases: list[str]) -> Any:
        """Send several tensors directly."""
        return [CASES[case]() for case in cases]

    def look(self) -> tuple[Any, float]:
        """Say where it is, and what its first element is."""
        return place(address(self.kept)), float(self.kept[0])

    def write_inside(self, sent: Any) -> Any:
        """Write to what has arrived directly, and say where that is."""
        sent["x"][0] = 7
        return place(address(sent["x"])), float(sent["x"][0])

    def describe_all(self, sent: list[Any]) -> Any:
        """Describe several."""
        return [describe(x) for x in sent]

    def held(self) -> int:
        """Count the handles that Ray has this actor hold."""
        from ray.experimental.rdt.util import get_tensor_transport_manager

        return len(get_tensor_transport_manager("DLX_SHM")._held)

    def settings(self) -> Any:
        """Say whose reducers are registered here."""
        from ray.cloudpickle import CloudPickler

        return type(CloudPickler.dispatch_table.maps[0]).__module__


@pytest.fixture(scope="module")
def actors() -> Iterator[tuple[Any, Any]]:
    """Start Ray with two actors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 * MIB,
            log_to_driver=False,
            logging_level="error",
            _node_ip_address="127.0.0.1",
            runtime_env={"worker_process_setup_hook": "dlx_share.ray.register"},
        )
    actor = ray.remote(num_cpus=0, enable_tensor_transport=True)(Worker)
    yield actor.remote(), actor.remote()
    ray.shutdown()


@pytest.fixture
def one(actors: tuple[Any, Any]) -> Any:
    """Give the first."""
    return actors[0]


@pytest.fixture
def other(actors: tuple[Any, Any]) -> Any:
    """Give the second."""
    return actors[1]


def get(ref: Any) -> Any:
    """Wait for a result."""
    return ray.get(ref, timeout=60)


def test_workers_are_registered_by_the_hook(one: Any) -> None:
    """README.md, Engines: without a call in them."""
    assert get(one.settings.remote()) == "dlx_share.ray"


def test_the_module_is_one_of_dlx_too() -> None:
    assert import_module("dlx.ray") is dlx_share.ray


@pytest.mark.parametrize("case", CASES)
def test_a_tensor_arrives_as_it_was(one: Any, other: Any, case: str) -> None:
    """README.md, Engines: between actors, and in the driver."""
    if case.startswith("mlx"):
        pytest.importorskip("mlx.core")
    made = one.make.remote(case)
    there = get(other.describe.remote(made))
    here, expected = describe(get(made)), describe(CASES[case]())
    # The store is read-only, whatever was put there.
    at = 4
    assert here[:at] == there[:at] == expected[:at]
    assert here[at + 1 :] == there[at + 1 :] == expected[at + 1 :]


# The store.


@pytest.mark.parametrize("library", IN_PLACE)
def test_the_store_is_read_in_place(one: Any, library: str) -> None:
    """README.md, Engines: one address in a process, the same pages in another."""
    ref = ray.put(BIG[library]())
    x, y = get(ref), get(ref)
    assert address(x) == address(y)
    assert place(address(x)) == get(one.place.remote(ref))


def test_torch_gets_memory_of_its_own(one: Any) -> None:
    """README.md, Engines: tried by writing, here and there."""
    ref = ray.put(BIG["torch"]())
    x, y = get(ref), get(ref)
    x[0] = 7
    where = get(one.write.remote(ref))
    assert (y[0], get(ref)[0]) == (1, 1)
    assert place(address(x)) != where


def try_to_write(x: Any) -> None:
    """Write with all that dlx, NumPy and JAX have; what refuses raises."""
    t = dlx.from_dlpack(x)
    if isinstance(x, dlx.Tensor | np.ndarray | dlx.ExchangeMixin):
        assert t.readonly
        with pytest.raises(TypeError):
            memoryview(t)[0] = 7
        with pytest.raises(ValueError, match="read-only"):
            np.from_dlpack(x)[...] = 7
        with pytest.raises(ValueError, match="read-only"):
            t.numpy()[...] = 7
        with pytest.raises(BufferError), dlx.borrow(out=x):
            pass
        dlx.convert(x, "torch")[0] = 7  # A copy.
        dlx.from_dlpack(x, copy=True).numpy()[...] = 7
    elif type(x).__module__.startswith("torch"):
        x.zero_()
    elif type(x).__module__.startswith("jaxlib"):
        jax = requires("jax")
        x.at[0].set(7)
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(x)[0] = 7
        # What is donated, XLA may write to.
        jax.block_until_ready(jax.jit(lambda x: x + 7, donate_argnums=0)(x))
    else:
        x[0] = 7


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_nothing_writes_into_the_store(other: Any, library: str) -> None:
    """README.md, Engines: by what dlx gave; another process reads what was put."""
    if library == "mlx":
        pytest.importorskip("mlx.core")
    ref = ray.put(BIG[library]())
    try_to_write(get(ref))
    gc.collect()
    expected = describe(BIG[library]())
    assert get(other.describe.remote(ref))[-1] == describe(get(ref))[-1] == expected[-1]


def test_a_handle_is_the_same_pages_in_an_actor(one: Any) -> None:
    """README.md, Engines: held by Ray's reference count."""
    with dlx.share(BIG["torch"]()) as handle:
        t = dlx.attach(handle, like="torch")
        assert get(one.write_shared.remote(ray.put(handle))) == place(address(t))
        assert t[0] == 7


# What is registered.


@pytest.mark.parametrize("name", ["gradient", "parameter", "sparse"])
def test_what_dlx_cannot_describe_is_pickled_as_ever(name: str) -> None:
    """README.md, Engines: by torch itself."""
    torch = requires("torch")
    x = torch.ones(2, 2, requires_grad=name == "gradient")
    if name == "parameter":
        x = torch.nn.Parameter(x)
    if name == "sparse":
        x = x.to_sparse()
    cloudpickle = ray.cloudpickle
    back = cloudpickle.loads(cloudpickle.dumps(x))
    assert (type(back), back.layout) == (type(x), x.layout)
    assert back.requires_grad == x.requires_grad


PROGRAM = """
    import sys
    import ray.cloudpickle as cloudpickle
    from ray._private.tensor_serialization_utils import zero_copy_tensors_reducer
    import dlx_share.ray
    {before}
    dlx_share.ray.register()
    dlx_share.ray.register()
    {after}
    import torch
    x = torch.ones(4, dtype=torch.bfloat16)
    buffers = []
    text = cloudpickle.dumps([x], protocol=5, buffer_callback=buffers.append)
    store = bytes(buffers[0])
    back, = cloudpickle.loads(text, buffers=[store])
    back[0] = 7
    assert store == bytes(buffers[0]) and back.dtype == torch.bfloat16
    assert (b"dlx.pickling" in text) == {by_dlx}
    """


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("kind", ["numpy", "bfloat16", "transposed", "torch", "jax"])
def test_tensors_are_pickled_in_any_protocol(kind: str, protocol: int) -> None:
    """README.md, Engines: as `torch.save(pickle_module=ray.cloudpickle)` asks."""
    import ml_dtypes
    from ray import cloudpickle

    x: Any = np.arange(6.0, dtype="f4").reshape(2, 3)
    if kind == "bfloat16":
        x = x.astype(ml_dtypes.bfloat16)
    elif kind == "transposed":
        x = x.T
    elif kind in ("torch", "jax"):
        x = dlx.convert(x, requires(kind))
    made = cloudpickle.loads(cloudpickle.dumps([x, x], protocol=protocol))
    assert made[0] is made[1]
    assert type(made[0]) is type(x)
    assert made[0].dtype == x.dtype
    assert made[0].tolist() == x.tolist()
    if kind != "jax":
        made[0][0] = 7
        assert made[0].tolist()[0] == [7.0] * len(made[0][0])


def test_an_array_that_contains_itself_is_pickled_as_ever() -> None:
    """README.md, Engines: by NumPy, which knows it before what is in it."""
    from ray import cloudpickle

    x = np.empty(1, object)
    x[0] = x
    made = cloudpickle.loads(cloudpickle.dumps(x))
    assert made[0] is made


def test_no_library_is_imported_before_its_tensors() -> None:
    """README.md, Engines: in any order of imports."""
    before = "assert not {'torch', 'jax', 'mlx'} & sys.modules.keys()"
    code = PROGRAM.format(before="", after=before, by_dlx=True)
    assert run_python(code) == (0, "", "")


def test_the_switch_that_lets_torch_write_to_the_store_is_off() -> None:
    """README.md, Engines: RAY_ENABLE_ZERO_COPY_TORCH_TENSORS, set before."""
    before = "import torch; reducers = cloudpickle.CloudPickler.dispatch\n"
    before += "    reducers[torch.Tensor] = zero_copy_tensors_reducer"
    code = PROGRAM.format(before=before, after="", by_dlx=True)
    assert run_python(code) == (0, "", "")


def test_a_serializer_that_is_registered_later_is_called() -> None:
    """README.md, Engines: as with any that was registered before it."""
    code = """
    import ray.cloudpickle as cloudpickle
    import dlx_share.ray, torch
    dlx_share.ray.register()
    reducers = cloudpickle.CloudPickler.dispatch
    reducers[torch.Tensor] = lambda x: (str, ("mine",))
    assert cloudpickle.loads(cloudpickle.dumps(torch.ones(2))) == "mine"
    reducers.pop(torch.Tensor)
    assert b"dlx.pickling" in cloudpickle.dumps(torch.ones(2))
    """
    assert run_python(code) == (0, "", "")


def test_what_was_registered_before_gets_what_dlx_cannot_describe() -> None:
    """README.md, Engines: gradients, by the switch that was on."""
    code = """
    import ray.cloudpickle as cloudpickle
    import dlx_share.ray, torch
    cloudpickle.CloudPickler.dispatch[torch.Tensor] = lambda x: (str, ("mine",))
    dlx_share.ray.register()
    dumped = cloudpickle.dumps(torch.ones(2, requires_grad=True))
    assert cloudpickle.loads(dumped) == "mine"
    assert cloudpickle.loads(cloudpickle.dumps(torch.ones(2))).sum() == 2
    """
    assert run_python(code) == (0, "", "")


# Ray Direct Transport.


def test_shared_memory_goes_directly_without_a_copy(one: Any, other: Any) -> None:
    """README.md, Engines: the same pages; the producer sees what is written."""
    sent = one.send.remote(True)
    where, _ = get(other.write_inside.remote(sent))
    assert get(one.look.remote()) == (where, 7)


def test_other_memory_goes_directly_as_a_frozen_copy(one: Any, other: Any) -> None:
    """README.md, Engines: what is written stays with the writer."""
    sent = one.send.remote(False)
    assert get(other.write_inside.remote(sent))[1] == 7
    assert get(one.look.remote())[1] == 0
    assert float(get(sent)["x"][0]) == 0  # The driver's, from the same segment.


def test_many_tensors_go_directly(one: Any, other: Any) -> None:
    """README.md, Engines: of any dtype and layout."""
    cases = [case for case in CASES if case.startswith("torch")]
    sent = one.send_all.remote(cases)
    expected = [describe(CASES[case]()) for case in cases]
    assert get(other.describe_all.remote(sent)) == expected


def test_the_handles_go_with_the_last_reference(one: Any, other: Any) -> None:
    """README.md, Engines: its reference count decides."""
    sent = one.send.remote(False)
    get(other.write_inside.remote(sent))
    assert get(one.held.remote()) > 0
    del sent
    gc.collect()
    deadline = time.monotonic() + 30
    while get(one.held.remote()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert get(one.held.remote()) == 0


def test_a_transport_takes_tensors_that_dlx_sends() -> None:
    """README.md, Engines: of one class for each name."""
    jax = requires("jax")
    dlx_share.ray.register_transport(jax.Array, "DLX_SHM_JAX")
    with pytest.raises(TypeError, match="expected dlx"):
        dlx_share.ray.register_transport(int, "DLX_SHM_INT")
    with pytest.raises(ValueError, match="already registered"):
        dlx_share.ray.register_transport()
