"""`dlx.publish` and `dlx.unpublish`: a table for all C consumers, set and taken back.

They change types for the whole process, so each test has a process of its own.
"""

from __future__ import annotations

import pytest
from support.optional_libraries import requires
from support.python_process import run_after

pytestmark = pytest.mark.slow

PRELUDE = """
import ctypes, gc, os, sys, weakref
os.environ["JAX_PLATFORMS"] = "cpu"
from ctypes import byref, c_void_p
import dlx, numpy as np, tvm_ffi
from support.dlpack_abi import *
from support.short_lived_classes import *
from support.fake_producers import Producer
from support.dlx_producers import ByMethod, Stored

NAME = "__dlpack_c_exchange_api__"

def echo(tensor):
    return tvm_ffi.get_global_func("testing.echo")(tensor)

def error(call, *arguments):
    try:
        call(*arguments)
    except TypeError as error:
        return str(error)
    raise AssertionError(f"accepted {arguments}")

def pointer(capsule):
    return capsule_pointer(capsule, b"dlpack_exchange_api")

class Own(Producer):
    @classmethod
    def from_dlpack(cls, x):
        made = cls()
        made.came = x
        return made
"""


def check(code: str) -> None:
    """Run code that prints nothing, whatever it asserts."""
    lines = "\n".join(line.removeprefix("        ") for line in code.splitlines())
    assert run_after(PRELUDE, lines) == (0, "", "")


KINDS = {
    "a Python class": ("dlx", "Own", "Own()"),
    "numpy": ("numpy as np", "np.ndarray", "np.arange(3.0)"),
    "array_api_strict": (
        "array_api_strict as strict",
        "type(strict.asarray(1))",
        "strict.asarray([1.0, 2.0])",
    ),
    "pyarrow": ("pyarrow as pa", "pa.DoubleArray", "pa.array([1.0, 2.0])"),
}
every_kind = pytest.mark.parametrize("name", KINDS)


def with_kind(name: str) -> str:
    """Code that defines `kind` and `instance`."""
    module, kind, instance = KINDS[name]
    return f"import {module}; kind = {kind}; instance = {instance}"


@every_kind
def test_publish_sets_the_table_that_exchange_api_gives(name: str) -> None:
    """R112 to R114: on the type, for good."""
    check(f"""
        {with_kind(name)}
        before = pointer(dlx.exchange_api(kind))
        assert not hasattr(kind, NAME)
        assert dlx.publish(kind) is None
        capsule = vars(kind)[NAME]
        assert pointer(capsule) == pointer(dlx.exchange_api(kind)) == before
        assert pointer(type(instance).__dlpack_c_exchange_api__) == before
        assert pointer(instance.__dlpack_c_exchange_api__) == before
        """)


@every_kind
def test_publish_again_changes_nothing(name: str) -> None:
    """Idempotent, and so is the way back."""
    check(f"""
        {with_kind(name)}
        dlx.unpublish(kind)
        dlx.publish(kind)
        capsule = vars(kind)[NAME]
        dlx.publish(kind)
        assert vars(kind)[NAME] is capsule
        dlx.unpublish(kind)
        assert not hasattr(kind, NAME) and not hasattr(instance, NAME)
        dlx.unpublish(kind)
        dlx.publish(kind)
        assert pointer(vars(kind)[NAME]) == pointer(capsule)
        """)


@every_kind
def test_a_published_instance_comes_back_from_tvm_as_its_class(name: str) -> None:
    """R130: before, tvm_ffi gives a tensor of its own."""
    check(f"""
        {with_kind(name)}
        dlx.publish(kind)
        came = echo(instance)
        assert isinstance(came, kind), type(came)
        if not isinstance(instance, Own):
            assert np.array_equal(np.from_dlpack(came), np.from_dlpack(instance))
        """)


@every_kind
def test_dlx_reads_the_type_as_before(name: str) -> None:
    """What dlx provides for others is no way for dlx itself: no ring, no detour."""
    check(f"""
        {with_kind(name)}
        def read():
            tensor = dlx.from_dlpack(instance)
            return tensor.data_ptr, tensor.shape, tensor.strides, tensor.readonly
        before = read()
        dlx.publish(kind)
        assert read() == before
        dlx.unpublish(kind)
        assert read() == before
        dlx.publish(kind)
        assert dlx.from_dlpack(Stored(instance)).data_ptr == before[0]
        assert dlx.from_dlpack(ByMethod(instance)).data_ptr == before[0]
        """)


@every_kind
def test_a_table_works_when_it_is_not_published_any_more(name: str) -> None:
    """R114: consumers may remember it."""
    check(f"""
        {with_kind(name)}
        dlx.publish(kind)
        table = table_of(kind)
        dlx.unpublish(kind)
        gc.collect()
        managed = from_table(table, instance)
        assert managed.dl_tensor.data == dlx.from_dlpack(instance).data_ptr
        delete(managed)
        """)


