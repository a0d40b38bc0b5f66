"""Where `from_dlpack` finds an exchange table, and where it must not.

How it uses one is in `test_exchange_consumed.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof
from typing import Any
from unittest.mock import MagicMock, Mock

import dlx
import numpy as np
import pytest
from support.dlpack_abi import new_capsule
from support.fake_producers import Producer, c_function
from support.fake_table import (
    BY_PROTOCOL,
    BY_TABLE,
    FROM_PY,
    Forward,
    new_table,
    table_class,
    without_protocol,
)
from support.python_process import run_python

NAME = b"dlpack_exchange_api"


def table_capsule(name: bytes = NAME, **options: Any) -> Any:
    """Capsule of a new table."""
    return new_capsule(addressof(new_table(**options)), name)


def plain_class(**attributes: Any) -> type[Producer]:
    """Make a producer class with these class attributes."""
    return type("Plain", (Producer,), attributes)


# Finding the table


def test_the_table_of_the_type_is_used_and_nothing_else() -> None:
    """R112, R117: `__dlpack__` is not called."""
    producer = without_protocol()()
    tensor = dlx.from_dlpack(producer)
    assert tensor.data_ptr == producer.data
    assert producer.called == BY_TABLE


def test_the_exported_tensor_is_deleted_once_with_the_import() -> None:
    """R8: and not before."""
    producer = without_protocol()()
    tensor = dlx.from_dlpack(producer)
    assert producer.deleted == 0
    del tensor
    assert producer.deleted == 1


def test_a_subclass_inherits_the_table() -> None:
    """R117: the attribute is found on a base."""
    subclass = type("Sub", (without_protocol(),), {})
    producer = subclass()
    dlx.from_dlpack(producer)
    assert producer.called == BY_TABLE


def test_a_subclass_may_have_a_table_of_its_own() -> None:
    """R117: the base was seen first."""
    base = without_protocol()
    dlx.from_dlpack(base())
    failing: dict[str, Any] = {FROM_PY: c_function("fail_with_value_error")}
    own = table_capsule(**failing)
    subclass = type("Sub", (base,), {"__dlpack_c_exchange_api__": own})
    with pytest.raises(ValueError, match="fake value error"):
        dlx.from_dlpack(subclass())


def test_a_capsule_under_the_older_name_is_accepted() -> None:
    """R112: the name before 1.3 was `__c_dlpack_exchange_api__`."""
    producer = plain_class(__c_dlpack_exchange_api__=table_capsule())()
    dlx.from_dlpack(producer)
    assert producer.called == BY_TABLE


NO_TABLES: dict[str, Any] = {
    "0": 0,
    "1": 1,
    "address": addressof(new_table()),
    "str": "dlpack_exchange_api",
    "None": None,
    "object": object(),
    "wrong name": table_capsule(b"dlpack_exchange_API"),
    "tensor name": table_capsule(b"dltensor_versioned"),
    "lying class": MagicMock(spec=table_capsule()),
}


@pytest.mark.parametrize(
    "name", ["__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"]
)
@pytest.mark.parametrize("value", NO_TABLES.values(), ids=NO_TABLES)
def test_an_attribute_that_is_no_table_leaves_the_protocol(
    name: str, value: Any
) -> None:
    """R113, R116: an integer is never followed."""
    producer = plain_class(**{name: value})()
    tensor = dlx.from_dlpack(producer)
    assert tensor.data_ptr == producer.data
    assert producer.called == BY_PROTOCOL


@pytest.mark.parametrize("value", NO_TABLES.values(), ids=NO_TABLES)
def test_an_attribute_that_is_no_table_is_no_protocol(value: Any) -> None:
    """R61: the error names the class and what it lacks."""
    plain = type("Bare", (), {"__dlpack_c_exchange_api__": value})
    with pytest.raises(AttributeError, match=r"Bare has no __dlpack__;"):
        dlx.from_dlpack(plain())


def absent(cls: type) -> Any:
    """Answer of a metaclass that does not lie."""
    raise AttributeError("absent")


LIES: dict[str, Callable[[type, str], Any]] = {
    "object": lambda cls, name: object(),
    "Mock": lambda cls, name: Mock(),
    "MagicMock": lambda cls, name: MagicMock(),
    "address": lambda cls, name: addressof(new_table()),
    "AttributeError": lambda cls, name: absent(cls),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_metaclass_that_has_every_attribute_leaves_the_protocol(
    lie: Callable[[type, str], Any],
) -> None:
    """R113, R116: its answer is no capsule of that name."""
    liar = type("Liar", (type,), {"__getattr__": lie})
    producer = liar("Lied", (Producer,), {})()
    tensor = dlx.from_dlpack(producer)
    assert tensor.data_ptr == producer.data
    assert producer.called == BY_PROTOCOL


def test_an_exception_of_the_metaclass_passes() -> None:
    """R60: only an AttributeError says that there is no table."""

    def fail(cls: type, name: str) -> Any:
        raise ZeroDivisionError(name)

    liar = type("Liar", (type,), {"__getattr__": fail})
    with pytest.raises(ZeroDivisionError, match="dlpack_c_exchange_api"):
        dlx.from_dlpack(liar("Lied", (Producer,), {})())


@pytest.mark.parametrize("mock", [Mock, MagicMock])
def test_a_mock_has_no_protocol(mock: Callable[[], Any]) -> None:
    """R61: it answers every attribute, and none of them as DLPack says."""
    with pytest.raises(AttributeError, match="has no __dlpack__"):
        dlx.from_dlpack(mock())


def test_a_mocked_producer_is_refused_for_what_it_answers() -> None:
    """R64: `__dlpack_device__` of the mock gives another mock."""
    with pytest.raises(TypeError, match="not a pair of ints"):
        dlx.from_dlpack(MagicMock(spec=Producer))


class Numberless(Producer):
    """A producer on a device without a number."""

    def __dlpack_device__(self) -> Any:
        """Say so."""
        return self.device[0], None


def test_the_cpu_needs_no_number() -> None:
    """R64, R66: Paddle's has None."""
    assert dlx.from_dlpack(Numberless()).device == "cpu"


