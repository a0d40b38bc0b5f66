"""`convert`: what a target is, is asked each time, and no class is kept alive."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import array_api_strict
import dlx
import numpy as np
import pytest
from support.fake_producers import c_function
from support.fake_table import FROM_PY, table_class
from support.optional_libraries import requires

A = np.arange(3.0)


def make_importing(number: int = 0) -> Any:
    """A class with an importer of its own."""

    def from_dlpack(cls: Any, x: Any) -> Any:
        made = cls()
        made.data, made.number = x, number
        return made

    def __dlpack__(self: Any, **keywords: Any) -> Any:
        return self.data.__dlpack__(**keywords)

    def __dlpack_device__(self: Any) -> Any:
        return self.data.__dlpack_device__()

    body = {
        "from_dlpack": classmethod(from_dlpack),
        "__dlpack__": __dlpack__,
        "__dlpack_device__": __dlpack_device__,
        "dtype": "float64",
        "ballast": bytes(100_000),
    }
    return type("Importing", (), body)


def make_torch() -> Any:
    return type("Own", (requires("torch").Tensor,), {})


def make_array() -> Any:
    return type("Own", (np.ndarray,), {})


def make_module() -> Any:
    module = types.ModuleType("namespace")
    module.Array = make_importing()  # type: ignore[attr-defined]
    return module


MAKERS: list[Callable[[], Any]] = [make_importing, make_torch, make_array, make_module]


@pytest.mark.parametrize("make", MAKERS)
def test_targets_made_at_run_time_die(make: Callable[[], Any]) -> None:
    """2000 of them, more than any cache has places."""
    alive = []
    for _ in range(2000):
        to = make()
        alive.append(weakref.ref(to))
        try:
            dlx.convert(A, to)
        except TypeError:
            assert make is make_torch  # its table makes torch.Tensor
        if make is not make_module:
            dlx.convert_tree([], to)
    del to
    gc.collect()
    assert not any(ref() for ref in alive)


def test_a_class_at_the_address_of_a_dead_one_is_asked_itself() -> None:
    addresses = set()
    again = 0
    for number in range(500):
        to = make_importing(number)
        again += id(to) in addresses
        addresses.add(id(to))
        assert dlx.convert(A, to).number == number
        del to
        gc.collect(0)
    assert again  # or the test shows nothing


def test_an_importer_that_is_replaced_is_not_used_again() -> None:
    to, other = make_importing(1), make_importing(2)
    assert dlx.convert(A, to).number == 1
    to.from_dlpack = other.__dict__["from_dlpack"]
    assert dlx.convert(A, to).number == 2
    del to.from_dlpack
    with pytest.raises(TypeError, match="cannot be made from a tensor"):
        dlx.convert(A, to)


def test_a_namespace_whose_array_type_is_replaced_is_asked_again() -> None:
    module = types.ModuleType("namespace")
    for kind in make_importing(1), np.ndarray, dlx.Tensor:
        module.Array = kind  # type: ignore[attr-defined]
        assert type(dlx.convert(A, module)) is kind


def test_an_importer_that_the_class_of_a_module_computes_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not what its dict holds."""
    to, own = type(array_api_strict.asarray(A)), array_api_strict.from_dlpack
    calls: list[Any] = []

    def counting(x: Any) -> Any:
        calls.append(x)
        return own(x)

    class Computing(types.ModuleType):
        @property
        def from_dlpack(self) -> Any:
            return counting

    dlx.convert(A, to)
    monkeypatch.setattr(array_api_strict, "__class__", Computing)
    dlx.convert(A, to)
    assert len(calls) == 1


def test_a_table_that_appears_later_is_found() -> None:
    """Here one that makes instances of another class."""
    to = make_importing(1)
    assert dlx.convert(A, to).number == 1
    to.__dlpack_c_exchange_api__ = table_class().__dlpack_c_exchange_api__
    with pytest.raises(TypeError, match="its library makes"):
        dlx.convert(A, to)


