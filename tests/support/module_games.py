"""What may happen to `sys.modules`, and a program that uses dlx after each.

Started by `test_sys_modules`; each game is played in a forked child.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np

from support.forked_child import in_child

OTHERS = "tensorflow", "paddle", "mlx", "mlx.core", "cupy", "pyarrow", "ml_dtypes"


class Raising(types.ModuleType):
    """A module whose every attribute raises."""

    def __getattr__(self, name: str) -> Any:
        """Raise."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise LookupError(f"no {name} today")


class Stored(dlx.ExchangeMixin, exchange="data"):
    """An array class."""

    def __init__(self, data: Any) -> None:
        """Store what `convert` found."""
        self.data = data


@dlx.bridge(np.ndarray)
def doubled(x: Any) -> Any:
    """Compute with arrays."""
    return 2 * x


def same(x: np.ndarray[Any, Any], got: Any) -> None:
    """Compare two arrays."""
    assert type(got) is type(x), type(got)
    assert got.tolist() == x.tolist()
    assert got.dtype == x.dtype


def use(dlx: Any = dlx) -> None:
    """Go through the entry points."""
    array = np.arange(6.0).reshape(2, 3)[:, ::2]
    tensor = dlx.from_dlpack(array)
    same(array, dlx.convert(tensor, np.ndarray))
    same(array, tensor.numpy())
    same(array, np.from_dlpack(tensor))
    same(array, dlx.convert(dlx.convert(array, Stored), np.ndarray))
    same(array, dlx.convert_tree({"a": [tensor]}, np.ndarray)["a"][0])
    assert type(doubled(Stored(tensor))) is Stored
    with dlx.borrow(array) as (view, _):
        assert view.shape == (2, 2)
    assert dlx.empty((2,), "float32", like=np.ndarray).shape == (2,)
    assert dlx.from_dlpack(bytearray(3)).tolist() == [0, 0, 0]
    assert str(tensor.dtype) == "float64"
    assert tensor.device == dlx.Device("cpu")
    assert tensor.device.type == 1


def _fake(name: str, **attributes: object) -> Callable[[], None]:
    """Put a module with these attributes in place of another."""

    def play() -> None:
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(attributes)

    return play


def _put(module: Any, *names: str) -> Callable[[], None]:
    """Put something in place of modules."""
    return lambda: sys.modules.update(dict.fromkeys(names, module))


def _replace() -> None:
    sys.modules = dict(sys.modules)


def _again() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "dlx"]:
        del sys.modules[name]
    use(importlib.import_module("dlx"))


GAMES: dict[str, Callable[[], object]] = {
    "numpy is gone": lambda: sys.modules.pop("numpy"),
    "numpy is no module": _put(3, "numpy"),
    "numpy has another ndarray": _fake("numpy", ndarray=type("ndarray", (), {})),
    "numpy's ndarray is no class": _fake("numpy", ndarray=len),
    "torch has a Tensor of its own": _fake("torch", Tensor=type("Tensor", (), {})),
    "torch's Tensor is NumPy's": _fake("torch", Tensor=np.ndarray),
    "torch's Tensor is no class": _fake("torch", Tensor=len),
    "jax's Array is NumPy's": _fake("jax", Array=np.ndarray),
    "sys.modules is another dict": _replace,
    "enum is gone": lambda: sys.modules.pop("enum"),
    "dlx is reloaded": lambda: importlib.reload(dlx),
    "dlx is gone": lambda: sys.modules.pop("dlx"),
    "dlx is imported again": _again,
    "dlx._core is another module": _fake("dlx._core"),
    "dlx._core is None": _put(None, "dlx._core"),
}
for _name in "numpy", "torch", "jax":
    GAMES[f"{_name} is None"] = _put(None, _name)
    GAMES[f"{_name} is empty"] = _fake(_name)
    GAMES[f"{_name} raises"] = _put(Raising(_name), _name)
GAMES["all others are None"] = _put(None, *OTHERS)
GAMES["all others raise"] = _put(Raising("other"), *OTHERS)


def main() -> None:
    """Print what came of each game, with dlx used before or not."""
    found: dict[str, list[str]] = {name: [] for name in GAMES}
    uses: list[Callable[[], None]] = [lambda: None, use]
    for before in uses:
        before()
        for name, play in GAMES.items():

            def played(play: Callable[[], object] = play) -> None:
                play()
                use()

            found[name].append(in_child(played))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
