"""`convert_tree`: columns, tables and wrapped arrays, by the rule of `convert`."""

from __future__ import annotations

from collections import ChainMap, UserDict, UserList
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

import dlx
import numpy as np
import pytest
from support.containers import to_dlx
from support.optional_libraries import requires

A = np.arange(3.0)

# The library, and what makes x of it.
TAKEN = [
    "pd.Series([1.0, 2.0])",
    "pd.Series([1, 2], dtype='Int64')",
    "pd.Series([3, 1, 2])[::-1][1:]",
    "pd.Series([], dtype='float32')",
    "pd.Index([1, 2])",
    "pd.array([1, 2])",
    "pd.DataFrame({'a': [1.0, 2.0]})",
    "pl.Series([1.0, 2.0])",
    "pl.Series([1, 2, 3])[1:]",
    "pl.DataFrame({'a': [1, 2]})",
    "xr.DataArray([1.0, 2.0])",
    "xr.DataArray([[1, 2]]).variable",
    "pa.array([1, 2])",
    "pa.chunked_array([[1, 2]])",
    "pd.Series([1, 2], dtype=pd.CategoricalDtype(pd.array([1, 2])))",
    "pd.DataFrame({'a': pd.Categorical(pd.array([2, 1]))})",
]
LEFT = [
    "pd.Series(['a', 'b'])",
    "pd.Series(['a', 'b'], dtype='category')",
    "pd.Series(['a', 1], dtype=object)",
    "pd.Series([], dtype=object)",
    "pd.date_range('2026-11-28', periods=2)",
    "pd.Series(pd.date_range('2026-11-28', periods=2, tz='Europe/Berlin'))",
    "pd.Series(pd.period_range('2026', periods=2, freq='D'))",
    "pd.MultiIndex.from_tuples([(1, 2), (3, 4)])",
    "pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})",
    "pd.DataFrame({'a': ['x', 'y']})",
    "pd.DataFrame({'a': pd.Categorical(['x', 'y'])})",
    "pl.Series(['a', 'b'])",
    "pl.Series(['a', 'b'], dtype=pl.Categorical)",
    "pl.Series([1, 2]).cast(pl.Date)",
    "pl.Series([[1], [2, 3]])",
    "pl.Series([['a']], dtype=pl.Array(pl.String, 1))",
    "pl.LazyFrame({'a': [1]})",
    "pl.DataFrame({'a': [1], 'b': [0.5]})",
    "xr.DataArray(['a', 'b'])",
    "ak.Array([[1], [2, 3]])",
    "ak.Array(['a', 'b'])",
    "xr.Dataset({'a': ('i', [1, 2])})",
    "pa.array(['a', 'b'])",
    "pa.array(['a', 'b']).dictionary_encode()",
    "pa.chunked_array([['a', 'b']])",
    "pa.table({'a': ['x']})",
    "pa.table({'a': [1.0], 'b': [2.0]})",
    "pa.record_batch({'a': [1.0]})",
]
REFUSED = [
    "pd.Series([1, None], dtype='Int64')",
    "pd.array([1, None])",
    "pl.Series([1, None])",
    "pa.chunked_array([[1, None]])",
    "pd.Series([1, None], dtype='category')",
    "pd.Series([True, None], dtype='category')",
    "pl.Series([[1], None], dtype=pl.Array(pl.Int64, 1))",
    "pa.array([1, None]).dictionary_encode()",
]


def made(code: str) -> Any:
    """Make the object with its library."""
    names = {"pd": "pandas", "pl": "polars", "xr": "xarray", "pa": "pyarrow"}
    names["ak"] = "awkward"
    requires("pyarrow")
    return eval(code, {code[:2]: requires(names[code[:2]])})


@pytest.mark.parametrize("code", TAKEN)
def test_what_convert_takes_alone_is_converted_in_a_tree(code: str) -> None:
    """docs/convert.md, "Trees": one rule."""
    x = made(code)
    alone = dlx.convert(x, np)
    in_tree = dlx.convert_tree({"x": [x]}, np)["x"][0]
    assert type(in_tree) is np.ndarray
    assert (in_tree.dtype, in_tree.tolist()) == (alone.dtype, alone.tolist())


@pytest.mark.parametrize("code", LEFT)
def test_a_column_without_numbers_stays(code: str) -> None:
    """As NumPy arrays of strings do; with `strict=True` it is refused."""
    x = made(code)
    out = to_dlx([A, x])
    assert type(out[0]) is dlx.Tensor
    assert out[1] is x
    with pytest.raises((BufferError, AttributeError, TypeError, ValueError)) as refused:
        to_dlx([A, x], strict=True)
    assert refused.value.__notes__[-1] == "at tree[1]"


def test_a_dataclass_that_is_one_array_is_no_container() -> None:
    """So is zarr's array."""

    @dataclass
    class Stored:
        store: Any

        dtype = property(lambda self: self.store.dtype)
        shape = property(lambda self: self.store.shape)

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array(self.store)

    x = np.arange(3.0)
    made = to_dlx({"x": Stored(x)})["x"]
    assert type(made) is dlx.Tensor
    assert made.tolist() == [0, 1, 2]