# Whose class it is.


def lie(module: str) -> Any:
    kind = make_importing()
    del kind.from_dlpack
    kind.__module__ = module
    return kind


@pytest.mark.parametrize(
    "module", ["jax.numpy", "jaxlib._jax", "numpy", "tensorflow", "mlx.core", "warp"]
)
def test_the_name_of_a_module_proves_nothing(module: str) -> None:
    """What its package makes is no instance of the class."""
    requires("jax.numpy")
    with pytest.raises(TypeError, match=r"cannot be made|its library makes"):
        dlx.convert(A, lie(module))


def test_a_package_that_is_called_like_a_library_uses_its_own_importer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also for what the library of that name would refuse."""
    kind = make_importing(7)
    importer = kind.from_dlpack
    del kind.from_dlpack
    kind.__module__ = "warp.arrays"
    module = types.ModuleType("warp")
    module.from_dlpack = importer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "warp", module)
    made = dlx.convert(np.array(1.5), kind)
    assert made.number == 7
    assert np.from_dlpack(made).tolist() == 1.5


def test_what_only_says_that_it_is_of_jax_is_given_no_read_only_memory() -> None:
    """It would be writable there."""
    requires("jax.numpy")
    kind = make_importing()
    kind.__module__ = "jax.numpy"
    locked = np.arange(3.0)
    locked.flags.writeable = False
    made = dlx.convert(locked, kind)
    assert np.from_dlpack(made).flags.writeable is False or (
        made.data.data_ptr != locked.ctypes.data
    )


@pytest.mark.parametrize("module", [None, 5, ""])
def test_a_class_without_the_name_of_a_module_is_refused(module: Any) -> None:
    kind = make_importing()
    del kind.from_dlpack
    kind.__module__ = module
    with pytest.raises(TypeError, match="cannot be made from a tensor"):
        dlx.convert(A, kind)


def test_a_subclass_of_an_array_of_jax_is_none_that_jax_makes() -> None:
    jax = requires("jax")
    array = dlx.convert(A.astype("float32"), jax.Array)
    assert type(dlx.convert(A.astype("float32"), type(array))) is type(array)


def test_the_package_of_mlx_leads_to_its_namespace() -> None:
    """docs/convert.md: `to` may be a name, and this one is not that of the library."""
    with pytest.raises(TypeError, match=r"mlx has no array type; .*; pass mlx.core"):
        dlx.convert(A, types.ModuleType("mlx"))


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_the_advice_for_a_class_that_takes_no_tensors_gives_the_elements(
    name: str,
) -> None:
    """R61: what the error says to pass is taken by the constructor."""
    library = requires(name)
    for to in (library, library.Series):
        with pytest.raises(TypeError, match=r"dlx.convert\(x, np.ndarray\)"):
            dlx.convert(dlx.from_dlpack(A), to)
    made = library.Series(dlx.convert(dlx.from_dlpack(A), np.ndarray))
    assert made.to_list() == A.tolist()


def test_another_importer_of_a_library_is_used_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is remembered of a class holds while its library has the same importer."""
    tvm_ffi = requires("tvm_ffi")
    seen = []
    own = tvm_ffi.from_dlpack

    def another(tensor: Any) -> Any:
        seen.append(tensor)
        return own(tensor)

    for _ in range(2):
        dlx.convert(np.ones(2), tvm_ffi.Tensor)
    with monkeypatch.context() as patch:
        patch.setattr(tvm_ffi, "from_dlpack", another)
        for _ in range(2):
            dlx.convert(np.ones(2), tvm_ffi.Tensor)
        assert len(seen) == 2
    dlx.convert(np.ones(2), tvm_ffi.Tensor)
    assert len(seen) == 2


