"""`dlx.types`: what the protocols accept, for mypy and for `isinstance`."""

import dlx
import numpy as np
import pytest
from dlx.types import SupportsDLPack, SupportsExchangeAPI
from support.optional_libraries import requires
from support.python_process import run_python


class Over(dlx.ExchangeMixin, exchange="data"):
    """A wrapper whose attribute is typed by the protocol."""

    def __init__(self, data: SupportsDLPack) -> None:
        """Keep what is exported."""
        self.data = data


def takes_dlpack(x: SupportsDLPack) -> bool:
    return isinstance(x, SupportsDLPack)


def takes_table(x: SupportsExchangeAPI) -> bool:
    return isinstance(x, SupportsExchangeAPI)


def test_a_tensor_and_a_mixin_support_both() -> None:
    """R1, R112: `SupportsDLPack` and `SupportsExchangeAPI`."""
    tensor = dlx.from_dlpack(np.ones(3))
    assert takes_dlpack(tensor)
    assert takes_table(tensor)
    assert takes_dlpack(Over(tensor))
    assert takes_table(Over(tensor))


def test_an_ndarray_supports_dlpack_alone() -> None:
    """R116: it has no table."""
    array = np.ones(3)
    assert takes_dlpack(array)
    assert takes_table(array) is False  # type: ignore[arg-type]


def test_a_torch_tensor_supports_both() -> None:
    """R1, R112: torch puts its table on the type."""
    x = requires("torch").ones(3)
    assert takes_dlpack(x)
    assert takes_table(x)


@pytest.mark.parametrize("x", [3, b"3", [3.0]])
def test_what_is_no_tensor_supports_neither(x: object) -> None:
    """R1, R112: isinstance says so."""
    assert not isinstance(x, SupportsDLPack | SupportsExchangeAPI)


def test_importing_dlx_imports_neither_typing_nor_the_protocols() -> None:
    code = """
        import sys
        for name in ("typing", "typing_extensions"):
            sys.modules.pop(name, None)
        import dlx
        print(sys.modules.keys() & {"typing", "typing_extensions", "dlx.types"})
    """
    assert run_python(code) == (0, "set()\n", "")
