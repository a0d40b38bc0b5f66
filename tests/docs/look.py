"""Take a picture of each page of the built site, as a person would see it.

``PYTHONPATH=tests python -m docs.look build/site build/look`` opens every page as a
file, at the width of a telephone and of a desk, light and dark. It names pages that are
wider than the window, a search that finds nothing, and errors of the browser; how a
page looks is for the eye.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from support.browser import chromium

WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
WIDEST = "return document.scrollingElement.scrollWidth"
HEIGHT = "return document.scrollingElement.scrollHeight"


def size(driver: Any, width: int, height: int) -> None:
    """Make the window this large, which a desktop's window cannot be."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )


def found_by_search(driver: Any, site: Path, words: str) -> int:
    """Search for words on the first page; return how many pages are offered."""
    driver.get((site / "index.html").resolve().as_uri())
    field = driver.find_element("css selector", '[data-md-component="search-query"]')
    driver.execute_script("arguments[0].focus()", field)
    field.send_keys(words)
    for _ in range(50):
        if links := driver.find_elements("css selector", ".md-search-result__link"):
            return len(links)
        time.sleep(0.1)
    return 0


def look(site: Path, pictures: Path, only: str = "") -> list[str]:
    """Take the pictures, and return what is wrong, a line each."""
    found = []
    pictures.mkdir(parents=True, exist_ok=True)
    with chromium() as driver:
        for scheme in SCHEMES:
            feature = {"name": "prefers-color-scheme", "value": scheme}
            driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia", {"features": [feature]}
            )
            for path in sorted(site.rglob("*.html")):
                where = str(path.relative_to(site))
                if only not in where or where == "404.html":
                    continue
                for width in WIDTHS:
                    size(driver, width, 900)
                    driver.get(path.resolve().as_uri())
                    if (wide := driver.execute_script(WIDEST)) > width:
                        found.append(f"{where}: {wide} wide in a window of {width}")
                    size(driver, width, min(driver.execute_script(HEIGHT), 6000))
                    name = where.replace("/", "_").removesuffix(".html")
                    driver.save_screenshot(
                        str(pictures / f"{name}_{width}_{scheme}.png")
                    )
        if not found_by_search(driver, site, "deferred release"):
            found.append("the search finds nothing")
        found += [entry["message"] for entry in driver.get_log("browser")]
    return found


if __name__ == "__main__":
    site, pictures, *only = sys.argv[1:]
    print(*look(Path(site), Path(pictures), *only), sep="\n")
