"""The raw cost of the driver calls that dlx makes, with one thread and with eight."""

import ctypes
import os
import shlex
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent.parent / "build/driver_calls.so"
# In the order of the enum in driver_calls.c.
CALLS = (
    "cuStreamIsCapturing",
    "cuCtxPushCurrent + cuCtxPopCurrent",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuEventQuery",
    "cuEventCreate + cuEventDestroy",
    "cuEventRecord + cuStreamWaitEvent",
)
THREADS = (1, 8)
COUNT = 500  # more would fill the queue of the GPU, and block
ROUNDS = 50


@dataclass(frozen=True)
class Cost:
    """ns per call, in rounds that alternate with those of the other calls."""

    call: str
    threads: int
    minimum: float
    median: float


def build(target: Path) -> None:
    """Compile `driver_calls.c`."""
    target.parent.mkdir(exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    options = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-pthread"]
    source = str(HERE / "driver_calls.c")
    command = [*compiler, *options, source, "-o", str(target), "-ldl"]
    subprocess.run(command, check=True)


def load() -> ctypes.CDLL:
    """Load the library; `DLX_DRIVER_CALLS` names it where no compiler need be."""
    target = Path(os.environ.get("DLX_DRIVER_CALLS") or BUILT)
    if target == BUILT:
        build(target)
    library = ctypes.CDLL(str(target))
    library.driver_open.argtypes = [ctypes.c_char_p]
    library.driver_ns.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long]
    library.driver_ns.restype = ctypes.c_double
    return library


def measure_calls(rounds: int = ROUNDS) -> list[Cost]:
    """Measure each call with each number of threads; a driver must be there."""
    library = load()
    path = os.environ.get("DLX_LIBCUDA") or "libcuda.so.1"
    if code := library.driver_open(path.encode()):
        raise RuntimeError(f"the driver {path} cannot be had: {code}")
    kinds = [(call, threads) for threads in THREADS for call in range(len(CALLS))]
    samples: dict[tuple[int, int], list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for call, threads in kinds:
            ns = library.driver_ns(call, threads, COUNT)
            if ns < 0:
                raise RuntimeError(f"{CALLS[call]} returned {-ns:.0f}")
            samples[call, threads].append(ns)
    return [
        Cost(CALLS[call], threads, min(ns), statistics.median(ns))
        for (call, threads), ns in samples.items()
    ]