def test_other_devices_need_a_number() -> None:
    """R64: a device that is no pair of ints is a TypeError."""
    with pytest.raises(TypeError, match="not a pair of ints"):
        dlx.from_dlpack(Numberless(device=(2, 0)))


@pytest.mark.parametrize(
    "module",
    ["MagicMock()", "Mock()", "None", "SimpleNamespace(Tensor=1)", "SimpleNamespace()"],
)
def test_a_stand_in_for_torch_disturbs_nobody(module: str) -> None:
    """R116: documentation builds and test suites put mocks into `sys.modules`."""
    program = f"""
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock
sys.modules["torch"] = {module}
import dlx
from support.fake_producers import Producer
from support.fake_table import table_class
assert dlx.from_dlpack(Producer()).shape == (2, 3)
assert dlx.from_dlpack(table_class()()).shape == (2, 3)
"""
    assert run_python(program) == (0, "", "")


# Forwarding by an instance


def forward_by_attribute(inner: Any) -> Any:
    """Set the attribute on the instance alone."""
    made = type("Slot", (), {})()
    made.__dlpack_c_exchange_api__ = inner
    return made


@pytest.mark.parametrize("forward", [Forward, forward_by_attribute])
def test_an_object_named_by_the_instance_is_used(
    forward: Callable[[Any], Any],
) -> None:
    """docs/design.md, The way in: rung 2: its type has the table."""
    inner = without_protocol()()
    tensor = dlx.from_dlpack(forward(inner))
    assert tensor.data_ptr == inner.data
    assert inner.called == BY_TABLE


