"""`dlx.trace`: what it says of the memory that is held (docs/inspect.md)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires
from support.python_process import run_python


def test_a_leak_is_named_with_its_line() -> None:
    leaked = []
    with dlx.trace(frames=2) as t:
        leaked.append(dlx.from_dlpack(np.zeros(3)))
        line = sys._getframe().f_lineno - 1
    with pytest.raises(AssertionError, match=f"{Path(__file__).name}:{line} "):
        t.assert_released()
    [caller, _] = t.live[0].callers
    assert (caller.file, caller.line) == (__file__, line)
    leaked.clear()
    t.assert_released()


def test_what_only_a_cycle_holds_is_no_leak() -> None:
    class Node:
        pass

    with dlx.trace() as t:
        node: Any = Node()
        node.me, node.tensor = node, dlx.from_dlpack(np.zeros(3))
        del node
        t.assert_released()


def test_bytes_count_shared_memory_once() -> None:
    a = np.zeros(100, "u1")
    with dlx.trace() as t:
        x = dlx.from_dlpack(a)
        exports = [x.__dlpack__() for _ in range(3)]
        assert (t.nbytes, t.peak) == (100, 100)
        y = dlx.from_dlpack(np.zeros(50, "u1"))
        assert (t.nbytes, t.peak) == (150, 150)
        del y
        assert (t.nbytes, t.peak) == (100, 150)
        del x
        assert t.nbytes == 100
        exports.clear()
        assert (t.nbytes, t.peak) == (0, 150)


def test_a_report_puts_together_what_shares_memory() -> None:
    """docs/inspect.md: views at other addresses, too."""
    a = np.zeros(100, "u1")
    with dlx.trace() as t:
        views = [dlx.from_dlpack(x) for x in (a[50:], np.zeros(70, "u1"), a, a[:10])]
        more = views[0].__dlpack__()
        _, whole, half, export, part, other = str(t).splitlines()
    sizes = [line.split()[0] for line in (whole, half, part, other)]
    assert sizes == ["100", "50", "10", "70"]
    mark = "  in the memory of those above"
    assert half.endswith(mark)
    assert part.endswith(mark)
    assert "  export  " in export
    assert mark not in whole + other
    assert json.loads(t.to_json())["live"][0]["address"]
    del views, more


def test_what_is_held_is_summed_by_producer_consumer_and_line() -> None:
    with dlx.trace() as t:
        kept = [dlx.from_dlpack(np.zeros(3)) for _ in range(2)]
        kept.append(dlx.empty((3,), "float32"))
        assert t.by("producer") == {"numpy.ndarray": (2, 48), "dlx": (1, 12)}
        assert t.by("consumer") == {"dlx.Tensor": (3, 60)}
        assert [count for count, _ in t.by("line").values()] == [2, 1]
        with pytest.raises(ValueError, match="expected 'producer'"):
            t.by("weekday")  # type: ignore[arg-type]


def test_the_report_as_json_holds_what_is_listed() -> None:
    with dlx.trace() as t:
        x = dlx.from_dlpack(np.zeros(3))
        document = json.loads(t.to_json())
    assert document["imports"] == 1
    assert document["live"][0]["producer"] == "numpy.ndarray"
    assert document["live"][0]["callers"][0][0] == __file__
    del x


def test_a_part_shows_the_memory_of_its_import() -> None:
    """docs/inspect.md: memory that several hold counts once."""
    with dlx.trace() as t:
        x = dlx.from_dlpack(np.zeros(100, "u1"))
        a = np.from_dlpack(x[10:])
        imported, exported = t.live
        assert exported.parent == imported.number
        assert (t.nbytes, t.peak) == (100, 100)
        del x
        assert t.nbytes == 100
        del a
        assert t.nbytes == 0


def test_an_export_that_is_a_copy_does_not_show_the_import() -> None:
    """docs/inspect.md: memory that several hold counts once, a copy is other memory."""
    with dlx.trace() as t:
        x = dlx.from_dlpack(np.zeros(100, "u1"))
        copy = x.__dlpack__(copy=True)
        assert [held.parent for held in t.live] == [None, None]
        assert t.nbytes == 200
        del copy
        assert t.nbytes == 100
        del x


def test_consumers_are_named() -> None:
    x = dlx.empty((64,), "float32")  # aligned, so that JAX shares it
    with dlx.trace() as t:
        kept = [np.from_dlpack(x)]
        named = {"numpy/_core/_multiarray_umath"}
        for library, function, name in (
            ("torch", "from_dlpack", "torch.utils.dlpack"),
            ("tvm_ffi", "from_dlpack", "tvm_ffi/core"),
            ("jax.dlpack", "from_dlpack", "jax._src.dlpack"),
            ("array_api_strict", "from_dlpack", "numpy/_core/_multiarray_umath"),
        ):
            kept.append(getattr(requires(library), function)(x))
            named.add(name)
        assert set(t.by("consumer")) == named


def test_events_are_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with dlx.trace(events=str(path)) as t:
        np.from_dlpack(dlx.from_dlpack(np.zeros(3)))
        assert t.live == []
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(each["event"] for each in events) == [
        "end",
        "end",
        "export",
        "import",
    ]
    ends = {each["number"]: each["time"] for each in events if each["event"] == "end"}
    for each in events:
        if each["event"] != "end":
            assert ends[each["number"]] >= each["since"]


LEAK = """
import dlx, numpy as np
kept = dlx.from_dlpack(np.zeros(3))
"""


def test_the_variable_may_say_no() -> None:
    """docs/inspect.md: `DLX_TRACE=0` traces nothing, nor does it empty."""
    for setting in ("0", "", "no", "False", "00"):
        assert run_python(LEAK, DLX_TRACE=setting) == (0, "", "")


@pytest.mark.parametrize("setting", ["1", "3", "yes", "TRUE", "on"])
def test_the_variable_gives_a_report_at_exit(setting: str) -> None:
    code, out, errors = run_python(LEAK, DLX_TRACE=setting)
    assert (code, out) == (0, "")
    assert errors.startswith("dlx trace: 1 alive, 24 B (peak 24 B, 1 imports")
    assert "<string>:3 <module>" in errors


def test_the_variable_may_name_a_file_of_events(tmp_path: Path) -> None:
    code, _, errors = run_python(LEAK, DLX_TRACE=f"json:{tmp_path}/events")
    assert (code, "1 alive" in errors) == (0, True)
    [event] = (tmp_path / "events").read_text().splitlines()
    assert json.loads(event)["event"] == "import"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("yess", "is 'yess'; expected 1, a number of frames, or json:FILE"),
        ("-3", "is '-3'; expected 1, a number of frames, or json:FILE"),
        ("json:/nowhere/at/all", "is 'json:/nowhere/at/all': [Errno 2] No such file"),
    ],
)
def test_a_variable_that_says_something_else_is_a_warning(
    setting: str, says: str
) -> None:
    """docs/inspect.md: a variable to look at a program never stops it."""
    code, _, errors = run_python(LEAK, DLX_TRACE=setting)
    assert code == 0
    assert f"RuntimeWarning: DLX_TRACE {says}" in errors
    assert "; nothing is traced" in errors
    assert "dlx trace:" not in errors


def test_a_child_that_was_forked_reports_nothing() -> None:
    forking = LEAK + "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)"
    code, _, errors = run_python(forking, DLX_TRACE="1")
    assert code == 0
    assert errors.count("dlx trace") == 1


def test_import_of_dlx_without_the_variable_does_not_load_it() -> None:
    code = "import sys, dlx; sys.exit('dlx_check.tracing' in sys.modules)"
    assert run_python(code) == (0, "", "")
