# The same whether JAX is installed or not.
from typing import Any

class Array:
    def __dlpack__(self) -> Any: ...

def __getattr__(name: str) -> Any: ...
