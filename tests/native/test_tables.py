"""How `dlpack_exchange.h` finds the exchange table of a class."""

from __future__ import annotations

import gc
from ctypes import addressof
from typing import Any

import numpy as np
import pytest
from support.dlpack_abi import new_capsule
from support.fake_producers import Producer, c_function
from support.fake_table import new_table, not_called, table_class

TABLE = "__dlpack_c_exchange_api__"
FROM_PY = "managed_tensor_from_py_object_no_sync"
LEND = "dltensor_from_py_object_no_sync"


def test_a_table_is_used_in_place_of_the_method(image: Any) -> None:
    """R112: found on the type; nothing is exported for a look."""
    producer = table_class()()
    assert image.look(producer)[0] == producer.tensor.data
    assert producer.called == [LEND]


def test_a_table_without_the_lending_entry_exports(image: Any) -> None:
    """R122."""
    producer = table_class(dltensor_from_py_object_no_sync=None)()
    image.look(producer)
    assert (producer.called, producer.deleted) == ([FROM_PY], 1)


def test_a_table_on_the_object_alone_is_no_table(image: Any) -> None:
    """R112."""
    producer = Producer()
    vars(producer)[TABLE] = getattr(table_class(), TABLE)
    image.look(producer)
    assert producer.called == ["__dlpack__"]


def test_a_capsule_of_another_name_is_no_table(image: Any) -> None:
    """R113."""

    class Named(Producer):
        __dlpack_c_exchange_api__ = new_capsule(addressof(new_table()), b"dlpack_api")

    producer = Named()
    image.look(producer)
    assert producer.called == ["__dlpack__"]


def test_an_older_table_behind_a_newer_one_is_used(image: Any) -> None:
    """R119: the newer one is of a major version that is not known."""
    for prev in (new_table(), new_table(major=2, prev=new_table())):
        producer = table_class(major=3, prev=prev)()
        image.look(producer)
        assert producer.called == [LEND]


def test_a_table_of_another_major_version_is_not_used(image: Any) -> None:
    """R119."""
    producer = table_class(major=2)()
    image.look(producer)
    assert producer.called == ["__dlpack__"]


def test_a_chain_of_tables_in_a_circle_ends(image: Any) -> None:
    """R119."""
    fake = table_class(major=2)
    fake.table.header.prev_api = type(fake.table.header.prev_api)(fake.table.header)
    producer = fake()
    image.look(producer)
    assert producer.called == ["__dlpack__"]


def test_a_table_that_is_replaced_is_noticed(image: Any) -> None:
    """R117: what is remembered of a type ends with the type's state."""
    fake = table_class()
    producer = fake()
    image.look(producer)
    setattr(fake, TABLE, getattr(type(image.image(np.ones((1, 1), "u1"))), TABLE))
    with pytest.raises(TypeError, match="the table is of"):
        image.look(producer)
    delattr(fake, TABLE)
    image.look(producer)
    assert producer.called == [LEND, "__dlpack__"]


def test_a_table_that_is_added_is_noticed(image: Any) -> None:
    """R118: misses are remembered, as long as they are true."""
    own = type("Own", (Producer,), {})
    producer = own()
    image.look(producer)
    setattr(own, TABLE, getattr(table_class(), TABLE))
    image.look(producer)
    assert producer.called == ["__dlpack__", LEND]


def test_an_inherited_table_is_used(image: Any) -> None:
    """R117."""
    producer = type("Own", (table_class(),), {})()
    image.look(producer)
    assert producer.called == [LEND]


def test_a_class_that_defines_the_method_is_asked_by_it(image: Any) -> None:
    """R117: the table that it inherits is not about it."""

    class Refuses(table_class()):  # type: ignore[misc]
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("not this one")

    with pytest.raises(BufferError, match=r"^not this one$"):
        image.look(Refuses())


@pytest.mark.parametrize("how", ["fail_with_buffer_error", "fail_without_exception"])
def test_what_a_table_refuses_is_asked_by_the_method(image: Any, how: str) -> None:
    """R147."""
    refuses = c_function(how)
    entries: dict[str, Any] = {LEND: refuses, FROM_PY: refuses}
    producer = table_class(**entries)()
    image.look(producer)
    image.import_like(producer, None)
    assert producer.called == ["__dlpack__", "__dlpack__"]


def test_any_other_exception_of_a_table_stays(image: Any) -> None:
    """R147, R60."""
    fake = table_class(
        dltensor_from_py_object_no_sync=c_function("fail_with_value_error")
    )
    fake.__dlpack__ = not_called  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="fake value error"):
        image.look(fake())


def test_a_table_that_makes_no_tensor_is_asked_by_the_method(image: Any) -> None:
    """R147."""
    nothing = c_function("succeed_with_null")
    producer = table_class(managed_tensor_from_py_object_no_sync=nothing)()
    image.import_like(producer, None)
    assert producer.called == ["__dlpack__"]


def test_a_class_with_some_of_the_methods_of_torch_is_not_asked(image: Any) -> None:
    """R125: they may mean something else."""
    for name in ("is_neg", "is_conj", "storage_offset"):
        fake = table_class()
        setattr(fake, name, not_called)
        image.look(fake())


def test_classes_whose_addresses_are_used_again_are_told_apart(image: Any) -> None:
    """R117: nothing keeps a class alive, and each look is right."""
    with_table = table_class()
    for i in range(3000):
        base = (Producer, with_table)[i % 2]
        producer = type("Own", (base,), {})(shape=(i % 5 + 1,))
        assert image.look(producer)[1] == (i % 5 + 1,)
        assert producer.called == [("__dlpack__", LEND)[i % 2]]
        del producer
        if i % 100 == 0:
            gc.collect()