@pytest.mark.parametrize("kind", ["type(array)", "jax.Array"])
def test_arrays_of_jax_are_published(kind: str) -> None:
    """R112, R130: by their class, or by the abstract base."""
    requires("jax")
    check(f"""
        import jax
        array = jax.numpy.arange(3.0)
        kind = {kind}
        address = dlx.from_dlpack(array).data_ptr
        dlx.publish(kind)
        dlx.publish(kind)
        table = table_of(type(array))
        assert dlx.from_dlpack(array).data_ptr == address
        came = echo(array)
        assert isinstance(came, jax.Array) and came.tolist() == [0, 1, 2], came
        dlx.unpublish(kind)
        assert not hasattr(array, NAME)
        managed = from_table(table, array)
        assert managed.dl_tensor.data == address
        delete(managed)
        """)


def test_numpy_arrays_of_any_layout_reach_tvm() -> None:
    """R130: as what they were."""
    check("""
        dlx.publish(np.ndarray)
        for layout in (np.zeros((4, 6)).T, np.array(1.0), np.zeros((2, 0, 3))):
            came = echo(layout)
            assert (came.shape, came.dtype) == (layout.shape, layout.dtype)
        """)


def test_what_came_back_holds_the_array_that_went() -> None:
    """R15, R8: as long as it lives itself."""
    check("""
        dlx.publish(np.ndarray)
        array = np.arange(3.0)
        gone = weakref.ref(array)
        came = echo(array)
        assert np.shares_memory(came, array)
        del array
        assert gone() is not None
        del came
        gc.collect()
        assert gone() is None
        """)


def test_subclasses_of_a_published_type_find_its_table() -> None:
    """R117: and come back as the published type."""
    check("""
        class Sub(np.ndarray):
            pass
        dlx.publish(np.ndarray)
        assert pointer(Sub.__dlpack_c_exchange_api__) == pointer(vars(np.ndarray)[NAME])
        array = np.arange(3.0).view(Sub)
        assert type(echo(array)) is np.ndarray
        assert "that of numpy.ndarray" in error(dlx.publish, Sub)
        dlx.unpublish(Sub)
        assert hasattr(Sub, NAME)
        """)


def test_subclasses_of_a_published_type_still_export_in_their_own_way() -> None:
    """R125: what they refuse is refused, what they do is done."""
    check("""
        class Refusing(np.ndarray):
            def __dlpack__(self, **keywords):
                raise KeyError("own")
        class Doubling(np.ndarray):
            def __dlpack__(self, **keywords):
                return (2 * np.asarray(self)).__dlpack__(**keywords)
        class Mixed(dlx.ExchangeMixin, np.ndarray):
            def __dlx_export__(self):
                return 3 * np.asarray(self)
        dlx.publish(np.ndarray)
        array = np.arange(3.0)
        try:
            echo(array.view(Refusing))
        except KeyError:
            pass
        else:
            raise AssertionError("accepted")
        assert echo(array.view(Doubling)).tolist() == [0, 2, 4]
        delete(from_table(table_of(Mixed), array.view(Mixed)))
        assert dlx.from_dlpack(array.view(Mixed)).numpy().tolist() == [0, 3, 6]
        try:
            echo(np.ma.array([1, 2], mask=[False, True]))
        except BufferError:
            pass
        else:
            raise AssertionError("accepted a mask")
        """)


def test_the_guards_of_a_published_python_class_are_its_own() -> None:
    """R60: exceptions of `__dlpack__` reach the consumer as they are."""
    check("""
        class Failing(Own):
            def __dlpack__(self, **keywords):
                raise KeyError("own")
        dlx.publish(Failing)
        try:
            echo(Failing())
        except KeyError as error:
            assert error.args == ("own",)
        else:
            raise AssertionError("accepted")
        """)


def test_a_published_class_dies_with_its_last_reference() -> None:
    """R114: its table stays, and makes objects no more."""
    check("""
        kind = type("Fresh", (Own,), {})
        gone = weakref.ref(kind)
        dlx.publish(kind)
        table = table_of(kind)
        assert type(to_object(table)) is kind
        del kind
        gc.collect()
        assert gone() is None
        try:
            to_object(table)
        except RuntimeError:
            pass
        else:
            raise AssertionError("made an object of a dead class")
        """)


def test_the_types_own_attributes_stay_as_they_were() -> None:
    """Safe for extension types: the method cache learns of the change."""
    check("""
        before = set(dir(np.ndarray))
        array = np.arange(3.0)
        for _ in range(5):
            dlx.publish(np.ndarray)
            assert hasattr(array, NAME) and hasattr(np.ndarray, NAME)
            assert set(dir(np.ndarray)) == before | {NAME}
            dlx.unpublish(np.ndarray)
            assert not hasattr(array, NAME) and not hasattr(np.ndarray, NAME)
            assert set(dir(np.ndarray)) == before
        try:
            np.ndarray.other = 1
        except TypeError:
            pass
        else:
            raise AssertionError("the type can be changed now")
        """)
