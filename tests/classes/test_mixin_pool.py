"""The pool of tables: more classes than tables, dead classes, classes in their places.

The pool is the process's, so what uses it up runs in a Python of its own.
"""

from __future__ import annotations

import pytest
from support.python_process import run_python

PRELUDE = """
import gc, sys, threading, warnings, weakref
from ctypes import addressof, byref, c_void_p
import dlx
from support.dlpack_abi import *
from support.short_lived_classes import *
from support.fake_producers import Producer

NAME = "__dlpack_c_exchange_api__"
NUMBERS = (ctypes.c_double * 3)(0, 1, 2)
SOURCE = memoryview(NUMBERS)
TENSOR = dlx.from_dlpack(SOURCE, copy=True)

def pointer(kind):
    return capsule_pointer(vars(kind)[NAME], b"dlpack_exchange_api")

def use_up():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = [mixin_class()]
        while len(kinds) < 3 or pointer(kinds[-1]) != pointer(kinds[-2]):
            kinds.append(mixin_class())
    return kinds

def raised(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return type(error).__name__
    return "nothing"

def exports(kind):
    return dlx.from_dlpack(kind(SOURCE)).numpy().tolist() == [0, 1, 2]
"""


def check(code: str) -> None:
    """Run code that prints nothing, whatever it asserts."""
    lines = "\n".join(line.removeprefix("        ") for line in code.splitlines())
    assert run_python(PRELUDE + lines) == (0, "", "")


# More classes than tables.


def test_at_least_256_classes_have_tables_of_their_own() -> None:
    """R112, R130: each makes objects of its class."""
    check("""
        kinds = [mixin_class() for _ in range(256)]
        assert len({pointer(kind) for kind in kinds}) == 256
        assert all(type(to_object(table_of(kind))) is kind for kind in kinds)
        """)


def test_there_is_one_warning_when_the_pool_is_used_up() -> None:
    """It names the class, says what is lost, and points to the class statement."""
    check("""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for number in range(600):
                class Numbered(dlx.ExchangeMixin, exchange="data"):
                    pass
            type("Other", (Numbered,), {})
        [warning] = caught
        assert warning.category is RuntimeWarning, warning
        assert "Numbered" in str(warning.message)
        assert "dlx.Tensor" in str(warning.message)
        assert warning.filename == "<string>", warning.filename
        """)


def test_a_class_beyond_the_pool_still_exports() -> None:
    """R112: through the table of a base, and by capsule."""
    check("""
        use_up()
        parent = mixin_class()
        for kind in (parent, mixin_class(parent), mixin_class(__slots__=["data"])):
            assert exports(kind)
            delete(from_table(table_of(kind), kind(SOURCE)))
            capsule = kind(SOURCE).__dlpack__(max_version=(1, 3))
            assert dlx.from_dlpack(capsule).numpy().tolist() == [0, 1, 2]
            assert type(kind.from_dlpack(SOURCE)) is kind
        """)


def test_what_comes_back_beyond_the_pool_is_of_the_base() -> None:
    """R130: of the nearest with a table, or a `dlx.Tensor`."""
    check("""
        parent = mixin_class()
        kinds = use_up()
        assert type(to_object(table_of(mixin_class(parent)))) is parent
        assert type(to_object(table_of(mixin_class(mixin_class(parent))))) is parent
        assert type(to_object(table_of(mixin_class()))) is dlx.Tensor
        assert type(to_object(table_of(kinds[0]))) is kinds[0]
        """)


def test_a_computed_export_beyond_the_pool_is_not_lent() -> None:
    """R122, R129: the table of a base that lends is not the one to share."""
    check("""
        parent = mixin_class()
        use_up()
        computed = mixin_class(parent, __dlx_export__=lambda self: SOURCE)
        assert not table_of(computed).dltensor_from_py_object_no_sync
        assert exports(computed)
        """)


def test_a_table_beyond_the_pool_still_refuses_strangers() -> None:
    """R127: it is that of the base, which takes its instances."""
    check("""
        parent = mixin_class()
        use_up()
        child = mixin_class(parent)
        table = table_of(child)
        for other in (object(), dlx.from_dlpack(SOURCE), mixin_class()(SOURCE)):
            assert raised(from_table, table, other) == "BufferError"
        delete(from_table(table, parent(SOURCE)))
        """)


def test_the_warning_may_be_an_error() -> None:
    """The class statement fails, and the next one does not."""
    check("""
        warnings.simplefilter("error", RuntimeWarning)
        failed = 0
        for _ in range(600):
            failed += raised(mixin_class) == "RuntimeWarning"
        assert failed == 1, failed
        assert exports(mixin_class())
        """)


def test_types_that_dlx_provides_tables_for_say_when_there_are_no_more() -> None:
    """R123: they have no base to share one with."""
    check("""
        foreign = plain_class(
            __dlpack__=lambda self, **keywords: None,
            __dlpack_device__=lambda self: (1, 0),
        )
        use_up()
        for call in (dlx.exchange_api, dlx.publish):
            try:
                call(foreign)
            except RuntimeError as error:
                assert "used up" in str(error), error
            else:
                raise AssertionError("accepted")
        assert dlx.exchange_api(dlx.Tensor) is not None
        """)


# Dead classes.


