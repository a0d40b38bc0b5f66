"""Arrow arrays that cannot be: lies, released structs, capsules of other names."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_char, c_void_p
from typing import Any

import dlx
import pytest
from support.dlpack_abi import capsule_name, for_ever
from support.fake_arrow import (
    Answering,
    ByArray,
    ByDeviceArray,
    array_field,
    array_in,
    either,
    numbers,
    schema_field,
)

Show = type[ByArray]


def without_memory(schema: Any, struct: Any) -> None:
    """Have no elements where there should be some."""
    array_in(struct).buffers[1] = None


def a_child(schema: Any, struct: Any) -> None:
    """Have a child, which was released."""
    array_in(struct).n_children = 1
    array_in(struct).children = addressof(CHILDREN)


RELEASED = for_ever((c_char * 128)())
CHILDREN = for_ever(c_void_p(addressof(RELEASED)))

LIES: dict[str, tuple[Callable[[Any, Any], None], str]] = {
    "negative length": (array_field("length", -1), "length -1 and offset 0"),
    "negative offset": (array_field("offset", -1), "length 5 and offset -1"),
    "length that overflows": (array_field("length", 2**62), "length .* and offset"),
    "offset that overflows": (array_field("offset", 2**63 - 1), "length 5 and offset"),
    "one buffer": (array_field("n_buffers", 1), "1 buffers and 0 children"),
    "three buffers": (array_field("n_buffers", 3), "3 buffers and 0 children"),
    "no buffers": (array_field("buffers", None), "2 buffers"),
    "a child": (a_child, "2 buffers and 1 children"),
    "a dictionary": (array_field("dictionary", addressof(RELEASED)), "no dictionary"),
    "a dictionary in the schema": (
        schema_field("dictionary", addressof(RELEASED)),
        "indices of a dictionary",
    ),
    "null_count -2": (array_field("null_count", -2), "null_count -2"),
    "NULL memory": (without_memory, "NULL"),
    "NULL format": (schema_field("format", None), "schema has already been released"),
}


@either
@pytest.mark.parametrize(("change", "message"), LIES.values(), ids=LIES)
def test_a_lie_is_refused(
    change: Callable[[Any, Any], None], message: str, show: Show
) -> None:
    """R63, R88, R109, R111: lengths, counts and buffers that cannot be."""
    with pytest.raises(BufferError, match=message):
        dlx.from_dlpack(show(numbers(), change))


@either
def test_a_released_array_is_refused(show: Show) -> None:
    """Arrow's C data interface: `release` is NULL then, and the rest means nothing."""

    def change(schema: Any, struct: Any) -> None:
        array = array_in(struct)
        array.release(addressof(array))
        array.buffers = None

    with pytest.raises(BufferError, match="array has already been released or moved"):
        dlx.from_dlpack(show(numbers(), change))


@either
def test_a_released_schema_is_refused(show: Show) -> None:
    """Arrow's C data interface."""

    def change(schema: Any, struct: Any) -> None:
        schema.release(addressof(schema))

    with pytest.raises(BufferError, match="schema has already been released"):
        dlx.from_dlpack(show(numbers(), change))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"device_type": 8, "device_id": 3}, "on metal:3; expected the CPU, CUDA or"),
        ({"device_type": 2, "device_id": -1}, "on cuda:-1; expected"),
        ({"sync_event": 8}, "sync_event"),
    ],
    ids=str,
)
def test_memory_that_may_not_be_read_yet_is_refused(
    fields: dict[str, Any], message: str
) -> None:
    """R62, R153: on a device without streams, or behind a sync_event of the CPU."""

    def change(schema: Any, struct: Any) -> None:
        for name, value in fields.items():
            setattr(struct, name, value)

    with pytest.raises(BufferError, match=message):
        dlx.from_dlpack(ByDeviceArray(numbers(), change))


SCHEMA, ARRAY = numbers().__arrow_c_array__()


@pytest.mark.parametrize(
    "answer",
    [None, 5, (), (SCHEMA,), (SCHEMA, 5), (SCHEMA, ARRAY, ARRAY), [SCHEMA, ARRAY]],
    ids=["None", "5", "nothing", "one", "one and 5", "three", "list"],
)
def test_what_is_no_pair_of_capsules_is_a_type_error(answer: Any) -> None:
    """Arrow's PyCapsule interface."""
    with pytest.raises(TypeError, match="not a pair of capsules"):
        dlx.from_dlpack(Answering(answer))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((ARRAY, SCHEMA), 'named "arrow_schema"; expected one named "arrow_array"'),
        ((ARRAY, ARRAY), 'named "arrow_array"; expected one named "arrow_schema"'),
        (numbers().__arrow_c_device_array__(), 'named "arrow_device_array"'),
    ],
    ids=["exchanged", "no schema", "another array"],
)
def test_capsules_of_other_names_are_refused(answer: Any, message: str) -> None:
    """Arrow's PyCapsule interface."""
    with pytest.raises(BufferError, match=message):
        dlx.from_dlpack(Answering(answer))
    assert capsule_name(ARRAY) == b"arrow_array"
