"""The hot paths whose instructions are counted; runs them under callgrind.

    valgrind --tool=callgrind --instr-atstart=no python instruction_paths.py FILE WHERE

FILE is the build of `callgrind.c`, and WHERE one of `RUNS`. Each path runs twice, with
different numbers of calls, and callgrind dumps its counts after each. The difference
excludes what runs once.
"""

import ctypes
import gc
import importlib
import sys
import timeit
from collections.abc import Callable
from types import ModuleType

from device_cases import on_stream
from extensions import by_hand, on_device
from objects import Scope, wrapped

# Path: the statement; `n` in it is the number of calls that C makes.
ON_HOST = {
    "dlx.from_dlpack(ndarray)": "dlx.from_dlpack(a)",
    "dlx.from_dlpack(torch)": "dlx.from_dlpack(t)",
    "dlx.from_dlpack(torch), a view": "dlx.from_dlpack(v)",
    "dlx.from_dlpack(torch, copy=False)": "dlx.from_dlpack(t, copy=False)",
    "dlx.from_dlpack(torch, device='cpu')": "dlx.from_dlpack(t, device='cpu')",
    "dlx.from_dlpack(ndarray, copy=False)": "dlx.from_dlpack(a, copy=False)",
    "dlx.from_dlpack(ndarray, device='cpu')": "dlx.from_dlpack(a, device='cpu')",
    "dlx.from_dlpack(dlx)": "dlx.from_dlpack(d)",
    "dlx.from_dlpack(__dlpack__ alone)": "dlx.from_dlpack(p)",
    "dlx.convert(__dlpack__ alone, np.ndarray)": "dlx.convert(p, np.ndarray)",
    "dlx.convert(__dlpack__ of old, np.ndarray)": "dlx.convert(o, np.ndarray)",
    "dlx.convert(tvm_ffi.Tensor, np.ndarray)": "dlx.convert(f, np.ndarray)",
    "dlx.from_dlpack(jax)": "dlx.from_dlpack(j)",
    "dlx.convert(jax, np.ndarray)": "dlx.convert(j, np.ndarray)",
    "table: dltensor_from_py": "c.borrow_loop_table(d_table, d, n)",
    "table: from_py + deleter": "c.from_py_loop(d_table, d, n)",
    "table: from_py + to_py + decref": "c.to_py_loop(d_table, d, n)",
    "table: allocator + deleter": "c.allocator_loop(d_table, n)",
    "dlx.Tensor.__dlpack__": "d.__dlpack__(max_version=(1, 3))",
    "dlx.Tensor.__dlpack__, unversioned": "d.__dlpack__()",
    "np.from_dlpack(dlx)": "np.from_dlpack(d)",
    "dlx.Tensor.numpy()": "d.numpy()",
    "dlx.empty(like=torch.Tensor)": "dlx.empty((8,), 'float32', like=torch.Tensor)",
    "dlx.borrow(ndarray)": "with dlx.borrow(a) as (x, s): pass",
    "dlx.borrow(three torch)": "with dlx.borrow(t, t2, t3): pass",
    "dlx.launcher, three torch tensors": "launch(t, t2, t3)",
    "dlx.launcher, the third written": "launch_out(t, t2, t3)",
    "dlx.convert(torch, np.ndarray)": "dlx.convert(t, np.ndarray)",
    "dlx.convert(ndarray, torch.Tensor)": "dlx.convert(a, torch.Tensor)",
    "dlx.convert(ndarray, tvm_ffi.Tensor)": "dlx.convert(a, tvm_ffi.Tensor)",
    "dlx.bridge, two torch tensors": "bridged(t, t2)",
    "dlx.convert_tree(100 torch, np.ndarray)": "dlx.convert_tree(ts, np.ndarray)",
    "MyArr over torch: dltensor_from_py": "c.borrow_loop_table(m_table, mt, n)",
    "MyArr over torch: from_py + deleter": "c.from_py_loop(m_table, mt, n)",
    "MyArr over ndarray: from_py + deleter": "c.from_py_loop(m_table, ma, n)",
    "tvm-ffi call, three dlx tensors": "nop(d, d2, d3)",
    "tvm-ffi call, three MyArr over torch": "nop(mt, mt2, mt3)",
}
# Those of the objects in `device_cases.py`. A release that is deferred is another
# thread's work, which does not come to the same twice.
ON_DEVICE = {
    "dlx.from_dlpack(C Tensor on a device, its stream)": (
        "dlx.from_dlpack(k, stream=own)"
    ),
    "dlx.from_dlpack(torch on a device, its stream)": "dlx.from_dlpack(t, stream=own)",
    "dlx.from_dlpack(C Tensor on a device, another stream)": (
        "dlx.from_dlpack(k, stream=other, release='none')"
    ),
    "dlx.borrow(3 C Tensors on a device)": "with dlx.borrow(k, k2, k3): pass",
    "dlx.borrow(3 torch tensors on a device)": "with dlx.borrow(t, t2, t3): pass",
    "dlx.launcher, 3 C Tensors on a device": "launch_three(k, k2, k3)",
    "dlx.launcher, 3 torch tensors on a device": "launch_three(t, t2, t3)",
    "dlx.launcher, 3 torch tensors on a device, the third written": (
        "launch_out(t, t2, t3)"
    ),
    "dlx.launcher, 16 C Tensors on a device": "launch_many(*ks)",
}
PATHS = ON_HOST | ON_DEVICE
# The floors of paths: all instructions, in every library.
FLOORS = {
    "table: dltensor_from_py": "c.borrow_loop_table(k_table, k, n)",
    "table: from_py + deleter": "c.from_py_loop(k_table, k, n)",
    "table: from_py + to_py + decref": "c.to_py_loop(k_table, k, n)",
    "table: allocator + deleter": "c.allocator_loop(k_table, n)",
    "dlx.from_dlpack(torch)": "c.from_table(t)",
    "dlx.from_dlpack(torch), a view": "c.from_table(v)",
    "dlx.from_dlpack(ndarray)": "a.__dlpack__(max_version=(1, 0))",
    "dlx.from_dlpack(torch, copy=False)": "dlx.from_dlpack(t)",
    "dlx.from_dlpack(torch, device='cpu')": "dlx.from_dlpack(t)",
    "dlx.from_dlpack(ndarray, copy=False)": "dlx.from_dlpack(a)",
    "dlx.from_dlpack(ndarray, device='cpu')": "dlx.from_dlpack(a)",
    "dlx.from_dlpack(__dlpack__ alone)": "np.from_dlpack(p)",
    "dlx.convert(__dlpack__ alone, np.ndarray)": "np.from_dlpack(p)",
    "dlx.convert(__dlpack__ of old, np.ndarray)": "np.from_dlpack(o)",
    "dlx.convert(tvm_ffi.Tensor, np.ndarray)": "np.from_dlpack(f)",
    "dlx.from_dlpack(jax)": "memoryview(j)",
    "dlx.convert(jax, np.ndarray)": "np.asarray(j)",
    "np.from_dlpack(dlx)": "np.from_dlpack(a)",
    "dlx.Tensor.numpy()": "np.from_dlpack(d)",
    "dlx.empty(like=torch.Tensor)": "torch.empty(8)",
    "dlx.borrow(ndarray)": "with memoryview(a) as x: pass",
    "dlx.borrow(three torch)": "; ".join(
        f"dlx.from_dlpack({x})" for x in ("t", "t2", "t3")
    ),
    "dlx.launcher, three torch tensors": (
        "take(c.address(t), c.address(t2), c.address(t3))"
    ),
    "dlx.convert(torch, np.ndarray)": "t.numpy()",
    "dlx.convert(ndarray, torch.Tensor)": "torch.from_numpy(a)",
    "dlx.convert(ndarray, tvm_ffi.Tensor)": "tvm_ffi.from_dlpack(a)",
    "dlx.bridge, two torch tensors": "torch.from_numpy(np.add(t.numpy(), t2.numpy()))",
    "dlx.convert_tree(100 torch, np.ndarray)": (
        "[dlx.convert(t, np.ndarray) for t in ts]"
    ),
    "MyArr over torch: dltensor_from_py": "c.borrow_loop_table(t_table, t, n)",
    "MyArr over torch: from_py + deleter": "c.from_py_loop(t_table, t, n)",
    "tvm-ffi call, three dlx tensors": "nop(t, t2, t3)",
    "tvm-ffi call, three MyArr over torch": "nop(t, t2, t3)",
    "dlx.from_dlpack(C Tensor on a device, its stream)": "c.from_table(k, own)",
    "dlx.from_dlpack(torch on a device, its stream)": "c.from_table(t, own)",
    "dlx.from_dlpack(C Tensor on a device, another stream)": "c.from_table(k, other)",
    "dlx.borrow(3 C Tensors on a device)": "c.launch(k, k2, k3)",
    "dlx.borrow(3 torch tensors on a device)": "c.launch(t, t2, t3)",
    "dlx.launcher, 3 C Tensors on a device": "c.call(three, k, k2, k3)",
    "dlx.launcher, 3 torch tensors on a device": "c.call(three, t, t2, t3)",
    "dlx.launcher, 3 torch tensors on a device, the third written": (
        "launch_three(t, t2, t3)"
    ),
    "dlx.launcher, 16 C Tensors on a device": "c.call(many, *ks)",
}
WARM_UP, FEW, MANY = 100, 100, 1100


