"""An interrupt that arrives while an error is worded is not lost."""

from __future__ import annotations

from typing import Any

import dlx
import pytest
from dlx._libraries import hints
from support.fake_producers import Producer
from support.simulated_kernels import unraisable


def interrupted(*_: object) -> Any:
    """Stand for Ctrl-C while an answer is sought."""
    raise KeyboardInterrupt


class Fails:
    """Has a protocol that fails."""

    def __array__(self, *_: object, **__: object) -> Any:  # noqa: D105
        raise ValueError("its own")


class Wrong(Producer):
    """Returns what is no capsule."""

    def __dlpack__(self, **_: Any) -> Any:  # noqa: D105
        return 3


class Unsure(Producer):
    """Fails, and cannot say whether it is deleted."""

    is_deleted = interrupted

    def __dlpack__(self, **_: Any) -> Any:  # noqa: D105
        raise ValueError("its own")


def test_one_while_a_note_is_sought_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """R60: in place of the producer's error."""
    monkeypatch.setattr(hints, "noted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dlx.from_dlpack(Fails())


@pytest.mark.parametrize(
    ("name", "x", "error"),
    [("tensor", Wrong(), TypeError), ("missing", object(), AttributeError)],
)
def test_one_while_a_hint_is_sought_is_reported(
    name: str, x: object, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R61: to `sys.unraisablehook`, beside the error."""
    monkeypatch.setattr(hints, name, interrupted)
    with unraisable(KeyboardInterrupt, ""), pytest.raises(error):
        dlx.from_dlpack(x)


def test_one_while_a_producer_is_asked_whether_it_is_deleted_is_reported() -> None:
    """R60: beside the producer's error."""
    with unraisable(KeyboardInterrupt, ""), pytest.raises(ValueError, match="its own"):
        dlx.from_dlpack(Unsure())
