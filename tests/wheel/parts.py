"""Write what is linked into the library: notices, and a bill of materials (SBOM).

    python tests/wheel/parts.py [--check]

Both are made from cargo's metadata. With `--check` nothing is written, and the exit
status is 1 if a file differs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "docs/third_party"
LICENCES = {"Apache-2.0", "ISC"}
"""What a crate has to be offered under, besides others."""
TEXTS = ("LICENSE*", "COPYING*")

HEAD = """\
Third-party code in dlx's extension library

dlx._core is linked with the crates below and with Rust's standard library. What is
offered under Apache-2.0, among others, is taken under it; its text is in LICENSE.

Rust's standard library, and the crates that it is built from
    MIT OR Apache-2.0, https://github.com/rust-lang/rust
    Copyright (c) The Rust Project Contributors
"""


def metadata(*options: str) -> Any:
    """Return what cargo says of the packages."""
    command = ["cargo", "metadata", "--locked", "--format-version=1", *options]
    ran = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout)


def linked(*options: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the root package and those that are linked into its library, sorted."""
    known = metadata(*options)
    packages = {package["id"]: package for package in known["packages"]}
    nodes = {node["id"]: node["deps"] for node in known["resolve"]["nodes"]}
    root = known["resolve"]["root"]
    found, open_ones = set(), [root]
    while open_ones:
        name = open_ones.pop()
        kinds = {kind for each in packages[name]["targets"] for kind in each["kind"]}
        # What macros are made of runs in the compiler alone.
        if name in found or "proc-macro" in kinds:
            continue
        found.add(name)
        for needed in nodes[name]:
            # What fuzz targets alone need has a condition that no wheel meets.
            if any(
                each["kind"] is None and each["target"] != "cfg(fuzzing)"
                for each in needed["dep_kinds"]
            ):
                open_ones.append(needed["pkg"])
    parts = [packages[name] for name in found - {root}]
    for part in parts:
        if not LICENCES & set(part["license"].split(" OR ")):
            raise SystemExit(f"{part['name']}: {part['license']} is not accepted")
    if len({part["name"] for part in parts}) < len(parts):
        raise SystemExit("two versions of one crate are linked: see `cargo tree -d`")
    return packages[root], sorted(parts, key=lambda part: str(part["name"]))


def notices() -> str:
    """Return the notices of the crates that are linked on any system."""
    written = [HEAD]
    for part in linked()[1]:
        text = f"{part['name']} {part['version']}\n    {part['license']}"
        text += f", {part['repository']}\n"
        if part["authors"]:
            text += f"    {', '.join(part['authors'])}\n"
        if "Apache-2.0" not in part["license"].split(" OR "):
            folder = Path(part["manifest_path"]).parent
            files = [file for name in TEXTS for file in sorted(folder.glob(name))]
            if not files:
                raise SystemExit(f"{part['name']} has no text of its licence")
            text += "".join(f"\n{file.read_text()}" for file in files)
        written.append(text)
    return "\n".join(written)


def bill() -> str:
    """Return the SBOM of the library on Linux."""
    root, parts = linked("--filter-platform=x86_64-unknown-linux-gnu")
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:cargo/{part['name']}@{part['version']}",
            "name": part["name"],
            "version": part["version"],
            "scope": "required",
            "licenses": [{"expression": part["license"]}],
            "purl": f"pkg:cargo/{part['name']}@{part['version']}",
        }
        for part in parts
    ]
    itself = f"{root['name']}@{root['version']}"
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": itself,
                "name": root["name"],
                "version": root["version"],
                "licenses": [{"expression": root["license"]}],
            }
        },
        "components": components,
        "dependencies": [
            {"ref": itself, "dependsOn": [part["bom-ref"] for part in components]}
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def main(*options: str) -> int:
    """Write the two files, or compare them."""
    files = {"notices.txt": notices(), "dlx.cyclonedx.json": bill()}
    stale = []
    for name, text in files.items():
        path = FOLDER / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
        if "--check" not in options:
            path.write_text(text)
    if stale and "--check" in options:
        names = " and ".join(stale)
        print(f"docs/third_party: {names} is stale, `tests/wheel/parts.py` writes it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
