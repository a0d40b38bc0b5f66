"""The fake frameworks: they order what they promise, and nothing more."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any

import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import (
    KINDS,
    CudaArray,
    DLPackArray,
    InterfaceArray,
    TableArray,
    framework,
)
from support.dlpack_abi import delete, from_table, table_of, take
from support.simulated_driver import Simulation
from support.simulated_objects import LEGACY, PER_THREAD

every_kind = pytest.mark.parametrize("kind", KINDS)
every_dlpack = pytest.mark.parametrize("kind", [TableArray, DLPackArray])


@every_kind
def test_an_array_is_filled_on_the_current_stream(
    sim: Simulation, kind: type[CudaArray]
) -> None:
    fake, a = framework(kind), sim.stream()
    with fake.stream(a):
        array = fake.full((2, 3), 1.5)
        array += 1
    launches = [call for call in sim.journal if call.name == "sim_launch"]
    assert [call.arguments["stream"] for call in launches] == [a.handle] * 2
    assert {call.caller for call in launches} == {"framework"}
    with fake.stream(a):
        assert array.tolist() == [2.5] * 6
    assert (sim.races, sim.violations, sim.called()) == ([], [], [])


@every_kind
def test_a_framework_does_not_order_its_own_streams(
    sim: Simulation, kind: type[CudaArray]
) -> None:
    """H10: work on two of them is a race."""
    fake = framework(kind)
    with fake.stream(sim.stream()):
        array = fake.full((2,))
    with fake.stream(sim.stream()):
        array += 1
    assert len(sim.races) == 1


@every_kind
def test_the_current_stream_is_of_the_thread(
    sim: Simulation, kind: type[CudaArray]
) -> None:
    """R140: another thread starts on the legacy stream."""
    fake = framework(kind)
    with fake.stream(sim.stream()):
        assert in_thread(fake.current_stream).handle == LEGACY


@every_kind
def test_a_freed_block_is_used_again_at_once(
    sim: Simulation, kind: type[CudaArray]
) -> None:
    """H4: while another stream reads it."""
    fake, a, b = framework(kind), sim.stream(), sim.stream()
    with fake.stream(a):
        array = fake.full((4,))
        b.wait_for(a)
        b.launch(False, array.data, 16)
        address = array.data
        del array
        again = fake.full((4,))
    assert again.data == address
    assert [race.first.stream for race in sim.races] == [b.handle]


@every_kind
def test_a_block_is_not_given_to_another_stream(
    sim: Simulation, kind: type[CudaArray]
) -> None:
    fake = framework(kind)
    with fake.stream(sim.stream()):
        address = fake.full((4,)).data
    with fake.stream(sim.stream()):
        assert fake.full((4,)).data != address


@every_kind
def test_a_recorded_stream_is_waited_for(
    sim: Simulation, kind: type[CudaArray]
) -> None:
    """H4: `record_stream`."""
    fake, a, b = framework(kind), sim.stream(), sim.stream()
    with fake.stream(a):
        array = fake.full((4,))
        b.wait_for(a)
        b.launch(False, array.data, 16)
        array.record_stream(b)
        address = array.data
        del array
        assert fake.full((4,)).data != address
        sim.advance()
        assert fake.full((4,)).data == address
    assert sim.races == []


# `__dlpack__`


@every_dlpack
@pytest.mark.parametrize("consumer", ["own", LEGACY, PER_THREAD])
def test_the_consumers_stream_waits(
    sim: Simulation, kind: type[DLPackArray], consumer: Any
) -> None:
    """R73, R80: a handle, the legacy stream and that of the thread."""
    fake, a = framework(kind), sim.stream()
    b = sim.stream() if consumer == "own" else sim.default_stream(consumer)
    with fake.stream(a):
        array = fake.full((4,))
        managed = take(array.__dlpack__(stream=b.handle, max_version=(1, 3)))
    b.launch(True, managed.dl_tensor.data, 16)
    assert sim.races == []
    delete(managed)


@every_dlpack
def test_no_stream_means_the_legacy_one(
    sim: Simulation, kind: type[DLPackArray]
) -> None:
    """R72: `__dlpack__()` orders it."""
    fake = framework(kind)
    with fake.stream(sim.stream()):
        array = fake.full((4,))
        delete(take(array.__dlpack__()))
    sim.default_stream(LEGACY).launch(True, array.data, 16)
    assert sim.races == []


@every_dlpack
@pytest.mark.parametrize("same", [True, False])
def test_nothing_is_called_where_nothing_is_to_be_ordered(
    sim: Simulation, kind: type[DLPackArray], same: bool
) -> None:
    """R76, R81: `stream=-1`, or the stream it works on."""
    fake, a = framework(kind), sim.stream()
    with fake.stream(a):
        array = fake.full((4,))
        sim.clear_journal()
        delete(take(array.__dlpack__(stream=a.handle if same else -1)))
    names = {call.name for call in sim.journal}
    assert names <= {"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"}


@every_dlpack
@pytest.mark.parametrize(
    ("stream", "error"),
    [(0, ValueError), (-2, ValueError), (True, TypeError), ("1", TypeError)],
)
def test_strange_streams_are_refused(
    sim: Simulation, kind: type[DLPackArray], stream: Any, error: type[Exception]
) -> None:
    """R74, R77, R78: 0, below -1, and other types."""
    array = framework(kind).full((4,))
    with pytest.raises(error):
        array.__dlpack__(stream=stream)


@every_dlpack
def test_an_export_outlives_the_array(sim: Simulation, kind: type[DLPackArray]) -> None:
    """H5: its memory is not given out before its deleter has run."""
    fake = framework(kind)
    array = fake.full((4,))
    managed = take(array.__dlpack__(stream=-1, max_version=(1, 3)))
    array.free()
    assert fake.full((4,)).data != array.data
    assert array.deleted == 0
    delete(managed)
    assert array.deleted == 1
    assert fake.full((4,)).data == array.data


def test_an_import_by_another_framework_is_ordered(sim: Simulation) -> None:
    """R83: and what the producer writes later is not."""
    one, other = framework(DLPackArray, "one"), framework(DLPackArray, "other")
    with one.stream(sim.stream()):
        array = one.full((4,))
        with other.stream(sim.stream()):
            imported = other.from_dlpack(array)
            imported.launch(True)
        assert sim.races == []
        array += 1
    assert len(sim.races) == 1
    imported.drop()
    assert array.deleted == 1


# HIP.


@every_dlpack
@pytest.mark.parametrize("default", [True, False])
def test_the_consumers_stream_waits_on_hip(
    sim: Simulation, kind: type[DLPackArray], default: bool
) -> None:
    """R75, R80: no event is recorded again while it is pending."""
    fake, a = framework(kind, hip=True), sim.stream(hip=True)
    b = sim.default_stream(0, hip=True) if default else sim.stream(hip=True)
    with fake.stream(a):
        array = fake.full((4,), 2)
        assert array.__dlpack_device__() == (10, 0)
        managed = take(array.__dlpack__(stream=b.handle, max_version=(1, 3)))
        b.launch(True, managed.dl_tensor.data, 16)
        assert sim.races == []
        array += 1
    assert len(sim.races) == 1
    assert sim.violations == []
    assert all(not c.name.startswith(("cuStream", "cuEvent")) for c in sim.journal)
    delete(managed)


@every_dlpack
@pytest.mark.parametrize("stream", [1, 2])
def test_streams_1_and_2_are_refused_on_hip(
    sim: Simulation, kind: type[DLPackArray], stream: int
) -> None:
    """R75: and the driver never sees them."""
    array = framework(kind, hip=True).full((4,))
    with pytest.raises(ValueError, match=str(stream)):
        array.__dlpack__(stream=stream)
    assert sim.violations == []


# The table.


def test_the_table_names_the_current_stream(sim: Simulation) -> None:
    """R139 to R141: for each device; NULL for the legacy one and the CPU."""
    fake, a, out = framework(TableArray), sim.stream(1), c_void_p()
    ask = table_of(fake.Array).current_work_stream
    with fake.stream(a):
        for device, expected in (((2, 1), a.handle), ((2, 0), None), ((1, 0), None)):
            assert ask(*device, byref(out)) == 0
            assert out.value == expected


def test_the_table_calls_nothing(sim: Simulation) -> None:
    """R126: an export through it gives the driver no work."""
    fake = framework(TableArray)
    with fake.stream(sim.stream()):
        array = fake.full((4,))
        sim.clear_journal()
        managed = from_table(table_of(fake.Array), array)
    assert sim.journal == []
    assert managed.dl_tensor.data == array.data
    delete(managed)
    assert array.deleted == 1


# The interface.


def test_the_interface_names_the_current_stream(sim: Simulation) -> None:
    """R148, R149, R152: version 3, and the stream it works on."""
    fake, a = framework(InterfaceArray), sim.stream()
    with fake.stream(a):
        array = fake.full((2, 3))
        described = array.__cuda_array_interface__
    assert described["stream"] == a.handle
    assert described["data"] == (array.data, False)
    assert (described["shape"], described["version"]) == ((2, 3), 3)
    assert not hasattr(array, "__dlpack__")
    assert array.__cuda_array_interface__["stream"] == LEGACY
