"""The functions that dlx looks up are in the libraries of NVIDIA and AMD."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drivers.fetch import CUDA
from drivers.real import ACCEPTED, Driver, table_of

NUMBERS = ["cuCtxGetId", "cuStreamGetId"]
"""Functions of CUDA 12.0 that dlx does without."""

accepted = pytest.mark.parametrize("driver", ACCEPTED, indirect=True)


def looked_up(driver: Driver) -> dict[str, Any]:
    """What `symbols.py` finds in the driver's library."""
    found: dict[str, Any] = json.loads(
        driver.run(
            f"""
            import ctypes, json
            from drivers.symbols import look_up
            library = ctypes.CDLL({str(driver.file)!r})
            print(json.dumps(look_up(library, {driver.kind!r})))
            """
        )
    )
    return found


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_the_tables_are_read_from_the_source(kind: str) -> None:
    """S19: or the tests here would check nothing."""
    table = table_of(kind)
    prefix = {"cuda": "cu", "hip": "hip"}[kind]
    assert {f"{prefix}Init", f"{prefix}EventRecord"} <= table.keys()
    assert all(name.startswith(prefix) for name in table)
    assert all(symbol.startswith(name) for name, symbol in table.items())


@accepted
def test_every_function_is_there(driver: Driver) -> None:
    """S19: by the symbol in dlx's table, but for those that dlx does without."""
    without = {"cuda-470": NUMBERS}
    assert looked_up(driver)["missing"] == without.get(driver.name, [])


@pytest.mark.parametrize(
    ("driver", "before", "lacks"),
    [
        ("cuda-460", 11030, "cuStreamGetCaptureInfo_v2"),
        ("hip-5.2", 50300000, "hipStreamGetDevice"),
    ],
    indirect=["driver"],
)
def test_an_older_driver_than_is_accepted_lacks_a_function(
    driver: Driver, before: int, lacks: str
) -> None:
    """S19: the error names CUDA 11.3 and ROCm 5.3 as accepted."""
    found = looked_up(driver)
    assert found["version"] < before
    assert lacks in found["missing"]


@accepted
def test_a_driver_that_is_accepted_is_not_older(driver: Driver) -> None:
    """S19: the versions that the error names."""
    oldest = 11030 if driver.name in CUDA else 50300000
    assert looked_up(driver)["version"] >= oldest