def test_what_one_importer_kept_says_nothing_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each importer is asked anew."""
    tvm_ffi = requires("tvm_ffi")
    own, other = tvm_ffi.from_dlpack, np.ones(2, "i4")
    x = np.ones(2, "f4")
    for _ in range(2):
        dlx.convert(x, tvm_ffi.Tensor)
    monkeypatch.setattr(tvm_ffi, "from_dlpack", lambda tensor: own(other))
    with pytest.raises(BufferError, match="would import float32 as int32"):
        dlx.convert(x, tvm_ffi.Tensor)


def test_a_class_derived_from_that_of_a_library_can_die() -> None:
    """Importers are remembered of the libraries' own classes alone."""
    kind = type("Own", (requires("tvm_ffi").Tensor,), {})
    alive = weakref.ref(kind)
    with pytest.raises(TypeError, match="its library makes"):
        dlx.convert(np.ones(2), kind)
    del kind
    gc.collect()
    assert alive() is None


def test_what_ends_the_process_is_refused_though_another_module_has_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """pyarrow divides by the number of elements."""
    to = requires("pyarrow").FixedShapeTensorArray
    monkeypatch.setitem(sys.modules, "pyarrow", types.ModuleType("pyarrow"))
    with pytest.raises(BufferError, match="at least one element"):
        dlx.convert(np.zeros((0, 2)), to)
    assert len(dlx.convert(np.ones((3, 2)), to)) == 3


def test_a_package_that_sys_modules_has_lost_is_imported_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S6: the class is the same, and dlx remembers its importer."""
    to = requires("pyarrow").FixedShapeTensorArray
    made = dlx.convert(A, to)
    monkeypatch.delitem(sys.modules, "pyarrow")
    assert dlx.convert(A, to).equals(made)


def test_a_class_that_claims_to_be_of_a_library_makes_its_own_instances() -> None:
    """A class of Python may name any module."""

    @classmethod  # type: ignore[misc]
    def from_dlpack(cls: Any, x: Any) -> Any:
        made = cls()
        made.array = np.from_dlpack(x)
        return made

    methods = {
        "__module__": "onnxruntime",
        "from_dlpack": from_dlpack,
        "__dlpack__": lambda self, **keywords: self.array.__dlpack__(**keywords),
        "__dlpack_device__": lambda self: (1, 0),
    }
    cls: Any = type("OrtValue", (), methods)
    assert dlx.convert(A, cls).array.tolist() == A.tolist()


def computed(cls: Any) -> Any:
    """Answer `__class__` with `cls` before the type is looked at."""

    def __getattribute__(self: Any, name: str) -> Any:
        return cls if name == "__class__" else object.__getattribute__(self, name)

    return {"__getattribute__": __getattribute__}


@pytest.mark.parametrize(
    "claim", [lambda cls: {"__class__": property(lambda self: cls)}, computed]
)
def test_an_object_that_claims_the_class_of_the_target_is_returned_as_it_is(
    claim: Callable[[Any], Any],
) -> None:
    """As `isinstance` says."""
    to = make_importing()
    methods = {name: vars(to)[name] for name in ("__dlpack__", "__dlpack_device__")}
    claims = type("Claims", (), {"data": A, **methods, **claim(to)})()
    assert isinstance(claims, to)
    assert dlx.convert(claims, to) is claims


def test_a_metaclass_that_answers_for_the_target_is_asked() -> None:
    """As `isinstance` says."""

    class Meta(type):
        def __instancecheck__(cls, x: Any) -> bool:
            return type.__instancecheck__(cls, x) or hasattr(x, "belongs")

    plain = make_importing()
    to: Any = Meta("To", (plain,), {})
    x = plain.from_dlpack(A)
    assert type(dlx.convert(x, to)) is to
    x.belongs = True
    assert dlx.convert(x, to) is x


def test_another_failure_of_a_table_passes_an_importer_by() -> None:
    """R60: what the producer raises."""
    failing: dict[str, Any] = {FROM_PY: c_function("fail_with_value_error")}
    producer = table_class(**failing)()
    with pytest.raises(ValueError, match=r"^fake value error$"):
        dlx.convert(producer, make_importing())
