"""`src/abi.rs` against the `dlpack.h` 1.3 that the apache-tvm-ffi wheel ships.

`abi/layout.c` and `abi/layout.rs` print the same list of names, each with the value
that its own compiler gives: sizes, alignments and offsets in bytes, every constant.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from support import dlpack_abi
from support.dlpack_abi import dlpack_include

SOURCES = Path(__file__).parents[1] / "abi"


def run_compiled(program: Path, *compiler: str | Path) -> list[str]:
    """Lines that a program prints, once compiled to `program`."""
    subprocess.run([*compiler, "-o", program], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True)
    return printed.stdout.splitlines()


@pytest.fixture(scope="module")
def header() -> str:
    """Text of the header without its comments."""
    text = (dlpack_include() / "dlpack" / "dlpack.h").read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def c_lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What `layout.c` prints about the header."""
    program = tmp_path_factory.mktemp("abi") / "layout_c"
    include = f"-I{dlpack_include()}"
    return run_compiled(program, "cc", "-std=c11", include, SOURCES / "layout.c")


@pytest.fixture(scope="module")
def rust_lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What `layout.rs` prints about `src/abi.rs`."""
    program = tmp_path_factory.mktemp("abi") / "layout_rs"
    return run_compiled(program, "rustc", "--edition=2024", SOURCES / "layout.rs")


@pytest.fixture(scope="module")
def c_values(c_lines: list[str]) -> dict[str, int]:
    """The lines of `layout.c` by name."""
    return {name: int(value) for name, value in map(str.split, c_lines)}


def of_kind(lines: list[str], kind: str) -> list[str]:
    """Lines whose name starts with `kind`; there must be some."""
    found = [line for line in lines if line.startswith(kind)]
    assert found
    return found


def test_the_header_is_dlpack_1_3(c_values: dict[str, int]) -> None:
    """dlpack.h, DLPACK_MAJOR_VERSION and DLPACK_MINOR_VERSION (R27)."""
    version = c_values["DLPACK_MAJOR_VERSION"], c_values["DLPACK_MINOR_VERSION"]
    assert version == (1, 3)


def test_every_size_of_the_rust_structs_and_fields_is_the_headers(
    c_lines: list[str], rust_lines: list[str]
) -> None:
    """dlpack.h, all structs."""
    assert of_kind(rust_lines, "sizeof") == of_kind(c_lines, "sizeof")


def test_every_alignment_of_the_rust_structs_is_the_headers(
    c_lines: list[str], rust_lines: list[str]
) -> None:
    """dlpack.h, all structs."""
    assert of_kind(rust_lines, "alignof") == of_kind(c_lines, "alignof")


def test_every_offset_of_the_rust_structs_is_the_headers(
    c_lines: list[str], rust_lines: list[str]
) -> None:
    """dlpack.h, all structs; everything up to `flags` is stable for ever (R29)."""
    assert of_kind(rust_lines, "offsetof") == of_kind(c_lines, "offsetof")


def test_every_enum_value_of_abi_rs_is_the_headers(
    c_lines: list[str], rust_lines: list[str]
) -> None:
    """dlpack.h, DLDeviceType (R67) and DLDataTypeCode."""
    assert of_kind(rust_lines, "kDL") == of_kind(c_lines, "kDL")


def test_every_version_and_flag_of_abi_rs_is_the_headers(
    c_lines: list[str], rust_lines: list[str]
) -> None:
    """dlpack.h, DLPACK_FLAG_BITMASK_* (R36)."""
    assert of_kind(rust_lines, "DLPACK_") == of_kind(c_lines, "DLPACK_")


def test_both_programs_print_the_same_lines(
    c_lines: list[str], rust_lines: list[str]
) -> None:
    """The whole of both lists, in order."""
    assert rust_lines == c_lines


def test_every_enum_member_of_the_header_is_compared(
    header: str, c_values: dict[str, int]
) -> None:
    """dlpack.h, DLDeviceType and DLDataTypeCode (R67)."""
    members = re.findall(r"(kDL\w+)\s*=", header)
    assert len(members) == 16 + 18
    assert set(members) == {name for name in c_values if name.startswith("kDL")}


def test_every_numeric_macro_of_the_header_is_compared(
    header: str, c_values: dict[str, int]
) -> None:
    """dlpack.h, versions and flags."""
    macros = re.findall(r"#define (DLPACK_\w+) [(\d]", header)
    assert set(macros) == {name for name in c_values if name.startswith("DLPACK_")}


def test_every_struct_field_of_the_header_is_compared(
    header: str, c_values: dict[str, int]
) -> None:
    """dlpack.h, all structs."""
    structs = re.findall(
        r"typedef struct\s*\w*\s*\{(.*?)\}\s*(\w+);", header, re.DOTALL
    )
    declared = {
        f"offsetof({name}.{pointer or plain})"
        for body, name in structs
        for pointer, plain in re.findall(r"\(\*(\w+)\)\([^)]*\);|(\w+);", body)
    }
    assert declared == {name for name in c_values if name.startswith("offsetof")}


def test_the_ctypes_structs_of_the_tests_have_the_headers_layout(
    c_values: dict[str, int],
) -> None:
    """`dlpack_abi.py`, which the other tests read tensors and tables through."""
    mirrored = {}
    for struct in ctypes.Structure.__subclasses__():
        if struct.__module__ != dlpack_abi.__name__:
            continue
        name = struct.__name__
        mirrored[f"sizeof({name})"] = ctypes.sizeof(struct)
        mirrored[f"alignof({name})"] = ctypes.alignment(struct)
        for field, *_ in struct._fields_:
            descriptor = getattr(struct, field)
            mirrored[f"offsetof({name}.{field})"] = descriptor.offset
            mirrored[f"sizeof({name}.{field})"] = descriptor.size
    assert mirrored == {name: c_values[name] for name in c_values if "of(" in name}


def test_the_ctypes_constants_of_the_tests_are_the_headers(
    c_values: dict[str, int],
) -> None:
    """`dlpack_abi.py`, versions and flags."""
    constants = {name: c_values[name] for name in c_values if "DLPACK_" in name}
    assert {name: getattr(dlpack_abi, name) for name in constants} == constants