def test_the_table_of_a_dead_class_raises() -> None:
    """R114, R131: the tensor stays the caller's, and nothing crashes."""
    check("""
        def answer(cls, *arguments):
            raise AssertionError("called")
        hooks = dict.fromkeys(
            ["__dlx_import__", "__dlx_empty__", "__dlx_stream__"], classmethod(answer)
        )
        for body in ({}, hooks):
            kind = mixin_class(**body)
            gone, capsule = weakref.ref(kind), vars(kind)[NAME]
            del kind
            gc.collect()
            assert gone() is None
            assert raised(to_object, table_of(capsule)) == "RuntimeError"
            assert raised(from_table, table_of(capsule), object()) == "BufferError"
            assert raised(from_table, table_of(capsule), mixin_class()(SOURCE))
            stream = table_of(capsule).current_work_stream
            assert stream(1, 0, byref(c_void_p())) == 0
            Allocation(capsule, (2, 3))
        """)


def test_what_a_dead_class_exported_lives_on() -> None:
    """R15, R114: until the deleter is called."""
    check("""
        kind, producer = mixin_class(), Producer()
        managed = from_table(table_of(kind), kind(producer))
        del kind
        gc.collect()
        assert producer.deleted == 0
        assert managed.dl_tensor.shape[:2] == [2, 3]
        delete(managed)
        assert producer.deleted == 1
        """)


# Classes in the place of dead ones.


def test_a_later_mixin_class_works_with_the_table_of_a_dead_one() -> None:
    """R117: exported, made, and made by its own class."""
    check("""
        table, kind = taken_place()
        managed = from_table(table, kind(SOURCE))
        assert managed.dl_tensor.data == addressof(NUMBERS)
        delete(managed)
        assert type(to_object(table)) is kind
        assert type(to_object(table_of(kind))) is kind
        assert exports(kind)
        """)


def test_a_still_later_mixin_class_does_too() -> None:
    """R117: the third at the same address."""
    check("""
        table, kind = taken_place()
        for _ in range(20):
            address = id(kind)
            delete(from_table(table, kind(SOURCE)))
            assert type(to_object(table)) is kind
            del kind
            gc.collect()
            assert raised(to_object, table) == "RuntimeError"
            kind = mixin_class()
            if id(kind) != address:
                break
        """)


def test_a_later_class_exports_what_it_says_through_an_old_table() -> None:
    """R117, R129: also if the old one could lend, and the new one cannot."""
    check("""
        table, kind = taken_place(
            second=lambda: mixin_class(__dlx_export__=lambda self: TENSOR)
        )
        delete(from_table(table, kind()))
        kind.__dlx_export__ = lambda self: dlx.from_dlpack(SOURCE, copy=True)
        borrow = table.dltensor_from_py_object_no_sync
        assert raised(borrow, kind(), byref(DLTensor())) == "BufferError"
        """)


@pytest.mark.parametrize("hooks_of", ["first", "second"])
def test_a_later_class_has_its_own_hooks_through_an_old_table(hooks_of: str) -> None:
    """R117, R140, R138: and not those of the dead one."""
    check(f"""
        given = []
        def empty(cls, shape, dtype, device):
            given.append((ctypes.c_float * 6)())
            return memoryview(given[-1]).cast("B").cast("f", shape)
        hooks = {{
            "__dlx_empty__": classmethod(empty),
            "__dlx_stream__": classmethod(lambda cls, device: 77),
        }}
        table, kind = taken_place(**{{"{hooks_of}": lambda: mixin_class(**hooks)}})
        delete(from_table(table, kind(SOURCE)))
        out = c_void_p()
        table.current_work_stream(2, 0, byref(out))
        assert out.value == (77 if "{hooks_of}" == "second" else 1), out.value
        producer = Producer(device=(2, 0))
        delete(from_table(table, kind(producer)))
        assert producer.asked["stream"] == out.value, producer.asked
        old = new_capsule(addressof(table), b"dlpack_exchange_api")
        made = Allocation(old, (2, 3))
        assert (made.code, made.errors) == (0, [])
        made.delete()
        assert len(given) == ("{hooks_of}" == "second")
        """)


def test_a_stranger_in_the_place_of_a_dead_class_is_refused() -> None:
    """R127: with and without a protocol of its own, which dlx itself reads."""
    check("""
        table, kind = taken_place(second=plain_class)
        assert raised(from_table, table, kind()) == "BufferError"
        borrow = table.dltensor_from_py_object_no_sync
        assert raised(borrow, kind(), byref(DLTensor())) == "BufferError"
        assert raised(to_object, table) == "RuntimeError"
        kind.__dlpack__ = Producer.__dlpack__
        assert raised(from_table, table, kind()) == "BufferError"
        """)


def test_a_subclass_in_another_place_is_no_heir() -> None:
    """R127: the old table serves the class at its address, and not its subclasses."""
    check("""
        table, kind = taken_place()
        delete(from_table(table, kind(SOURCE)))
        child = mixin_class(kind)
        assert raised(from_table, table, mixin_class()(SOURCE)) == "BufferError"
        delete(from_table(table_of(child), child(SOURCE)))
        """)


def test_dlx_itself_is_not_fooled_by_a_used_address() -> None:
    """R117: its cache knows no class that can die."""
    check("""
        table, kind = taken_place()
        for _ in range(20):
            assert exports(kind)
            address = id(kind)
            del kind
            gc.collect()
            kind = plain_class()
            if id(kind) == address:
                assert raised(dlx.from_dlpack, kind(SOURCE)) == "AttributeError"
            del kind
            gc.collect()
            kind = mixin_class(__dlx_export__=lambda self: self.data)
        """)
