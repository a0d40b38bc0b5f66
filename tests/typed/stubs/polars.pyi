# The same whether polars is installed or not.
from typing import Any

def __getattr__(name: str) -> Any: ...
