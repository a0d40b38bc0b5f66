"""`python -m dlx demo`."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest
from support.command_line import (
    ABSENT,
    ENDS,
    INSTALLED,
    printed,
    run_with,
)

pytestmark = pytest.mark.slow

# A test of two libraries imports no others, and tries no hops between them.
TWO = dict.fromkeys(("torch", "jax", "tvm_ffi", "pyarrow"), ABSENT)
WRITABLE = [name for name in INSTALLED if name not in ("pyarrow", "jax")]


@pytest.fixture
def demo_json() -> Any:
    """Return what `demo --json` prints."""
    return json.loads(printed("demo", "--json"))


def hop(document: Any, source: str, target: str) -> Any:
    """Return the hop of a demo document between two libraries."""
    [found] = [
        each
        for each in document["hops"]
        if (each["source"], each["target"]) == (source, target)
    ]
    return found


def test_the_demo_goes_from_every_library_to_every_other(demo_json: Any) -> None:
    hops = {(each["source"], each["target"]) for each in demo_json["hops"]}
    assert hops >= set(permutations(WRITABLE, 2))


@pytest.mark.parametrize("pair", list(permutations(WRITABLE, 2)), ids=" to ".join)
def test_a_write_at_one_end_of_a_hop_is_seen_at_the_other(
    demo_json: Any, pair: tuple[str, str]
) -> None:
    found = hop(demo_json, *pair)
    assert found["same_address"] is True
    assert found["written"] == "both ways"
    assert found["outcome"] == "zero-copy"


@pytest.mark.parametrize("target", ["numpy", "array_api_strict"])
def test_a_write_to_the_memory_of_an_immutable_tensor_is_seen(
    demo_json: Any, target: str
) -> None:
    """R42: the flag goes through dlx, so nothing is written at the other end."""
    found = hop(demo_json, "pyarrow", target)
    assert found["same_address"] is True
    assert found["written"] == "one way, one of the two tensors is immutable"


def test_each_proved_hop_is_timed_beside_the_direct_way(demo_json: Any) -> None:
    found = hop(demo_json, *(INSTALLED[:2] if len(INSTALLED) > 1 else INSTALLED * 2))
    assert found["import_ns"] > 0
    assert found["hand_on_ns"] > 0
    assert found["direct_ns"] > 0
    assert found["ratio"] == pytest.approx(
        (found["import_ns"] + found["hand_on_ns"]) / found["direct_ns"], abs=0.001
    )


@pytest.mark.parametrize("name", INSTALLED)
def test_the_table_of_the_demo_mentions_each_installed_library(name: str) -> None:
    assert name in printed("demo")


def test_the_table_of_the_demo_ends_with_its_summary(demo_json: Any) -> None:
    assert printed("demo").rstrip().endswith(demo_json["summary"])


def test_the_demo_prints_where_no_tick_can_be_encoded() -> None:
    ascii_only = "sys.stdout.reconfigure(encoding='ascii')"
    result = run_with("demo", first=ascii_only, **TWO)
    assert result.returncode == 0
    assert result.stdout.isascii()


COPIES = """
import numpy
def from_dlpack(x):
    return numpy.from_dlpack(x).copy()
"""


def test_a_library_that_copies_makes_the_demo_fail() -> None:
    result = run_with("demo", "--json", array_api_strict=COPIES, **TWO)
    assert result.returncode == 1
    found = hop(json.loads(result.stdout), "numpy", "array_api_strict")
    assert found["outcome"] == "failed"
    assert found["same_address"] is False


def test_a_failed_hop_is_named_below_the_table() -> None:
    result = run_with("demo", array_api_strict=COPIES, **TWO)
    assert result.returncode == 1
    assert "numpy to array_api_strict failed" in result.stdout


def test_the_demo_skips_a_library_that_cannot_be_imported() -> None:
    result = run_with("demo", "--json", **TWO)
    document = json.loads(result.stdout)
    assert document["skipped"]["torch"] == "ImportError: not here"
    assert "torch" not in document["libraries"]


def test_the_demo_skips_a_library_that_ends_the_process() -> None:
    modules = {**TWO, "torch": ENDS}
    document = json.loads(run_with("demo", "--json", **modules).stdout)
    assert document["skipped"]["torch"] == "ended the process by SIGSEGV"
    assert "numpy" in document["libraries"]


ENDS_IN_USE = """
import numpy, os
def from_dlpack(x):
    if "dlx" in type(x).__module__:
        os.kill(os.getpid(), 6)
    return numpy.from_dlpack(x)
"""


def test_a_hop_that_ends_the_process_makes_the_demo_fail() -> None:
    result = run_with("demo", "--json", array_api_strict=ENDS_IN_USE, **TWO)
    assert result.returncode == 1
    found = hop(json.loads(result.stdout), "numpy", "array_api_strict")
    assert (found["outcome"], found["error"]) == (
        "failed",
        "ended the process by SIGABRT",
    )


def test_the_demo_with_numpy_alone_goes_there_and_back() -> None:
    others = {name: ABSENT for name in INSTALLED if name != "numpy"}
    document = json.loads(run_with("demo", "--json", **others).stdout)
    assert hop(document, "numpy", "numpy")["outcome"] == "zero-copy"


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_the_demo_without_numpy_says_what_to_install(options: list[str]) -> None:
    result = run_with("demo", *options, numpy=ABSENT, **TWO)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "pip install numpy" in result.stderr
