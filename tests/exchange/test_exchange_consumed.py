"""How `from_dlpack` uses the exchange table of another type, whatever that does.

Where it finds one is in `test_exchange_found.py`.
"""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import DLPACK_FLAG_BITMASK_IS_COPIED, ENTRIES
from support.fake_producers import Producer, c_function
from support.fake_table import (
    BY_PROTOCOL,
    BY_TABLE,
    FROM_PY,
    hand_out,
    new_table,
    table_class,
    without_protocol,
)
from support.python_process import run_python

OTHER_ENTRIES = ENTRIES.keys() - {FROM_PY}


def failing(function: str) -> dict[str, Any]:
    """Options of a table whose export is a function of `fake_table.c`."""
    return {FROM_PY: c_function(function)}


# Versions


@pytest.mark.parametrize("minor", [0, 3, 99])
def test_any_minor_version_of_major_1_is_used(minor: int) -> None:
    """R119, R30: older and newer than 1.3."""
    producer = without_protocol(minor=minor)()
    dlx.from_dlpack(producer)
    assert producer.called == BY_TABLE


@pytest.mark.parametrize("newer", [[2], [3, 2]], ids=str)
def test_newer_tables_lead_to_the_one_of_major_1(newer: list[int]) -> None:
    """R119: their own entries are not called."""
    table = new_table()
    for major in reversed(newer[1:]):
        table = new_table(major=major, prev=table, **failing("fail_with_value_error"))
    broken = failing("fail_with_value_error")
    producer = without_protocol(major=newer[0], prev=table, **broken)()
    dlx.from_dlpack(producer)
    assert producer.called == BY_TABLE


@pytest.mark.parametrize("major", [0, 2, 2**32 - 1])
def test_a_table_of_another_major_version_leaves_the_protocol(major: int) -> None:
    """R119, R116: dlx asks `__dlpack__` instead."""
    producer = table_class(major=major)()
    dlx.from_dlpack(producer)
    assert producer.called == BY_PROTOCOL


@pytest.mark.parametrize("options", [{"major": 2}, {FROM_PY: None}], ids=str)
def test_an_unusable_table_is_no_protocol(options: dict[str, Any]) -> None:
    """R61, R119: of another major version, or without its export."""
    with pytest.raises(AttributeError, match=r"Fake has no __dlpack__;"):
        dlx.from_dlpack(without_protocol(**options)())


def test_a_null_export_entry_leaves_the_protocol() -> None:
    """R121: it must not be NULL, and is not called where it is."""
    null: dict[str, Any] = {FROM_PY: None}
    producer = table_class(**null)()
    dlx.from_dlpack(producer)
    assert producer.called == BY_PROTOCOL


def test_only_the_export_entry_is_needed() -> None:
    """R122: the borrow entry may be NULL, and an import needs no other."""
    others: dict[str, Any] = dict.fromkeys(OTHER_ENTRIES)
    producer = without_protocol(**others)()
    dlx.from_dlpack(producer)
    assert producer.called == BY_TABLE


# Failures of the table


@pytest.mark.parametrize(
    ("function", "how"),
    [
        ("fail_without_exception", "failed without an exception"),
        ("succeed_with_null", "succeeded without a tensor"),
        ("succeed_with_exception", "succeeded without a tensor"),
    ],
)
def test_a_table_that_breaks_the_rule_is_a_buffer_error(
    function: str, how: str
) -> None:
    """R123: the message names the entry and the type."""
    hand_out(None)
    fake = without_protocol(name="Broken", **failing(function))
    with pytest.raises(BufferError, match=rf"^{FROM_PY} of .*Broken {how}$"):
        dlx.from_dlpack(fake())


def test_success_with_an_exception_is_a_buffer_error_from_it() -> None:
    """R123, R8: the tensor that came along is deleted, once."""
    producer = without_protocol(name="Broken", **failing("succeed_with_exception"))()
    hand_out(producer.export())
    with pytest.raises(BufferError, match=r"Broken succeeded with an exc") as caught:
        dlx.from_dlpack(producer)
    assert producer.deleted == 1
    assert repr(caught.value.__cause__) == (
        "ValueError('fake value error after success')"
    )


def test_a_buffer_error_of_the_table_leaves_the_protocol_once() -> None:
    """R147: `__dlpack__` is asked once, and not the table again."""
    producer = table_class(**failing("fail_with_buffer_error"))()
    tensor = dlx.from_dlpack(producer)
    assert tensor.data_ptr == producer.data
    assert producer.called == BY_PROTOCOL


def test_a_buffer_error_of_the_table_passes_where_there_is_no_protocol() -> None:
    """R60: with the message of the table."""
    with pytest.raises(BufferError, match=r"^fake buffer error$"):
        dlx.from_dlpack(without_protocol(**failing("fail_with_buffer_error"))())


def test_the_protocols_own_error_is_the_answer_after_a_fall_back() -> None:
    """R147, R60: there is no second one."""
    asked = []

    def refuse(producer: Producer, **keywords: Any) -> Any:
        asked.append(keywords)
        raise BufferError("refused by the protocol")

    fake = table_class(**failing("fail_with_buffer_error"))
    fake.__dlpack__ = refuse  # type: ignore[assignment]
    with pytest.raises(BufferError, match=r"^refused by the protocol$"):
        dlx.from_dlpack(fake())
    assert len(asked) == 1


def test_another_exception_of_the_table_passes_unchanged() -> None:
    """R60: the protocol is not asked."""
    producer = table_class(**failing("fail_with_value_error"))()
    with pytest.raises(ValueError, match=r"^fake value error$") as caught:
        dlx.from_dlpack(producer)
    assert type(caught.value) is ValueError
    assert producer.called == []


