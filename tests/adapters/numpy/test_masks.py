"""Arrays with masked elements, whatever their class is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import needs, requires
from support.python_process import run_python

ADVICE = r"masked elements, .*pass x\.filled\(value\)"


def named(mask: Any) -> Any:
    """Return an array of a class of one's own, as NumPy's guide has it."""
    array: Any = np.arange(3.0).view(type("Own", (np.ndarray,), {}))
    array.mask = mask
    return array


def hiding() -> Any:
    """Return an array of a class whose mask cannot be asked for now."""

    class Hides(np.ndarray):
        @property
        def mask(self) -> Any:
            raise AttributeError("not now")

    return np.arange(3.0).view(Hides)


MASKED: dict[str, Callable[[], Any]] = {
    "numpy.ma": lambda: np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False]),
    "a subclass of it": lambda: MASKED["numpy.ma"]().view(
        type("Sub", (np.ma.MaskedArray,), {})
    ),
    "another class": lambda: named(np.array([False, True, False])),
    "a flag for all": lambda: named(True),
    "a mask that cannot say": lambda: named(np.zeros(2, "i4,i4")),
    "a mask that its class hides": hiding,
}

WHOLE: dict[str, Callable[[], Any]] = {
    "numpy.ma without a mask": lambda: np.ma.array([1.0, 2.0, 3.0]),
    "numpy.ma with none masked": lambda: np.ma.array([1.0, 2.0, 3.0], mask=[False] * 3),
    "another class": lambda: named(np.zeros(3, bool)),
    "no mask": lambda: named(None),
    "a method of this name": lambda: named(lambda: True),
}


@pytest.mark.parametrize("make", MASKED.values(), ids=MASKED)
def test_masked_elements_are_refused(make: Callable[[], Any]) -> None:
    """R63: in every way; and the advice gives what the array means."""
    x = make()
    ways: list[Callable[[], Any]] = [
        lambda: dlx.from_dlpack(x),
        lambda: dlx.from_dlpack(x, device="cpu", copy=True),
        lambda: dlx.convert(x, np.ndarray),
        lambda: dlx.convert(x, dlx.Tensor),
        lambda: dlx.convert_tree([x], dlx.Tensor),
        lambda: dlx.borrow(x).__enter__(),
        lambda: dlx.launcher(print)(x),
        lambda: dlx.bridge(dlx.Tensor)(print)(x),
    ]
    for way in ways:
        with pytest.raises(BufferError, match=ADVICE):
            way()


def test_the_advice_gives_what_the_array_means() -> None:
    """R63."""
    x = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
    assert dlx.from_dlpack(x.filled(-1)).tolist() == [1, -1, 3]


@pytest.mark.parametrize("make", WHOLE.values(), ids=WHOLE)
def test_arrays_with_no_masked_element_are_shared(make: Callable[[], Any]) -> None:
    """R63: their memory holds what they mean."""
    x = make()
    assert dlx.from_dlpack(x).data_ptr == x.ctypes.data


def test_the_masks_of_astropy_are_seen() -> None:
    """R63: numpy/numpy#26669; its own export has no mask either."""
    needs("astropy")
    masked = requires("astropy.utils.masked").Masked
    x = masked([1.0, 2.0, 3.0], mask=[False, True, False])
    with pytest.raises(BufferError, match="masked elements"):
        dlx.convert(x, np.ndarray)
    assert dlx.convert(masked([1.0, 2.0], mask=False), np.ndarray).tolist() == [1, 2]


def test_a_mask_that_is_masked_itself_is_seen() -> None:
    """R63: `any` leaves out what is masked in the mask."""
    needs("astropy")
    masked = requires("astropy.utils.masked").Masked
    x = masked([1.0, 2.0], mask=True)
    x = masked(x, mask=x == x)
    assert not x.mask.any()
    with pytest.raises(BufferError, match="masked elements"):
        dlx.from_dlpack(x)


class Own(np.ndarray[Any, Any]):
    """An array that is its own mask."""

    @property
    def mask(self) -> Any:
        """Return the array."""
        return self


def test_an_array_that_is_its_own_mask_is_refused() -> None:
    """R63: nobody knows what it masks."""
    with pytest.raises(BufferError, match="masked elements"):
        dlx.from_dlpack(np.zeros(2).view(Own))


def test_an_array_of_astropy_that_has_lost_its_mask_is_refused() -> None:
    """R63: which elements were masked, nobody knows."""
    requires("astropy")
    masked = requires("astropy.utils.masked").Masked
    x = masked([[1, 2]], mask=[[False, True]]).view(np.matrix)
    assert x.mask is None
    with pytest.raises(BufferError, match="masked elements"):
        dlx.from_dlpack(x)
    assert dlx.convert(np.asarray(x), np.ndarray).tolist() == [[1, 2]]


GAMES = {
    "reloaded": """if True:
        importlib.reload(np.ma.core)
        x = np.ma.core.array([1, 9], mask=[0, 1])""",
    "removed": "x = np.ma.array([1, 9], mask=[0, 1]); del sys.modules['numpy.ma']",
    "replaced": "x = np.ma.array([1, 9], mask=[0, 1]); sys.modules['numpy'] = sys",
    "removed with NumPy": """if True:
        x = np.ma.array([1, 9], mask=[0, 1])
        for name in [n for n in sys.modules if n.startswith("numpy")]:
            del sys.modules[name]""",
}


@pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
def test_masks_are_seen_whatever_the_modules_are(game: str) -> None:
    """R63: before and after dlx has met an array."""
    for first in ("", "dlx.from_dlpack(np.ones(2))"):
        code, _, errors = run_python(f"""
import importlib, sys
import numpy as np, dlx
{first}
{game}
try:
    dlx.from_dlpack(x)
except BufferError as error:
    assert "masked" in str(error), error
else:
    raise SystemExit("the mask is lost")
""")
        assert code == 0, errors


def test_times_are_no_bytes_whatever_the_modules_are() -> None:
    """R63: the buffer of a `numpy.datetime64` is bytes without their meaning."""
    code, _, errors = run_python("""
import sys
import numpy as np, dlx
x = np.datetime64("2026-11-26")
del sys.modules["numpy"]
try:
    dlx.from_dlpack(x)
except BufferError:
    pass
else:
    raise SystemExit("bytes")
""")
    assert code == 0, errors
