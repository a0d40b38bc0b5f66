# The same whether cuda.core is installed or not.
from typing import Any

def __getattr__(name: str) -> Any: ...
