# The same whether torch is installed or not.
from typing import Any

class Tensor:
    def __dlpack__(self, *, stream: Any = -1) -> Any: ...

def __getattr__(name: str) -> Any: ...
