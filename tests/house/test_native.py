"""docs/native.md: its code compiles as it stands, and takes tensors of any library."""

import importlib
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import dlpack_include
from support.documents import BLOCK, ROOT
from support.optional_libraries import requires

pytestmark = pytest.mark.slow

BLOCKS = BLOCK.findall((ROOT / "docs/native.md").read_text())
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
CONVERTERS = ["scale_nanobind", "scale_pybind11", "scale_pyo3"]
WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter"]
WARNINGS += ["-Wno-missing-field-initializers", "-Werror"]
HEADERS = [f"-I{ROOT / 'include'}", "-isystem", dlpack_include()]


def block(language: str, having: str = "") -> str:
    """Return the one block of a language in which ``having`` stands."""
    [found] = [code for name, code in BLOCKS if name == language and having in code]
    return str(found)


def compile_into(target: Path, compiler: str, *arguments: object) -> None:
    """Make a shared library; ``compiler`` is the name of CC or CXX's default."""
    variable = "CC" if compiler == "cc" else "CXX"
    command = [*shlex.split(os.environ.get(variable, compiler)), "-O2", "-shared"]
    command += ["-fPIC", "-fvisibility=hidden", f"-I{sysconfig.get_path('include')}"]
    command += [*map(str, arguments), "-o", str(target)]
    subprocess.run(command, check=True)


def build_c(folder: Path) -> None:
    source = folder / "scale.c"
    source.write_text(block("c", "void scale"))
    compile_into(folder / "libscale.so", "cc", "-fvisibility=default", source)


def build_kernel(folder: Path) -> None:
    source = folder / "scale_c.c"
    source.write_text(block("c", "PyInit_scale_c"))
    compile_into(folder / f"scale_c{SUFFIX}", "cc", *WARNINGS, *HEADERS, source)


def build_cython(folder: Path) -> None:
    requires("Cython")
    source = folder / "total_cython.pyx"
    source.write_text(block("cython"))
    command = [sys.executable, "-m", "cython", "-3", f"-I{ROOT / 'include'}"]
    subprocess.run([*command, str(source)], check=True)
    target = folder / f"total_cython{SUFFIX}"
    compile_into(target, "cc", *HEADERS, source.with_suffix(".c"))


def build_pybind11(folder: Path) -> None:
    """The page names the other header; the macro is the one of each tutorial."""
    include = requires("pybind11").get_include()
    code = block("cpp").replace("nanobind", "pybind11")
    source = folder / "scale_pybind11.cpp"
    source.write_text(code.replace("NB_MODULE", "PYBIND11_MODULE"))
    flags = ["-std=c++17", *WARNINGS, *HEADERS, "-isystem", include]
    compile_into(folder / f"scale_pybind11{SUFFIX}", "c++", *flags, source)


def build_nanobind(folder: Path) -> None:
    include = Path(requires("nanobind").include_dir())
    own = include.parent
    source = folder / "scale_nanobind.cpp"
    source.write_text(block("cpp"))
    compile_into(
        folder / f"scale_nanobind{SUFFIX}",
        "c++",
        *("-std=c++17", "-fno-strict-aliasing", *WARNINGS, *HEADERS),
        *("-isystem", include, "-isystem", own / "ext/robin_map/include"),
        *(source, own / "src/nb_combined.cpp"),
    )


def build_pyo3(folder: Path) -> None:
    """Build with the release of PyO3 that dlx has, from the same lock."""
    [pyo3] = [
        line
        for line in (ROOT / "Cargo.toml").read_text().splitlines()
        if line.startswith("pyo3 = ") and "abi3" in line
    ]
    manifest = folder / "Cargo.toml"
    manifest.write_text(
        '[package]\nname = "scale_pyo3"\nversion = "0.0.0"\nedition = "2024"\n'
        '[lib]\npath = "scale_pyo3.rs"\ncrate-type = ["cdylib"]\n'
        f"[dependencies]\n{pyo3}\n[workspace]\n"
    )
    (folder / "Cargo.lock").write_text((ROOT / "Cargo.lock").read_text())
    (folder / "scale_pyo3.rs").write_text(block("rust"))
    command = ["cargo", "build", "--quiet", "--manifest-path", str(manifest)]
    target = ROOT / "build/native"
    environment = os.environ | {
        "PYO3_PYTHON": sys.executable,
        "RUSTFLAGS": "-D warnings",
    }
    subprocess.run([*command, "--target-dir", target], check=True, env=environment)
    (folder / f"scale_pyo3{SUFFIX}").symlink_to(target / "debug/libscale_pyo3.so")


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Any]]:
    """Build what a test asks for, once, and import it; the C library is there."""
    folder = tmp_path_factory.mktemp("native")
    build_c(folder)
    builders = {
        "scale_c": build_kernel,
        "total_cython": build_cython,
        "scale_nanobind": build_nanobind,
        "scale_pybind11": build_pybind11,
        "scale_pyo3": build_pyo3,
    }

    def module(name: str) -> Any:
        if name in builders:
            builders[name](folder)  # skips where what it needs is not installed
            del builders[name]
            importlib.invalidate_caches()
        return importlib.import_module(name)

    before = Path.cwd()
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    yield module
    os.chdir(before)
    sys.path.remove(str(folder))


