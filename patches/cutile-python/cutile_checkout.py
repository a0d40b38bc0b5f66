"""Make the commit in a checkout of cutile-python, compile it, and launch without a GPU.

    python patches/cutile-python/cutile_checkout.py CHECKOUT

The commit is `message.txt`, `change.diff`, the files in `new`, and two headers of
`include`. The change is of v1.6 (9c3ee3c). A checkout that it does not fit is left as
it was.

Both the commit and the one before are compiled as cutile compiles itself, and launch
on the driver of `simulation.c`: what happens there is printed. That takes compilers of
C and C++, and

    pip install cmake typing-extensions nvidia-cuda-runtime jaxlib apache-tvm-ffi

or CMake 3.18 and the headers of CUDA 13, XLA and DLPack 1.3 where CUDAToolkit_ROOT,
CUDA_TILE_CMAKE_XLA_PATH and CUDA_TILE_CMAKE_DLPACK_PATH say.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEW = HERE / "new"
SIMULATION = HERE / "simulation.c"
INCLUDE = HERE.parents[1] / "include"
HEADERS = ("dlpack_exchange.h", "dlpack_exchange_streams.h")
NEEDED = {
    "CUDAToolkit_ROOT": ("nvidia/cu13", "include/cuda.h"),
    "CUDA_TILE_CMAKE_XLA_PATH": ("jaxlib/include", "xla/ffi/api/c_api.h"),
    "CUDA_TILE_CMAKE_DLPACK_PATH": (
        "tvm_ffi/3rdparty/dlpack",
        "include/dlpack/dlpack.h",
    ),
}
"""Where headers are: the variable, the folder of a wheel, and a file in either."""


def run(*command: str | Path) -> str:
    """Run a command, and return what it prints."""
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    return done.stdout.strip()


def commit(checkout: Path) -> Path:
    """Make the commit, and return the file that `git format-patch` wrote."""
    git = ("git", "-C", str(checkout))
    run(*git, "apply", "--index", HERE / "change.diff")
    added = "cext/dlpack_launch.h"
    files = {NEW / added: added}
    files |= {INCLUDE / name: f"cext/{name}" for name in HEADERS}
    for source, name in files.items():
        shutil.copyfile(source, checkout / name)
    run(*git, "add", *files.values())
    run(*git, "commit", "--quiet", f"--file={HERE / 'message.txt'}")
    return checkout / run(*git, "format-patch", "-1")


def found() -> dict[str, Path]:
    """Return where the headers are."""
    places: dict[str, Path] = {}
    for variable, (folder, file) in NEEDED.items():
        roots = [Path(root, folder) for root in sys.path]
        if os.environ.get(variable):
            roots = [Path(os.environ[variable])]
        for root in roots:
            if (root / file).exists():
                places.setdefault(variable, root)
    return places


def compiled(sources: Path, folder: Path, places: dict[str, Path]) -> Path:
    """Compile the extension by cutile's CMake files, warnings as errors."""
    cuda, xla, dlpack = (places[variable] for variable in NEEDED)
    run(
        *("cmake", "-S", sources, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"),
        f"-DCUDAToolkit_ROOT={cuda}",
        f"-DXLA_PATH={xla}",
        f"-DDLPACK_PATH={dlpack}",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DPython_ROOT_DIR={sys.base_prefix}",
    )
    run("cmake", "--build", folder, "--parallel", str(os.cpu_count()))
    return folder / "cext/lib_cext.so"


def extension(source: Path, folder: Path, *flags: str | Path) -> Path:
    """Compile an extension into a folder; `CC` or `CXX` may name the compiler."""
    language = ("CC", "cc", "-std=c11"), ("CXX", "c++", "-std=c++17")
    variable, compiler, standard = language[source.suffix == ".cpp"]
    target = folder / f"{source.stem}.so"
    command = [*shlex.split(os.environ.get(variable, compiler)), standard, "-O1"]
    command += ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    command += ["-isystem", sysconfig.get_path("include"), "-o", str(target)]
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    run(*command, *flags, source)
    return target


def launched(checkout: Path, revision: str, places: dict[str, Path]) -> dict[str, str]:
    """Compile a commit, and return what happens when it launches, by case."""
    git = ("git", "-C", str(checkout))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        tree = folder / "tree"
        run(*git, "worktree", "add", "--quiet", "--detach", tree, revision)
        try:
            built = compiled(tree, folder / "build", places)
            include = places["CUDA_TILE_CMAKE_DLPACK_PATH"] / "include/dlpack"
            driver = extension(SIMULATION, folder, f"-I{include}")
            script = HERE / "cutile_launch.py"
            output = run(sys.executable, script, built, tree / "src", driver)
        finally:
            run(*git, "worktree", "remove", "--force", tree)
    cases: dict[str, str] = json.loads(output)
    return cases


def main(checkout: Path) -> int:
    """Do as far as it goes, and say where that was."""
    print("The commit:", commit(checkout))
    places = found()
    missing = [name for name in NEEDED if name not in places]
    missing += [name for name in ("cmake", "c++") if shutil.which(name) is None]
    if missing:
        print("It is not compiled. Not found:", *missing)
        return 1
    before = launched(checkout, "HEAD^", places)
    for case, now in launched(checkout, "HEAD", places).items():
        print(f"\n{case}")
        print(f"  before: {before[case]}\n  now:    {now}")
    print("\nIt is compiled, and launches on a simulated driver.")
    if shutil.which("nvidia-smi") is None:
        print("There is no GPU: no kernel ran, and cutile's own tests did not.")
    else:
        print("With the GPU that is here: pip install CHECKOUT, pytest CHECKOUT/test")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
