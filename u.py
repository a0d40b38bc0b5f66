from b import bridge
import numpy as np
from numpy.typing import NDArray
from typing import Any
F = NDArray[np.float32]
@bridge(np.ndarray)
def f(a: F, b: F, *, axis: int = 0) -> F:
    return a
class C:
    @bridge(np.ndarray)
    def m(self, a: F) -> F: return a
    @classmethod
    @bridge(np.ndarray)
    def c(cls, a: F) -> F: return a
    @staticmethod
    @bridge(np.ndarray)
    def s(a: F) -> F: return a
    @bridge(np.ndarray)
    @classmethod
    def c2(cls, a: F) -> F: return a
    @bridge(np.ndarray)
    @staticmethod
    def s2(a: F) -> F: return a
@bridge(np)
async def g(a: F) -> F: return a
x = np.ones(3, np.float32)
import torch
t = torch.ones(3)
async def main() -> None:
    reveal_type(await g(x))
    reveal_type(await g(t))
reveal_type(f)
reveal_type(f.__wrapped__)
reveal_type(f(x, x, axis=1))
reveal_type(f(t, t, axis=1))
reveal_type(C().m)
reveal_type(C().m(x))
reveal_type(C().m(t))
reveal_type(C.c(x))
reveal_type(C.c(t))
reveal_type(C.s(x))
reveal_type(C.s(t))
reveal_type(C.c2(x))
reveal_type(C.s2(x))
reveal_type(C.m)