def run_block(having: str) -> dict[str, Any]:
    """Run a block of Python, and return its names."""
    names: dict[str, Any] = {}
    exec(compile(block("python", having), "docs/native.md", "exec"), names)
    return names


def test_an_address_of_any_library_goes_through_ctypes(
    built: Callable[[str], Any],
) -> None:
    names = run_block("import ctypes")
    x = requires("torch").ones(2, 2)
    assert names["scaled"](x, 3).tolist() == [[3, 3], [3, 3]]


def test_a_launcher_around_cffi_takes_the_same_arguments(
    built: Callable[[str], Any],
) -> None:
    requires("cffi")
    launch = run_block("import cffi")["launch"]
    x, out = dlx.empty(2, "float32"), np.zeros(2, "float32")
    x.numpy()[:] = 3
    launch(x, out, 2, 2)
    assert out.tolist() == [6, 6]


def test_the_bridge_of_the_page_runs(built: Callable[[str], Any]) -> None:
    requires("torch")
    built("scale_pyo3")
    run_block("import scale_pyo3")


def test_the_kernel_of_the_page_takes_and_gives_tensors_of_any_library(
    built: Callable[[str], Any],
) -> None:
    scale = built("scale_c").scale
    torch, jax = requires("torch"), requires("jax.numpy")
    for x in (np.ones((2, 2), "float32"), torch.ones(2, 2), jax.ones((2, 2))):
        result = scale(x, 3)
        assert type(result) is type(x)
        assert result.tolist() == [[3, 3], [3, 3]]
    with pytest.raises(BufferError, match=r"^x: it is not row-major"):
        scale(torch.ones(2, 3).t(), 3)


def test_the_class_of_the_page_is_that_of_the_example() -> None:
    code = block("c", "DLX_PRODUCER").rstrip()
    assert code in (ROOT / "examples/c_class.c").read_text()


def test_the_function_of_cython_takes_tensors_of_any_library(
    built: Callable[[str], Any],
) -> None:
    total = built("total_cython").total
    assert total(requires("torch").ones(6)[::2]) == 3
    with pytest.raises(TypeError, match=r"^x: dtype is float64, expected is float32$"):
        total(np.ones(3))


@pytest.mark.parametrize("name", ["scale_nanobind", "scale_pybind11"])
def test_a_view_is_of_any_library(built: Callable[[str], Any], name: str) -> None:
    x, out = requires("jax.numpy").arange(3.0), requires("torch").zeros(6)
    built(name).scale(x, out[::2], 2)
    assert out.tolist() == [0, 0, 2, 0, 4, 0]


@pytest.mark.parametrize("name", CONVERTERS)
def test_a_function_of_numpy_arrays_is_bridged_as_the_page_shows(
    built: Callable[[str], Any], name: str
) -> None:
    scale = built(name).scale

    @dlx.bridge(np.ndarray)
    def scaled(x: Any, by: float) -> Any:
        out = np.empty_like(x)
        scale(x, out, by)
        return out

    jax = requires("jax.numpy")  # its arrays are read-only for NumPy
    assert scaled(jax.arange(3.0), 2).tolist() == [0, 2, 4]
    assert scaled(np.ones(2, "float32"), 2).tolist() == [2, 2]


@pytest.mark.parametrize("name", CONVERTERS)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: np.zeros(3), id="another-dtype"),
        pytest.param(lambda: np.zeros(2, "float32"), id="too-short"),
        pytest.param(lambda: np.broadcast_to(np.float32(0), 3), id="read-only"),
    ],
)
def test_an_out_that_does_not_fit_is_refused_and_not_written(
    built: Callable[[str], Any], name: str, make: Callable[[], Any]
) -> None:
    scale, out = built(name).scale, make()
    with pytest.raises((BufferError, TypeError, ValueError)):
        scale(np.ones(3, "float32"), out, 2)
    assert np.count_nonzero(out) == 0
