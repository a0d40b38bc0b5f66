"""The targets of `python -m dlx_check check native.checked:target`, and `:example`.

The first is the class that `dlx_object` makes, and `dlx_import`; the other `c_class.c`.
"""

from __future__ import annotations

from dlx_check import Target

IMPORTS = """
import numpy as np
from support.extensions import extension
image = extension("image")
def take(x): return image.import_like(x, None)
def frozen(a): a.setflags(write=False); return take(a)
"""
SIX = "np.arange(6, dtype='float32').reshape(2, 3)"


def target() -> Target:
    """Name what the checks make, take and look at."""
    return Target(
        name="dlpack_exchange",
        imports=IMPORTS,
        make="take",
        take="take",
        show="lambda x: np.from_dlpack(x).copy()",
        address="lambda x: image.look(x, 16)[0]",
        writable="lambda x: not image.look(x, 16)[6] & 1",
        type="type(take(np.zeros(1)))",
        tensors={
            "read-only": f"frozen({SIX})",
            "strided": f"take({SIX}.T)",
            "negative": f"take({SIX}[::-1])",
            "broadcast": "take(np.broadcast_to(np.float32(1), (2, 3)))",
        },
        keywords=frozenset(),
        profiles="dlpack array-api table",
        distribution="numpy",
    )


EXAMPLE_IMPORTS = """
import dlx
import numpy as np
from support.extensions import extension
Array = extension("c_class", "-Wno-pedantic").Array
"""


def example() -> Target:
    """Name the same of the class of `c_class.c`."""
    return Target(
        name="c_class",
        imports=EXAMPLE_IMPORTS,
        make="lambda a: dlx.convert(a, Array)",
        take="lambda x: dlx.convert(x, Array)",
        show="lambda x: np.from_dlpack(x).copy()",
        address="lambda x: dlx.from_dlpack(x).data_ptr",
        writable="lambda x: not dlx.from_dlpack(x).readonly",
        type="Array",
        keywords=frozenset(),
        profiles="dlpack array-api table",
        distribution="numpy",
    )
