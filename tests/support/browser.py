"""A real browser without a window, for pages that dlx writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.optional_libraries import requires

__all__ = ["chromium"]


@contextmanager
def chromium(*, scripts: bool = True) -> Iterator[Any]:
    """Give a Chromium that selenium drives; skip without one, or fail in CI."""
    webdriver = requires("selenium.webdriver")
    paths = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in paths:
        reason = "no browser: apt-get install chromium chromium-driver"
        if os.environ.get("DLX_REQUIRE_HEAVY") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = paths[0]
    options.add_argument("--headless=new")
    options.add_argument("--disable-dev-shm-usage")
    if os.geteuid() == 0:
        # Chromium's sandbox refuses to run as root.
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(paths[1])
    driver = webdriver.Chrome(options=options, service=service)
    try:
        if not scripts:
            driver.execute_cdp_cmd(
                "Emulation.setScriptExecutionDisabled", {"value": True}
            )
        yield driver
    finally:
        driver.quit()
