"""The errors for what dlx cannot take say what it is and what to pass instead."""

from __future__ import annotations

import gc
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import dlx
import numpy as np
import pytest
from dlx._libraries import hints
from support.optional_libraries import requires
from support.python_process import run_python

TAKES: dict[str, Any] = {
    "from_dlpack": dlx.from_dlpack,
    "convert": lambda x: dlx.convert(x, np),
    "convert to dlx": lambda x: dlx.convert(x, dlx.Tensor),
    "borrow": lambda x: dlx.borrow(x).__enter__(),
}
every_way = pytest.mark.parametrize("take", TAKES.values(), ids=TAKES)


def refused(take: Any, x: object) -> str:
    """Return the message of the refusal, which is short; `convert`'s is a TypeError."""
    asked = take in (TAKES["from_dlpack"], TAKES["borrow"])
    with pytest.raises(AttributeError if asked else TypeError) as caught:
        take(x)
    message = str(caught.value)
    assert "has no __dlpack" in message
    assert len(message) < 230
    assert "\n" not in message
    return message


@every_way
@pytest.mark.parametrize("x", [[1, 2], (1.5, 2), [], [[1], [2]], 3, 2.5, 1j, True])
def test_python_numbers_are_for_numpy_to_read(take: Any, x: object) -> None:
    """R61: the error names `numpy.asarray`, whose array dlx takes."""
    assert "pass numpy.asarray(x)" in refused(take, x)
    take(np.asarray(x))


@every_way
@pytest.mark.parametrize(
    "wrap", [lambda x: [x], lambda x: {"a": (1, x)}, lambda x: (x,)]
)
def test_containers_of_tensors_are_for_convert_tree(take: Any, wrap: Any) -> None:
    """R61: the error names `dlx.convert_tree`, which converts what is in them."""
    x = wrap(np.arange(3))
    assert "dlx.convert_tree" in refused(take, x)
    tree = dlx.convert_tree(x, dlx.Tensor)
    assert type(tree) is type(x)


@every_way
def test_a_dict_of_numbers_is_called_a_container(take: Any) -> None:
    """R61: nothing in a dict says in which order its values would be."""
    assert "it is a container and no tensor" in refused(take, {"a": 1})


@every_way
def test_none_is_where_a_function_returned_nothing(take: Any) -> None:
    """R61: the usual reason for None."""
    assert "a function without a return statement gives None" in refused(take, None)


@every_way
@pytest.mark.parametrize("x", ["weights.npy", np, np.ndarray, np.float32, dlx.Tensor])
def test_names_modules_and_classes_are_no_tensors(take: Any, x: object) -> None:
    """R61: also for a class, whose methods of the protocol want an instance."""
    message = refused(take, x)
    if isinstance(x, str):
        assert "a str holds no numbers" in message
    else:
        kind = "module" if isinstance(x, ModuleType) else "class"
        assert f"{x.__name__} is a {kind} and no tensor" in message  # type: ignore[attr-defined]
        assert "dlx.convert takes the tensor first" in message


@every_way
def test_other_objects_are_told_what_dlx_takes(take: Any) -> None:
    """R61: for the author of a class, every protocol that it may have."""
    kinds = AttributeError, TypeError
    with pytest.raises(kinds, match=r"takes .*__dlpack__.* Python buffers,"):
        take(SimpleNamespace())


@every_way
def test_an_own_exception_of_a_class_passes(take: Any) -> None:
    """R60: what a metaclass raises is not about the class being no tensor."""

    class Meta(type):
        def __dlpack__(cls, **keywords: object) -> object:
            raise BufferError("the class refuses")

        def __dlpack_device__(cls) -> tuple[int, int]:
            return (1, 0)

    class Kind(metaclass=Meta):
        pass

    with pytest.raises(BufferError, match="the class refuses"):
        take(Kind)


def test_a_mixin_class_that_exports_a_list_gets_the_hint_as_the_cause() -> None:
    """`docs/classes.md`: the error names the hook, its cause what to return instead."""

    class Listed(dlx.ExchangeMixin):
        def __dlx_export__(self) -> object:
            return [1, 2]

    with pytest.raises(TypeError, match="__dlx_export__ returned list") as caught:
        dlx.from_dlpack(Listed())
    assert "pass numpy.asarray(x)" in str(caught.value.__cause__)
    del Listed, caught
    gc.collect()


