"""What goes wrong in a user's class: exceptions, nonsense, rings of exports."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from ctypes import byref
from typing import Any

import dlx
import numpy as np
import pytest
import tvm_ffi
from support.dlpack_abi import DLTensor, from_table, table_of
from support.dlx_producers import ByMethod, Failure, Stored
from support.fake_producers import Producer, Refusing
from support.optional_libraries import requires
from support.python_process import run_after


def echo(tensor: Any) -> Any:
    """Send a tensor to C++ and back."""
    function: Any = tvm_ffi.get_global_func("testing.echo")
    return function(tensor)


def borrow(instance: Any) -> None:
    """Ask the table of an object's type for a view, if it lends any."""
    entry = table_of(type(instance)).dltensor_from_py_object_no_sync
    (entry or from_table_of)(instance, byref(DLTensor()))


def from_table_of(instance: Any, _: Any = None) -> Any:
    """Ask the table of an object's type for an export."""
    return from_table(table_of(type(instance)), instance)


CONSUMERS: dict[str, Callable[[Any], Any]] = {
    "dlx": dlx.from_dlpack,
    "__dlpack__": lambda x: x.__dlpack__(max_version=(1, 3)),
    "legacy __dlpack__": lambda x: x.__dlpack__(),
    "__dlpack_device__": lambda x: x.__dlpack_device__(),
    "table": from_table_of,
    "numpy": np.from_dlpack,
    "tvm_ffi": tvm_ffi.from_dlpack,
    "function": echo,
    "torch": lambda x: requires("torch").from_dlpack(x),
}
every_consumer = pytest.mark.parametrize("ask", CONSUMERS.values(), ids=CONSUMERS)

ERRORS = [
    Failure("own", 1),
    BufferError("not describable"),
    ValueError("bad"),
    RuntimeError("broken"),
    AttributeError("inner"),
    TypeError("max_version is an unexpected keyword"),
    KeyboardInterrupt(),
]


def fail(instance: Any) -> Any:
    """Raise the error of an instance."""
    raise instance.error


class Raising:
    """Has an error."""

    def __init__(self, error: BaseException) -> None:
        """Keep it."""
        self.error = error


class RaisingMethod(Raising, dlx.ExchangeMixin):
    """Raises it in `__dlx_export__`."""

    __dlx_export__ = fail


class RaisingProperty(Raising, dlx.ExchangeMixin, exchange="data"):
    """Raises it when its attribute is read."""

    data = property(fail)


@every_consumer
@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("kind", [RaisingMethod, RaisingProperty])
def test_the_exception_of_an_export_reaches_every_consumer_unchanged(
    ask: Callable[[Any], Any], error: BaseException, kind: type[Raising]
) -> None:
    """R60, R123: the same object, its arguments, and the line that raised it."""
    arguments = error.args
    error.__traceback__ = None
    with pytest.raises(type(error)) as caught:
        ask(kind(error))
    assert caught.value is error
    assert error.args == arguments
    assert error.__cause__ is None
    assert traceback.extract_tb(error.__traceback__)[-1].name == "fail"


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("asked", [{}, {"dl_device": (1, 0)}, {"copy": True}], ids=str)
@pytest.mark.parametrize("kind", [Stored, ByMethod])
def test_the_exception_of_what_is_exported_reaches_the_consumer_unchanged(
    kind: Any, asked: dict[str, Any], error: BaseException
) -> None:
    """R60, R53: also where the consumer names the device that it is on."""
    inner = type("Inner", (Refusing,), {})()
    inner.error = error
    error.__traceback__ = None
    with pytest.raises(type(error)) as caught:
        kind(inner).__dlpack__(max_version=(1, 3), **asked)
    assert caught.value is error


def test_a_bad_argument_is_one_whatever_else_is_asked() -> None:
    """R74, R77, R53: `dl_device` changes nothing where it is the tensor's own."""
    cuda = Stored(Producer(device=(2, 0)))
    for asked in ({}, {"dl_device": (2, 0)}):
        with pytest.raises(ValueError, match="stream is 0"):
            cuda.__dlpack__(stream=0, **asked)  # type: ignore[arg-type]


def test_nothing_of_a_failed_export_is_kept() -> None:
    """R21: when the exception goes, so does what it held."""
    producer = Producer()

    class Failing(Stored):
        def __dlx_export__(self) -> Any:
            tensor = dlx.from_dlpack(self.data)
            raise Failure(tensor)

    for ask in CONSUMERS.values():
        with pytest.raises(Failure):
            ask(Failing(producer))
    gc.collect()
    assert producer.deleted == len(producer.exports) > 0


OBJECT = pytest.param(object(), id="object")
NONSENSE: list[Any] = [None, 5, "abc", [1.0, 2.0], {}, OBJECT, 1.5, Failure]