def runner(statement: str, scope: Scope) -> Callable[[int], object]:
    """Return a function that runs a statement a number of times."""
    if ", n)" in statement:
        expression = compile(statement, "<instructions>", "eval")
        return lambda n: eval(expression, scope, {"n": n})
    return timeit.Timer(statement, globals=scope).timeit


def on_host(libraries: dict[str, ModuleType]) -> Scope:
    """The objects of the paths on the host."""
    scope = wrapped(libraries)
    scope["bridged"] = scope["dlx"].bridge(scope["np"].ndarray)(scope["np"].add)
    return scope


# Where: the paths, their floor's extension, their objects. Each has its own process:
# on a device, a driver and torch's table are replaced.
RUNS = {
    "host": (ON_HOST, by_hand, on_host),
    "device": (ON_DEVICE, on_device, on_stream),
}


def main() -> None:
    """Run every path, and have callgrind dump its counts."""
    libraries: dict[str, ModuleType] = {
        name: importlib.import_module(module)
        for name, module in (
            ("dlx", "dlx"),
            ("np", "numpy"),
            ("torch", "torch"),
            ("tvm_ffi", "tvm_ffi"),
            ("jnp", "jax.numpy"),
        )
    }
    paths, build, objects = RUNS[sys.argv[2]]
    libraries["c"] = build()
    scope = objects(libraries)
    floors = {name: FLOORS[name] for name in paths if name in FLOORS}
    callgrind = ctypes.CDLL(sys.argv[1])
    gc.disable()
    callgrind.callgrind_start()
    for kind, statements in (("path", paths), ("floor", floors)):
        for name, statement in statements.items():
            run = runner(statement, scope)
            run(WARM_UP)
            for n in (FEW, MANY):
                callgrind.callgrind_zero()
                run(n)
                callgrind.callgrind_dump(f"{kind} {n} {name}".encode())


if __name__ == "__main__":
    main()