@every_way
def test_an_error_of_an_object_that_has_a_hint_gets_it_as_a_note(
    take: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R60: what `__array__` raises passes, with what to pass in a note."""

    class Column:
        def __array__(self, *args: object, **keywords: object) -> object:
            raise ValueError("not numbers")

    module = ModuleType("pandas")
    module.Series = Column  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", module)
    with pytest.raises(ValueError, match="not numbers") as caught:
        take(Column())
    hint = "Column: it is a column; pass x.to_numpy(dtype) with a numeric dtype"
    assert any(hint in note for note in caught.value.__notes__)


@pytest.mark.parametrize("x", [np, np.ndarray, dlx.Tensor])
def test_swapped_arguments_of_convert_do_not_print_the_tensor(x: Any) -> None:
    """`convert`: the tensor comes first; a tensor of any size is not printed."""
    for tensor in (np.ones(10_000), dlx.from_dlpack(np.ones(3))):
        message = refused(lambda x, to=tensor: dlx.convert(x, to), x)
        assert "dlx.convert takes the tensor first" in message


def test_a_target_that_is_none_is_named_by_its_type() -> None:
    """`convert`: what is accepted, without the target itself, which may be long."""
    with pytest.raises(
        TypeError, match=r"to is an instance of list; expected an array"
    ):
        dlx.convert(np.ones(3), [0] * 1000)  # type: ignore[call-overload]


def device_types() -> list[str]:
    """The names of all device types."""
    return [name.lower() for name in dlx.DeviceType.__members__]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpu", ["cuda:0", "rocm:0"]),
        ("gpu:1", ["cuda:1", "rocm:1"]),
        ("mps", ["metal:0"]),
        ("xpu:2", ["oneapi:2"]),
        ("hip", ["rocm:0"]),
        ("CPU", ["cpu"]),
        ("CUDA:3", ["cuda:3"]),
        ("cuda_host:x", ["cuda_host:0"]),
        ("/job:localhost/replica:0/task:0/device:GPU:1", ["cuda:1", "rocm:1"]),
        ("npu", []),
        ("", []),
    ],
)
def test_a_name_that_is_no_device_names_those_that_are(
    name: str, meant: list[str]
) -> None:
    """`dlx.Device`: the accepted names, and the one that other libraries mean."""
    with pytest.raises(ValueError, match="is not a device") as caught:
        dlx.from_dlpack(np.ones(3), device=name)
    message = str(caught.value)
    assert message.endswith(
        f"expected one of {', '.join(device_types())}, with an id as in 'cuda:0'"
    )
    advice = " or ".join(repr(str(dlx.Device(one))) for one in meant)
    assert ("; pass " in message) == bool(meant)
    assert f"; pass {advice}; " in message or not meant


def test_a_pair_with_an_unknown_name_names_the_types() -> None:
    """`dlx.Device`: a type alone has no id."""
    with pytest.raises(ValueError, match="not a device type; pass 'cuda' or 'rocm';"):
        dlx.Device(("gpu", 0))
    assert dlx.Device(("cuda", 0)) == "cuda:0"


def test_devices_of_torch_that_dlpack_lacks_are_named() -> None:
    """`dlx.Device`: what DLPack calls them, with an index that torch leaves open."""
    torch = requires("torch")
    for device, meant in [
        ("mps", "metal:0"),
        ("cuda", "cuda:0"),
        ("xpu:1", "oneapi:1"),
    ]:
        with pytest.raises(ValueError, match=f"; pass '{meant}'$"):
            dlx.Device(torch.device(device))
        dlx.Device(meant)
    with pytest.raises(ValueError, match=r"cuda with an index$"):
        dlx.Device(torch.device("meta"))


def test_a_sharding_of_jax_is_no_device_but_names_one() -> None:
    """`dlx.Device`: an object of another library is read for the name in it."""
    jax = requires("jax")
    with pytest.raises(TypeError, match=r"not SingleDeviceSharding; pass 'cpu'$"):
        dlx.Device(jax.numpy.ones(3).sharding)


def test_a_tracer_of_jax_has_no_elements_yet() -> None:
    """R61: the error names `jax.pure_callback`, in which dlx gets arrays."""
    jax = requires("jax")

    def by_numpy(x: Any) -> Any:
        return np.asarray(dlx.convert(x, np)) * 2

    def called(x: Any) -> Any:
        return jax.pure_callback(by_numpy, x, x, vmap_method="sequential")

    x = jax.numpy.arange(6.0).reshape(3, 2)
    takes = [
        *TAKES.values(),
        dlx.bridge(np)(np.negative),
        lambda x: dlx.convert_tree([x], np),
    ]
    for transform in (jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())):
        for take in takes:
            with pytest.raises((AttributeError, TypeError)) as caught:
                transform(lambda x, take=take: (take(x), x)[1])(x)
            texts = [str(caught.value), *getattr(caught.value, "__notes__", ())]
            assert any("inside by jax.pure_callback" in text for text in texts)
    assert (jax.jit(called)(x) == x * 2).all()
    assert (jax.vmap(called)(x) == x * 2).all()


def test_the_error_for_a_key_of_jax_is_its_own() -> None:
    """R60: it says what to pass; its dtype is none of DLPack's."""
    key = requires("jax").random.key(0)
    assert hints.tensor(key) is None
    with pytest.raises(TypeError, match=r"key_data") as caught:
        dlx.convert(key, np)
    assert not hasattr(caught.value, "__notes__")


def doubled(x: Any) -> Any:
    """Call dlx, as a function that torch traces."""
    return requires("torch").from_numpy(dlx.convert(x, np) * 2)


@every_way
def test_a_proxy_of_torch_fx_has_no_elements_yet(take: Any) -> None:
    """The error names `torch.fx.wrap`."""
    torch = requires("torch")
    requires("torch.fx")
    with pytest.raises(TypeError, match=r"in a function that torch\.fx\.wrap names"):
        torch.fx.symbolic_trace(lambda x: take(x))


def test_a_function_that_torch_fx_wraps_gets_tensors() -> None:
    """What the error for a proxy of torch.fx says to do."""
    requires("torch.fx")
    code, _, errors = run_python("""
        import dlx, numpy as np, torch, torch.fx

        def doubled(x):
            return torch.from_numpy(dlx.convert(x, np) * 2)

        torch.fx.wrap("doubled")
        traced = torch.fx.symbolic_trace(lambda x: doubled(x) + 1)
        assert traced(torch.ones(3)).tolist() == [3, 3, 3]
    """)
    assert code == 0, errors


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_a_fake_tensor_of_torch_never_has_elements() -> None:
    """The error names `torch.library.custom_op`, which an exported program calls."""
    torch = requires("torch")

    class Doubled(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.function = function

        def forward(self, x: Any) -> Any:
            return self.function(x)

    with pytest.raises(BufferError, match=r"call dlx in a torch\.library\.custom_op$"):
        torch.export.export(Doubled(doubled), (torch.ones(3),))

    def operation(x: Any) -> Any:
        return doubled(x)

    operation.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    custom = torch.library.custom_op("dlx_tests::doubled", operation, mutates_args=())
    custom.register_fake(torch.empty_like)
    program = torch.export.export(Doubled(custom), (torch.ones(3),))
    assert program.module()(torch.ones(3)).tolist() == [2, 2, 2]


def test_a_module_of_torch_holds_tensors() -> None:
    """The error names the module's tensors, as a container for `convert_tree`."""
    torch = requires("torch")
    model = torch.nn.Linear(2, 3)
    message = refused(dlx.from_dlpack, model)
    assert (
        "pass one of its parameters, or x.state_dict() to dlx.convert_tree" in message
    )
    weights = dlx.convert_tree(model.state_dict(), np)
    assert {name: x.shape for name, x in weights.items()} == {
        "weight": (3, 2),
        "bias": (3,),
    }


CLASSES: dict[str, Any] = {
    "from_dlpack": lambda cls: cls.from_dlpack(np.ones(3)),
    "convert": lambda cls: dlx.convert(np.ones(3), cls),
    "empty": lambda cls: dlx.empty(3, "float32", like=cls),
}
every_maker = pytest.mark.parametrize("make", CLASSES.values(), ids=CLASSES)


@every_maker
def test_a_constructor_that_wants_more_than_the_tensor_names_the_hook(
    make: Any,
) -> None:
    """`docs/classes.md`: the error names `__dlx_import__`, and what is missing."""

    class Labelled(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any, labels: list[str]) -> None:
            self.data, self.labels = data, labels

    class Imported(Labelled):
        @classmethod
        def __dlx_import__(cls, tensor: dlx.Tensor) -> Imported:
            return cls(tensor, [])

    with pytest.raises(
        TypeError,
        match=r"tensor alone \(.*'labels'\); define .* __dlx_import__\(cls, tensor\)",
    ) as caught:
        make(Labelled)
    assert isinstance(caught.value.__cause__, TypeError)
    assert make(Imported).labels == []


@every_maker
def test_a_type_error_inside_a_constructor_passes(make: Any) -> None:
    """R60: the hook is named only if the constructor was not entered."""

    class Broken(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any) -> None:
            raise TypeError("inside")

    with pytest.raises(TypeError, match=r"^inside$"):
        make(Broken)


def test_hints_are_imported_only_for_an_error() -> None:
    """`import dlx` and what succeeds do not import the module."""
    code, output, errors = run_python("""
        import sys, array, dlx

        def loaded():
            print("dlx._libraries.hints" in sys.modules, "numpy" in sys.modules)

        dlx.from_dlpack(array.array("i", [1]))
        loaded()
        try:
            dlx.from_dlpack(None)
        except AttributeError:
            loaded()
    """)
    assert (code, errors) == (0, "")
    assert output.split() == ["False", "False", "True", "False"]
