"""Build and load the extensions that dlx is compared with, for this Python.

Hand-written C (`c_exchange.c`, `c_device.c`), and what a user would write of
`dlpack_exchange.h` (`header_exchange.c`), of nanobind and pybind11 (`nb_exchange.cpp`,
`pb_exchange.cpp`), and of dlpark (`dlpark_exchange`). Builds are kept until a source
changes.
"""

import importlib
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parent / "include"
BUILD = HERE.parent / "build"
TAG = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def folder_of(name: str) -> Path:
    """Return the folder of a package; `RuntimeError` if it is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"{name} is not installed")
    return Path(spec.submodule_search_locations[0])


def compiled(
    name: str,
    compiler: list[str],
    sources: Iterable[Path],
    includes: Iterable[Path],
    libraries: Iterable[str] = (),
) -> ModuleType:
    """Compile an extension, unless it is newer than its sources, and import it."""
    folder = BUILD / f"bench-{TAG}"
    target = folder / f"{name}{SUFFIX}"
    kinds = ("*.c", "*.h", "*.cpp", "*.hpp")
    own = [path for kind in kinds for at in (HERE, HEADERS) for path in at.glob(kind)]
    newest = max(path.stat().st_mtime for path in own)
    if not target.exists() or target.stat().st_mtime < newest:
        folder.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        command = [*compiler, "-shared", "-fPIC"]
        if sys.platform == "darwin":
            command += ["-undefined", "dynamic_lookup"]
        paths = (sysconfig.get_path("include"), *includes)
        command += [f"-I{path}" for path in paths]
        command += [*map(str, sources), "-o", str(partial), *libraries]
        subprocess.run(command, check=True)
        partial.replace(target)
    return load(name, target)


def load(name: str, path: Path) -> ModuleType:
    """Import a built extension by its path."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no extension module of this Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_c(name: str, *sources: str, flags: Iterable[str] = ()) -> ModuleType:
    """Build C; tvm-ffi has `dlpack.h`."""
    compiler = [*shlex.split(os.environ.get("CC", "cc")), "-O3"]
    compiler += ["-Wall", "-Wextra", "-Werror", *flags]
    paths = [HERE / source for source in sources]
    return compiled(name, compiler, paths, [HEADERS, folder_of("tvm_ffi") / "include"])


def by_hand() -> ModuleType:
    """Build the floor on the host."""
    return in_c("c_exchange", "c_exchange.c")


def on_device() -> ModuleType:
    """Build the floor on a device, whose driver is in the same file."""
    return in_c("c_device", "c_device.c", "null_cuda.c")


def header() -> ModuleType:
    """Build functions of `dlpack_exchange.h`."""
    return in_c("header_exchange", "header_exchange.c")


def header_with_numpy() -> ModuleType:
    """Build the same after NumPy's header."""
    numpy = folder_of("numpy") / "_core" / "include"
    flags = ["-DWITH_NUMPY", "-isystem", str(numpy)]
    return in_c("header_numpy", "header_exchange.c", flags=flags)


def in_cpp(name: str, sources: Iterable[Path], includes: Iterable[Path]) -> ModuleType:
    """Build C++ with nanobind's own flags."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    compiler += ["-std=c++17", "-O3", "-DNDEBUG"]
    compiler += ["-fvisibility=hidden", "-fno-strict-aliasing"]
    includes = (HEADERS, folder_of("tvm_ffi") / "include", *includes)
    return compiled(name, compiler, sources, includes)


def nanobind() -> ModuleType:
    """Build what a user of nanobind would write."""
    package = folder_of("nanobind")
    sources = (HERE / "nb_exchange.cpp", package / "src" / "nb_combined.cpp")
    includes = (package / "include", package / "ext" / "robin_map" / "include")
    return in_cpp("nb_exchange", sources, includes)


def pybind11() -> ModuleType:
    """Build what a user of pybind11 would write."""
    includes = [folder_of("pybind11") / "include"]
    return in_cpp("pb_exchange", [HERE / "pb_exchange.cpp"], includes)


def dlpark() -> ModuleType:
    """Build what a user of dlpark would write; cargo decides what to rebuild."""
    manifest = HERE / "dlpark_exchange" / "Cargo.toml"
    target = BUILD / "dlpark"
    command = ["cargo", "build", "--quiet", "--release", "--locked"]
    command += ["--manifest-path", str(manifest), "--target-dir", str(target)]
    subprocess.run(command, check=True)
    library = "libdlpark_exchange" + (".dylib" if sys.platform == "darwin" else ".so")
    # The import system requires the suffix of an extension.
    built = target / f"dlpark_exchange{SUFFIX}"
    built.unlink(missing_ok=True)
    built.symlink_to(target / "release" / library)
    return load("dlpark_exchange", built)


EXTENSIONS = {
    "c": by_hand,
    "h": header,
    "hn": header_with_numpy,
    "nb": nanobind,
    "pb": pybind11,
    "dlpark": dlpark,
}
