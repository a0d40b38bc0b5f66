"""The modules of dlx run once more, and are what they were."""

from __future__ import annotations

import pytest
from support.python_process import run_python

pytestmark = pytest.mark.slow

ONCE_MORE = {
    "the package": "sys.modules.pop('dlx')",
    "all of it": "[sys.modules.pop(n) for n in [*sys.modules] if is_dlx(n)]",
    "the extension": "sys.modules.pop('dlx._core')",
    "the extension, reloaded": "importlib.reload(dlx._core)",
    "the mixins, reloaded": "importlib.reload(dlx._mixin)",
    "each module, reloaded": "[importlib.reload(m) for n, m in found if is_dlx(n)]",
}


@pytest.mark.parametrize("again", ONCE_MORE.values(), ids=ONCE_MORE)
def test_dlx_may_be_imported_again(again: str) -> None:
    """The types are those of the process, so what was made before goes on."""
    code, out, err = run_python(
        f"""
        import importlib, pickle, sys
        import dlx, dlx.types
        import numpy as np

        def is_dlx(name):
            return name == "dlx" or name.startswith("dlx.")

        class Before(dlx.ExchangeMixin, exchange="data"):
            def __init__(self, data):
                self.data = data

        found = [*sys.modules.items()]
        before, old = Before(np.arange(3)), dlx
        tensor = dlx.from_dlpack(before)
        {again}
        import dlx

        assert is_dlx(dlx.__name__) and dlx._core.Tensor is dlx.Tensor
        for name in set(dlx.__all__) - {{"ArrayInterfaceMixin", "Pointer"}}:
            if isinstance(getattr(dlx, name), type):
                assert getattr(dlx, name) is getattr(old, name), name
        assert pickle.loads(pickle.dumps(dlx.Device("cpu"))) == old.Device("cpu")

        class After(dlx.ExchangeMixin, exchange="data"):
            def __init__(self, data):
                self.data = data

        after = dlx.convert(before, After)
        assert isinstance(after, old.ExchangeMixin)
        assert dlx.convert(after, np.ndarray).tolist() == [0, 1, 2]
        assert dlx.from_dlpack(tensor) is tensor
        assert dlx.convert(After(dlx.from_dlpack(before)), Before).data.shape == (3,)
        print("done")
        """
    )
    assert (code, out, err) == (0, "done\n", "")