@pytest.mark.parametrize("code", REFUSED)
def test_numbers_that_convert_refuses_are_not_left(code: str) -> None:
    """Nothing would say that they are missing in the result."""
    with pytest.raises(BufferError) as refused:
        to_dlx({"x": made(code)})
    assert refused.value.__notes__[-1] == "at tree['x']"


def test_an_argument_that_is_wrong_raises_at_a_column_too() -> None:
    """It is not taken for a refusal of the column."""
    with pytest.raises(TypeError):
        dlx.convert_tree([made("pd.Series([1.0])")], 5)


def test_a_method_that_fails_is_not_taken_for_a_refusal() -> None:
    """R60: what reads a file may fail."""

    class Stored:
        def __array__(self, **_: Any) -> Any:
            raise OSError("the file is gone")

    with pytest.raises(OSError, match="gone"):
        to_dlx([Stored()])


# Containers of the standard library


class Batch(UserDict[str, Any]):
    """What a tokenizer returns."""

    def __init__(self, data: Any, encodings: Any) -> None:
        """Take what `UserDict` does not."""
        super().__init__(data)
        self.encodings = encodings

    def __setitem__(self, key: str, item: Any) -> None:
        """Not be called once it is made."""
        if getattr(self, "encodings", None) is not None:
            raise AssertionError
        super().__setitem__(key, item)


def test_a_user_dict_is_rebuilt_with_its_attributes() -> None:
    """docs/convert.md, "Trees"."""
    tree = Batch({"x": A, "label": "cat"}, "fast")
    out = to_dlx([tree])[0]
    assert type(out) is Batch
    assert (out.encodings, out["label"]) == ("fast", "cat")
    assert type(out["x"]) is dlx.Tensor
    assert tree["x"] is A


def test_a_user_list_and_a_namespace_are_rebuilt() -> None:
    """Also one in the other."""
    tree = SimpleNamespace(x=UserList([A, 1]), name="first")
    out = to_dlx(tree)
    assert type(out) is SimpleNamespace
    assert type(out.x) is UserList
    assert type(out.x[0]) is dlx.Tensor
    assert (out.x[1], out.name) == (1, "first")
    assert tree.x[0] is A


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        (UserDict(a=[1, object()]), "['a'][1]"),
        (SimpleNamespace(a={"b": object()}), ".a['b']"),
    ],
)
def test_a_refusal_in_one_says_where(tree: Any, place: str) -> None:
    """As it is written in Python."""
    with pytest.raises(TypeError) as refused:
        to_dlx(tree, strict=True)
    assert refused.value.__notes__[-1] == f"at tree{place}"


def test_one_without_tensors_stays() -> None:
    """The same object comes back."""
    tree = [UserDict(a="x"), SimpleNamespace(), UserList()]
    assert to_dlx(tree) is tree


@pytest.mark.parametrize("tree", [MappingProxyType({"x": A}), ChainMap({"x": A})])
def test_another_mapping_is_refused_in_a_strict_tree(tree: Any) -> None:
    """It cannot be rebuilt, and its tensors are not left unseen."""
    assert to_dlx([tree])[0] is tree
    with pytest.raises(TypeError, match="no __dlpack__"):
        to_dlx([tree], strict=True)


def test_text_of_tensorflow_stays() -> None:
    """docs/convert.md: as that of any other library; a batch has often both."""
    tf = requires("tensorflow")
    tree = {"x": tf.ones(2), "name": tf.constant(["cat"])}
    out = dlx.convert_tree(tree, np)
    assert out["x"].tolist() == [1, 1]
    assert out["name"] is tree["name"]
    with pytest.raises(BufferError, match="string"):
        dlx.convert_tree(tree, np, strict=True)


@pytest.mark.parametrize(
    "code", ["pa.array(['a'])", "pa.array([[1]])", "pa.nulls(1)", "tf.constant(['a'])"]
)
def test_what_has_no_numbers_passes_a_bridge(code: str) -> None:
    """docs/bridge.md: an array of strings is no tensor, whatever was one before."""
    short, name = {"p": ("pa", "pyarrow"), "t": ("tf", "tensorflow")}[code[0]]
    library = requires(name)
    bridged = dlx.bridge(np.ndarray)(lambda x, y: (x, y))
    numbers = library.array([1]) if short == "pa" else library.constant([1])
    for y in (eval(code, {short: library}), numbers, eval(code, {short: library})):
        x, back = bridged(np.ones(2), y)
        assert type(x) is np.ndarray
        assert (back is y) == (y is not numbers)


@pytest.mark.parametrize("tree", [{"x": np.ones(1)}, [np.ones(1)], (np.ones(1),)])
def test_arguments_that_are_swapped_are_refused(tree: Any) -> None:
    """A module is no container, so it would come back as it is."""
    with pytest.raises(TypeError, match=r"to is a \w+; expected .* after the tree"):
        dlx.convert_tree(np, tree)
