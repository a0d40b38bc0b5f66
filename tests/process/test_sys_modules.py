"""`sys.modules` games: modules that go, come back, are fakes, or are there twice."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from textwrap import dedent

import dlx
import pytest
from support.module_games import GAMES
from support.python_process import run_python

pytestmark = pytest.mark.slow


@cache
def outcomes() -> dict[str, list[str]]:
    """Play all games, and return what went wrong in each."""
    code = "import runpy; runpy.run_module('support.module_games', run_name='__main__')"
    status, out, err = run_python(code)
    assert status == 0, err
    found: dict[str, list[str]] = json.loads(out)
    return found


@pytest.mark.parametrize("game", GAMES)
def test_an_answer_is_right(game: str) -> None:
    """S6: whatever `sys.modules` says, before dlx is used first and after."""
    last = [text.strip().rpartition("\n")[2] for text in outcomes()[game]]
    assert last == ["", ""]


COPIES = {
    "at another path": """
        for name in [name for name in sys.modules if name.split(".")[0] == "dlx"]:
            del sys.modules[name]
        import dlx as second
        """,
    "by another name": "import dlx_copied as second\n",
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_two_copies_of_dlx_exchange_tensors(copied: str, tmp_path: Path) -> None:
    """R112: as two libraries do, by their exchange tables, without a copy."""
    name = "dlx_copied" if "dlx_copied" in copied else "dlx"
    package = Path(str(dlx.__file__)).parent
    shutil.copytree(
        package, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
    )
    code = f"""
        import sys
        import dlx as first
        import numpy as np

        class Stored(first.ExchangeMixin, exchange="data"):
            def __init__(self, data):
                self.data = data

        sys.path.insert(0, {str(tmp_path)!r})
        """
    exchange = """
        class Kept(second.ExchangeMixin, exchange="data"):
            def __init__(self, data):
                self.data = data

        assert second.Tensor is not first.Tensor
        array = np.arange(6.0).reshape(2, 3)[:, ::2]
        fixed = array.copy()
        fixed.flags.writeable = False
        for one, other in (first, second), (second, first):
            theirs = one.from_dlpack(array)
            ours = other.from_dlpack(theirs)
            assert type(ours) is other.Tensor
            assert np.shares_memory(ours.numpy(), array)
            assert type(one.convert(ours, other.Tensor)) is other.Tensor
            for cls in Stored, Kept:
                made = one.convert(cls(ours), cls)
                assert other.convert(made, np.ndarray).tolist() == array.tolist()
            assert other.from_dlpack(one.from_dlpack(fixed)).readonly
            with other.borrow(theirs, Kept(theirs)) as (_, view, _):
                assert view.shape == (2, 2)
            assert ours.dtype == theirs.dtype == array.dtype
        print("done")
        """
    found = run_python(dedent(code) + dedent(copied) + dedent(exchange))
    assert found == (0, "done\n", "")