@every_consumer
@pytest.mark.parametrize("nonsense", NONSENSE, ids=str)
@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (Stored, "support.dlx_producers.Stored.data is"),
        (ByMethod, "ByMethod.__dlx_export__ return"),
    ],
)
def test_nonsense_is_a_type_error_that_names_class_and_place(
    ask: Callable[[Any], Any], nonsense: Any, kind: Any, where: str
) -> None:
    """R123: and the type of what was found there."""
    with pytest.raises(TypeError) as caught:
        ask(kind(nonsense))
    assert where in str(caught.value)
    assert type(nonsense).__name__ in str(caught.value)


def test_nonsense_behind_another_mixin_names_the_one_that_gave_it() -> None:
    """R123: the innermost."""
    with pytest.raises(TypeError, match=r"ByMethod\.__dlx_export__ returned int"):
        dlx.from_dlpack(Stored(ByMethod(5)))
    with pytest.raises(TypeError, match=r"Stored\.data is int"):
        from_table(table_of(ByMethod), ByMethod(Stored(5)))


# Classes that export themselves.


def ring(*kinds: Any) -> Any:
    """Let one instance of each kind export the next, and the last the first."""
    instances = [kind(None) for kind in kinds]
    for instance, following in zip(
        instances, instances[1:] + instances[:1], strict=True
    ):
        instance.data = following
    return instances[0]


class OtherStored(Stored):
    """A class of its own."""


class OtherByMethod(ByMethod):
    """A class of its own."""


USERS: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": dlx.from_dlpack,
    "convert": lambda x: dlx.convert(x, np),
    "bridge": dlx.bridge(np.ndarray)(abs),
    "borrow": lambda x: dlx.borrow(x).__enter__(),
    "launcher": dlx.launcher(lambda x: x),
    "launcher of tensors": dlx.launcher(lambda x: x, give="tensor"),
    "launcher that writes": dlx.launcher(lambda x: x, out=0),
}


@pytest.mark.parametrize("use", USERS.values(), ids=USERS)
@pytest.mark.parametrize("value", [None, [1.0], "text"], ids=repr)
def test_an_attribute_that_is_no_tensor_is_one_error(
    use: Callable[[Any], Any], value: Any
) -> None:
    """It names the class and the attribute, whatever was called."""
    with pytest.raises(TypeError, match=r"Stored\..* is \w+; expected an object"):
        use(Stored(value))


def test_what_nests_too_deep_is_not_said_to_export_itself() -> None:
    """The message names both."""
    x: Any = np.ones(3)
    for _ in range(200):
        x = Stored(x)
    with pytest.raises(RecursionError, match="exports itself, or too many others"):
        dlx.from_dlpack(x)


RINGS: dict[str, tuple[Any, ...]] = {
    "attribute": (Stored,),
    "method": (ByMethod,),
    "two attributes": (Stored, OtherStored),
    "two methods": (ByMethod, OtherByMethod),
    "method and attribute": (ByMethod, Stored),
    "attribute and method": (Stored, ByMethod),
}


@every_consumer
@pytest.mark.parametrize("kinds", RINGS.values(), ids=RINGS)
def test_a_ring_of_exports_is_a_recursion_error(
    ask: Callable[[Any], Any], kinds: tuple[Any, ...]
) -> None:
    """Not a dead process."""
    with pytest.raises(RecursionError, match="exports itself"):
        ask(ring(*kinds))


@pytest.mark.parametrize("kinds", RINGS.values(), ids=RINGS)
def test_a_ring_of_exports_lends_nothing(kinds: tuple[Any, ...]) -> None:
    """R129: the borrow entry follows the same ring, where there is one."""
    with pytest.raises((RecursionError, BufferError)):
        borrow(ring(*kinds))


DEEP = {
    "from_dlpack": "return dlx.from_dlpack(self)",
    "__dlpack__": "return self.__dlpack__()",
    "a wrapper with __dlpack__": "return Wrapper(self)",
    "a wrapper with a table": "return Forward(self)",
    "a new instance": "return type(self)()",
    "a new instance by from_dlpack": "return dlx.from_dlpack(type(self)())",
    "its own table": "return from_table(table_of(type(self)), self)",
    "numpy": "return np.from_dlpack(self)",
    "tvm_ffi": "return tvm_ffi.from_dlpack(self)",
}
IMPORTS = """
    import ctypes, sys
    from ctypes import ArgumentError, byref, c_void_p
    import dlx, numpy as np, tvm_ffi
    from support.dlpack_abi import Allocation, from_table, table_of
    from support.fake_producers import Producer
    from support.fake_table import Forward
"""


