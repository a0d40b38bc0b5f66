"""dlx says of a tensor what its library says, by every way in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from .known import KNOWN
from .libraries import LIBRARIES
from .listed import problems
from .run import Report, run

ADVICE = """
If dlx is wrong, mend it. If the library is, or dlx refuses on purpose, list it with the
reason in tests/property/known.py; take out what is not seen any more. This prints all:
PYTHONPATH=tests python -m property.run {}"""


@pytest.fixture(scope="module")
def looked_at(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Report]]:
    """Look at the libraries of the tests that were chosen, on all cores."""
    chosen = [
        str(item.callspec.params["library"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module.__name__ == __name__
        and hasattr(item, "callspec")
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {library: pool.submit(run, library) for library in chosen}
        yield lambda library: running[library].result()
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("library", LIBRARIES)
def test_dlx_says_what_the_library_says(
    library: str, looked_at: Callable[[str], Report]
) -> None:
    """R41: but for what `known.py` lists, and with all of that."""
    report = looked_at(library)
    if report.missing:
        text = f"{library} is not installed: `tests/tasks.py interop` installs it"
        if os.environ.get("DLX_REQUIRE_HEAVY") == "1":
            pytest.fail(f"{text} ({report.missing})")
        pytest.skip(text)
    found = problems(report, KNOWN)
    assert not found, "\n".join([*found, ADVICE.format(library)])