def test_a_tensor_named_by_the_instance_is_used() -> None:
    """docs/design.md, The way in: rung 2, with a table that is real."""
    inner = dlx.from_dlpack(np.arange(6.0).reshape(2, 3).T)
    tensor = dlx.from_dlpack(Forward(inner))
    assert (tensor.data_ptr, tensor.strides) == (inner.data_ptr, (1, 3))


def test_a_held_copy_that_the_instance_names_is_no_copy_for_others() -> None:
    """R37, R58: its holder would see what they write; nothing is copied for them."""
    inner = dlx.from_dlpack(np.arange(6.0), copy=True)
    assert not dlx.from_dlpack(Forward(inner)).is_copied
    array = dlx.convert(Forward(inner), np, copy=False)
    assert array.ctypes.data == inner.data_ptr
    with dlx.borrow(out=Forward(inner)) as (tensor, _):
        assert tensor.data_ptr == inner.data_ptr


def test_a_wrapper_that_forwards_everything_works_by_its_protocol() -> None:
    """R116: what `__getattr__` finds on the inner object is a capsule, no object."""

    class Wrapper:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

    inner = table_class()()
    tensor = dlx.from_dlpack(Wrapper())
    assert tensor.data_ptr == inner.data
    assert inner.called == BY_PROTOCOL


@pytest.mark.parametrize(
    "inner",
    [Producer(), np.arange(3.0), Forward(table_class()()), table_capsule(), 1, None],
    ids=["Producer", "ndarray", "Forward", "capsule", "1", "None"],
)
def test_what_has_no_table_is_not_forwarded_to(inner: Any) -> None:
    """docs/design.md, The way in: rung 2, is one step; R61."""
    with pytest.raises(AttributeError, match=r"Forward has no __dlpack__;"):
        dlx.from_dlpack(Forward(inner))


def test_an_instance_that_names_itself_is_no_loop() -> None:
    """docs/design.md, The way in; R61: an attribute that leads back to it."""
    loop = Forward(None)
    loop.inner = loop
    with pytest.raises(AttributeError, match=r"Forward has no __dlpack__;"):
        dlx.from_dlpack(loop)


# Remembering


@pytest.mark.parametrize("on", ["the class", "its base"])
def test_a_table_added_after_an_import_is_used_by_the_next(on: str) -> None:
    """R118: a class that Python can change may get a table from an extension."""
    base = plain_class()
    derived = type("Derived", (base,), {})
    dlx.from_dlpack(derived())
    owner: Any = derived if on == "the class" else base
    owner.__dlpack_c_exchange_api__ = table_capsule()
    producer = derived()
    dlx.from_dlpack(producer)
    assert producer.called == BY_TABLE


def test_a_table_added_after_many_imports_is_used_by_the_next() -> None:
    """R118: extensions add tables to classes of others."""
    cls: Any = plain_class()
    for _ in range(200):
        dlx.from_dlpack(cls())
    cls.__dlpack_c_exchange_api__ = table_capsule()
    producer = cls()
    dlx.from_dlpack(producer)
    assert producer.called == BY_TABLE


def test_more_types_than_are_remembered_all_work() -> None:
    """R117: types die here and others get their addresses, with and without a table."""
    program = """
import dlx
from support.fake_producers import Producer
from support.fake_table import BY_PROTOCOL, BY_TABLE, table_class
base, buffer = table_class(), bytearray(1024)
kept = [type("Kept", (base,), {}) for _ in range(50)]
def check(cls, wanted):
    producer = cls(memory=buffer)
    assert dlx.from_dlpack(producer).data_ptr == producer.data
    assert producer.called == wanted, cls
for _ in range(2500):
    check(type("Tabled", (base,), {}), BY_TABLE)
    check(type("Plain", (Producer,), {}), BY_PROTOCOL)
for cls in kept * 2:
    check(cls, BY_TABLE)
"""
    assert run_python(program) == (0, "", "")
