"""The extensions under test, as `cc` makes them."""

from __future__ import annotations

from typing import Any

import pytest
from support.extensions import extension

BUILDS = {
    "full": (),
    "limited": ("-DPy_LIMITED_API=0x030A0000",),
    "numpy": ("-DWITH_NUMPY",),
}


@pytest.fixture(params=BUILDS)
def image(request: pytest.FixtureRequest) -> Any:
    """Give `image.c`, for the full API, the limited one, and NumPy's macros."""
    return extension("image", *BUILDS[request.param])


@pytest.fixture
def streams() -> Any:
    """Give `streams.c`, on which nothing has happened."""
    module = extension("streams")
    module.collect(10**6)
    module.collect(0)
    return module