@pytest.mark.parametrize("body", DEEP.values(), ids=DEEP)
def test_an_export_that_asks_for_itself_is_a_recursion_error(body: str) -> None:
    """Not a dead process, whichever way round: every level is a call from Python."""
    code = f"""
        class Wrapper:
            def __init__(self, inner):
                self.inner = inner
            def __dlpack__(self, **keywords):
                return self.inner.__dlpack__(**keywords)
            def __dlpack_device__(self):
                return self.inner.__dlpack_device__()

        class Endless(dlx.ExchangeMixin, dlx.ArrayInterfaceMixin):
            def __dlx_export__(self):
                {body}

        for ask in (
            dlx.from_dlpack,
            np.from_dlpack,
            np.asarray,
            lambda x: x.__dlpack__(),
            lambda x: x.__dlpack_device__(),
            lambda x: from_table(table_of(Endless), x),
        ):
            try:
                print(ask(Endless()))
            except (RecursionError, ctypes.ArgumentError):  # ctypes wraps the one.
                pass
            # Who asks first adds no level, and the time grows with their square.
            sys.setrecursionlimit(300)
        """
    assert run_after(IMPORTS, code) == (0, "", "")


@pytest.mark.parametrize("hook", ["__dlx_import__", "__dlx_empty__", "__dlx_stream__"])
def test_a_hook_that_asks_for_itself_is_a_recursion_error(hook: str) -> None:
    """Not a dead process."""
    code = f"""
        producer = Producer()

        class Endless(dlx.ExchangeMixin, exchange="data"):
            @classmethod
            def {hook}(cls, *arguments):
                return ask(cls)

        ASK = {{
            "__dlx_import__": lambda cls: cls.from_dlpack(producer),
            "__dlx_empty__": lambda cls: 1 / 0 if Allocation(cls, (2,)).errors else 0,
            "__dlx_stream__": lambda cls: table_of(cls).current_work_stream(
                2, 0, byref(c_void_p())
            ),
        }}
        ask = ASK["{hook}"]
        try:
            print(ask(Endless))
        except (RecursionError, ZeroDivisionError, ArgumentError):
            pass
        """
    assert run_after(IMPORTS, code) == (0, "", "")


def test_a_long_chain_of_exports_is_no_ring() -> None:
    """Wrappers of wrappers, as libraries stack them."""
    instance: Any = np.arange(3)
    for _ in range(50):
        instance = Stored(ByMethod(instance)) if _ % 2 else Stored(instance)
    assert dlx.from_dlpack(instance).shape == (3,)
    assert np.from_dlpack(instance).tolist() == [0, 1, 2]
    assert np.from_dlpack(echo(instance)).tolist() == [0, 1, 2]


class Slotted(dlx.ExchangeMixin, exchange="dat"):
    """A class whose attribute has another name."""

    __slots__ = ("data", "unit")

    def __init__(self) -> None:
        """Fill them."""
        self.data, self.unit = np.ones(3), "m"


class Missing(dlx.ExchangeMixin, exchange="dat"):
    """The same, in a dictionary."""

    def __init__(self, **attributes: Any) -> None:
        """Fill it."""
        vars(self).update(attributes)


class Delegating(Missing, exchange="dat"):
    """One that asks what it holds for what it lacks."""

    def __getattr__(self, name: str) -> Any:
        """Ask the array."""
        return getattr(vars(self)["data"], name)


class Loading(dlx.ExchangeMixin, exchange="dat"):
    """One that says itself what is wrong."""

    def __getattr__(self, name: str) -> Any:
        """Say it."""
        raise AttributeError(f"load() makes {name}")


class Computed(dlx.ExchangeMixin, exchange="data"):
    """A class whose attribute lacks another."""

    @property
    def data(self) -> Any:
        """Fail."""
        return self.inner  # type: ignore[attr-defined]


READERS: dict[str, Any] = {
    "dlx": dlx.from_dlpack,
    "numpy": np.from_dlpack,
    "the method": lambda x: x.__dlx_export__(),
    "borrow": lambda x: dlx.borrow(x).__enter__(),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_wrong_name_in_exchange_is_said_with_those_that_are_there(read: Any) -> None:
    """docs/classes.md: the attribute is looked up at each export."""
    delegating = Delegating(data=np.ones(3), unit="m")
    for x in (Slotted(), Missing(data=1, unit="m"), delegating):
        with pytest.raises(AttributeError) as missing:
            read(x)
        assert str(missing.value) == (
            f"exchange='dat' names an attribute that this {type(x).__name__} does not "
            "have; it has 'data', 'unit'; did you mean 'data'?"
        )
        assert missing.value.name == "dat"


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_what_a_class_says_of_an_attribute_is_passed_on(read: Any) -> None:
    """It knows more."""
    with pytest.raises(AttributeError, match=r"^load\(\) makes dat"):
        read(Loading())


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_the_attributes_in_the_error_are_few(read: Any) -> None:
    """An object may have any number."""
    with pytest.raises(AttributeError, match="does not have; it has none"):
        read(Missing())
    many = Missing(**{f"a{i}": i for i in range(99)})
    with pytest.raises(AttributeError, match=r"it has 'a0', .*'a8', \.\.\."):
        read(many)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_an_attribute_that_another_lacks_is_an_error_of_the_class(read: Any) -> None:
    """It passes through."""
    with pytest.raises(AttributeError, match=r"'Computed' object has no .*'inner'"):
        read(Computed())
