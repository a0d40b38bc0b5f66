"""Release numbers, and comparisons with them, against the library `packaging`."""

from __future__ import annotations

import pytest
from dlx_check.conformance.releases import admits, release, versions
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

NUMBERS = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(
    lambda parts: ".".join(map(str, parts))
)
CLAUSES = st.lists(
    st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS).map("".join)
).map(", ".join)
SUFFIXES = st.sampled_from(
    ["", "rc1", ".dev0", "a0", ".post1", "+cpu", "a0+git1f2e", "rc1.dev3", "-1.alpha"]
)


@given(CLAUSES, NUMBERS)
def test_releases_are_compared_as_packaging_compares_them(
    clauses: str, version: str
) -> None:
    """README.md, Deviations file: `versions`."""
    expected = SpecifierSet(clauses).contains(version)
    assert admits(versions(clauses), release(version)) == expected


@given(NUMBERS, SUFFIXES.filter(lambda suffix: "-" not in suffix))
def test_suffixes_are_left_out(version: str, suffix: str) -> None:
    """README.md, Deviations file: 0.11.0rc1 and 0.11+cpu are 0.11."""
    numbers = list(Version(version + suffix).release)
    while numbers and numbers[-1] == 0:
        numbers.pop()
    assert release(version + suffix) == tuple(numbers)


@pytest.mark.parametrize(
    "version", ["unknown", "", "1..2", "1.x", "main-3", "1!2", "1.2-x", "1.2.", "٣.1"]
)
def test_what_is_no_version_is_refused(version: str) -> None:
    """README.md, Deviations file: nothing is guessed."""
    with pytest.raises(ValueError, match="is no version"):
        release(version)


@pytest.mark.parametrize(
    "text", ["~=1.2", "==1.*", "1.2", "<", "<1 >0", "<1rc1", "===1", "=1", "<1,", " "]
)
def test_what_is_no_comparison_is_refused(text: str) -> None:
    """README.md, Deviations file: nothing is guessed."""
    with pytest.raises(ValueError, match="is no comparison"):
        versions(text)