@pytest.mark.parametrize(
    "fields",
    [
        {"version": (2, 0)},
        {"dtype": (18, 0, 1)},
        {"dtype": (2, 32, 0)},
        {"device": (5, 0)},
        {"shape": (2, -1)},
        {"shape": (2**62, 2**62)},
        {"data": 0},
    ],
    ids=str,
)
def test_a_tensor_that_cannot_be_is_refused_and_deleted_once(
    fields: dict[str, Any],
) -> None:
    """R11, R29, R31, R88, R109, R111: what the table gave is dlx's to delete."""
    producer = without_protocol()(**fields)
    with pytest.raises(BufferError):
        dlx.from_dlpack(producer)
    assert producer.deleted == 1


# What the table cannot do is asked of the protocol.


@pytest.mark.parametrize("flags", [0, 1, 2, 3, 4], ids=bin)
def test_flags_of_the_export_are_kept(flags: int) -> None:
    """R42, R37, R45: READ_ONLY, IS_COPIED and the padding of sub-byte types."""
    tensor = dlx.from_dlpack(without_protocol()(dtype=(17, 4, 1), flags=flags))
    assert tensor.readonly is bool(flags & 1)
    assert tensor.is_copied is bool(flags & 2)
    assert repr(tensor).endswith("padded)") is bool(flags & 4)


def test_the_stream_that_the_table_names_needs_no_order() -> None:
    """R81, R141: the fake's table answers NULL, the default stream."""
    producer = table_class()(device=(2, 0))
    tensor = dlx.from_dlpack(producer, stream=1)
    assert tensor.stream == 1
    assert producer.requests == []


@pytest.mark.parametrize("stream", [None, 2, 7])
def test_an_order_on_a_stream_is_asked_of_the_protocol(stream: int | None) -> None:
    """R126, R83: neither the table orders, nor dlx without a driver; one deletion."""
    producer = table_class()(device=(2, 0))
    tensor = dlx.from_dlpack(producer, stream=stream)
    assert tensor.stream == (stream or 1)
    assert producer.asked["stream"] == (stream or 1)
    *unused, used = producer.exports
    assert [export.deleted for export in unused] == [1] * len(unused)
    assert used.deleted == 0


def test_without_order_the_table_is_enough() -> None:
    """R76, R126: `stream=-1` needs no driver and no `__dlpack__`."""
    producer = without_protocol()(device=(2, 0))
    tensor = dlx.from_dlpack(producer, stream=-1)
    assert (producer.called, tensor.stream) == (BY_TABLE, None)


def test_a_copy_on_the_cpu_is_made_from_the_tables_tensor() -> None:
    """R59: and that tensor is deleted when the copy is made."""
    producer = without_protocol()()
    tensor = dlx.from_dlpack(producer, copy=True)
    assert producer.deleted == 1
    assert tensor.is_copied
    np.testing.assert_array_equal(tensor.numpy(), [[0, 1, 2], [3, 4, 5]])


def test_another_device_is_asked_of_the_protocol() -> None:
    """R57, R68: a table cannot move a tensor."""
    producer = table_class()(device=(2, 0))
    with pytest.raises(BufferError, match="asked for a tensor on cpu"):
        dlx.from_dlpack(producer, device="cpu")
    assert producer.calls[-1] == (
        "__dlpack__",
        {"max_version": (1, 3), "dl_device": (1, 0)},
    )
    assert [export.deleted for export in producer.exports] == [1, 1]


def test_copy_false_refuses_a_copy_that_the_table_made() -> None:
    """R48, R58: the flag IS_COPIED tells."""
    producer = without_protocol()(flags=2)
    with pytest.raises(dlx.CopyRefused):
        dlx.from_dlpack(producer, copy=False)
    assert producer.deleted == 1


@pytest.mark.parametrize(("device", "stream"), [((1, 0), None), ((2, 0), -1)])
def test_a_device_that_the_tables_tensor_is_not_on_is_never_ignored(
    device: tuple[int, int], stream: int | None
) -> None:
    """R57: also where no stream would lead to the protocol."""
    producer = table_class()(device=device)
    with pytest.raises(BufferError, match="asked for a tensor on cuda:1"):
        dlx.from_dlpack(producer, device="cuda:1", stream=stream)
    assert producer.calls[-1][1]["dl_device"] == (2, 1)


@pytest.mark.parametrize(("device", "stream"), [((2, 0), -1), ((3, 0), None)])
def test_a_copy_that_dlx_cannot_make_is_asked_of_the_protocol(
    device: tuple[int, int], stream: int | None
) -> None:
    """R59: the table cannot copy, and dlx cannot read this memory."""
    producer = table_class()(device=device, flags=DLPACK_FLAG_BITMASK_IS_COPIED)
    assert dlx.from_dlpack(producer, copy=True, stream=stream).is_copied
    assert producer.calls[-1][1]["copy"] is True


def test_a_failing_tables_tensor_is_not_touched() -> None:
    """R123, R8: a caller owns nothing then, so it is not dlx's to delete."""
    producer = without_protocol(**failing("fail_with_tensor"))()
    hand_out(producer.export())
    with pytest.raises(ValueError, match=r"^fake value error$"):
        dlx.from_dlpack(producer)
    assert producer.deleted == 0


def test_a_tensor_of_dlx_is_given_back_as_it_is() -> None:
    """The stub: the first one of a process too, and with nothing to do by keyword."""
    code = """
        import dlx
        tensor = dlx.from_pointer(8, (0,), "int8")
        assert dlx.from_dlpack(tensor) is tensor
        assert dlx.from_dlpack(tensor) is tensor
        assert dlx.from_dlpack(tensor, copy=False) is tensor
        """
    assert run_python(code) == (0, "", "")
