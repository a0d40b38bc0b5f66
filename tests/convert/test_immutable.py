"""Memory that must not be written, and libraries that would write to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import needs, requires


def of_jax() -> Any:
    return requires("jax.numpy").arange(1.0, 4.0)


def of_pandas() -> Any:
    needs("pandas")
    return requires("pandas").Index([1, 2, 3])


def of_mlx() -> Any:
    needs("mlx")
    return requires("mlx.core").array([1.0, 2.0, 3.0])


def of_tensorflow() -> Any:
    needs("tensorflow")
    return requires("tensorflow").constant([1.0, 2.0, 3.0])


def of_numpy() -> Any:
    array = np.array([1.0, 2.0, 3.0])
    array.flags.writeable = False
    return array


IMMUTABLE = {
    "jax": of_jax,
    "pandas": of_pandas,
    "mlx": of_mlx,
    "tensorflow": of_tensorflow,
    "numpy": of_numpy,
}

every_immutable = pytest.mark.parametrize("make", IMMUTABLE.values(), ids=IMMUTABLE)

Make = Callable[[], Any]


@every_immutable
def test_what_is_immutable_comes_in_as_read_only(make: Make) -> None:
    """R39: by every way, and so it leaves."""
    x = make()
    for tensor in (
        dlx.from_dlpack(x),
        dlx.from_dlpack(x, device="cpu"),
        dlx.convert(x, dlx.Tensor),
        dlx.from_dlpack(Holder(x)),
        dlx.from_dlpack(dlx.from_dlpack(x).__dlpack__(max_version=(1, 3))),
    ):
        assert tensor.readonly
        assert "maybe" not in repr(tensor)
    with dlx.borrow(x) as (view, _):
        assert view.readonly


class Holder(dlx.ExchangeMixin, exchange="data"):
    """A tensor of another library."""

    def __init__(self, data: Any) -> None:
        """Hold it."""
        self.data = data


@every_immutable
def test_a_library_that_would_write_to_it_gets_a_copy(make: Make) -> None:
    """R39: torch has no read-only tensors."""
    torch = requires("torch")
    x = make()
    for source in (x, dlx.from_dlpack(x), Holder(x)):
        made = dlx.convert(source, torch)
        made[0] = 9
        if source is not x or make is not of_pandas:
            [made] = dlx.convert_tree([source], torch)
            made[0] = 9
            dlx.bridge(torch)(lambda t: t.fill_(9))(source)
    assert dlx.from_dlpack(x).tolist() == [1, 2, 3]


@every_immutable
def test_it_is_shared_where_that_is_asked_for(make: Make) -> None:
    """README: `share_readonly=True`."""
    torch = requires("torch")
    x = make()
    address = dlx.from_dlpack(x).data_ptr
    made = [
        dlx.convert(x, torch, share_readonly=True),
        dlx.convert(x, torch, share_readonly=True, copy=False),
        dlx.convert(dlx.from_dlpack(x), torch, share_readonly=True),
        *dlx.convert_tree([Holder(x)], torch, share_readonly=True),
    ]
    seen: list[Any] = []
    dlx.bridge(torch, share_readonly=True)(seen.append)(Holder(x))
    assert {each.data_ptr() for each in made + seen} == {address}


@every_immutable
def test_numpy_keeps_it_read_only_whatever_is_asked(make: Make) -> None:
    """R42: it knows the flag, so nothing has to be given up."""
    array = dlx.convert(make(), np.ndarray, share_readonly=True)
    assert not array.flags.writeable


@every_immutable
def test_without_a_copy_the_error_names_the_keyword_that_shares(make: Make) -> None:
    """R40: and its advice helps."""
    torch = requires("torch")
    x = make()
    with pytest.raises(dlx.CopyRefused, match=r"share_readonly=True.* or copy=True"):
        dlx.convert(x, torch, copy=False)


@every_immutable
def test_it_is_no_out(make: Make) -> None:
    """docs/launcher.md: what must not be written is refused."""
    x = make()
    for call in (
        lambda: dlx.borrow(out=x).__enter__(),
        lambda: dlx.launcher(print, out=0)(Holder(x)),
        lambda: dlx.bridge(np.ndarray)(lambda out: None)(out=Holder(x)),
    ):
        with pytest.raises(BufferError, match=r"immutable|read-only"):
            call()


def test_a_copy_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """README: bytes, from, to, why; at DEBUG."""
    torch = requires("torch")
    with caplog.at_level(logging.DEBUG, "dlx"):
        dlx.convert(of_numpy(), torch)
        dlx.convert(np.ones(3), torch)
    [record] = caplog.records
    assert (record.name, record.levelno) == ("dlx", logging.DEBUG)
    assert record.getMessage() == (
        "24 bytes of numpy.ndarray are copied: torch.Tensor would ignore that the "
        "tensor is read-only"
    )


def test_a_copy_is_logged_for_whoever_listens_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """README: at DEBUG."""
    with caplog.at_level(logging.INFO, "dlx"):
        dlx.convert(of_numpy(), requires("torch"))
    assert caplog.records == []
