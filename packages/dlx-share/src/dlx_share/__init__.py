"""Tensors in other processes: shared memory, and pickles of any object.

`share` and `attach` share the memory of a tensor between the processes of a host, and
`dlx.empty(shared=True)` allocates such memory (Linux only). `dumps` and `Pickler`
pickle tensors of other libraries without a copy. `dlx_share.dask`, `dlx_share.ray` and
`dlx_share.mp` tell engines of it. Each name is imported on first use.
"""

from __future__ import annotations

import dlx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dlx_share.pickling import Pickler, dumps
    from dlx_share.sharing import Handle, attach, share

__all__ = ["Handle", "Pickler", "__version__", "attach", "dumps", "share"]

__version__ = "0.1.0"
"""That of the dlx that it needs, too."""

if not hasattr(dlx, "from_dlpack"):
    raise ImportError(
        f"{dlx.__file__} belongs to another project, which PyPI has under this name; "
        "uninstall it, then install this project's wheel, or a checkout by "
        "`pip install .`",
        name="dlx",
        path=dlx.__file__,
    )
if dlx.__version__ != __version__:
    raise ImportError(
        f"dlx_share {__version__} needs dlx {__version__}, found {dlx.__version__} in "
        f"{dlx.__file__}; install both from one checkout by `pip install . "
        "./packages/dlx-share`",
        name="dlx",
        path=dlx.__file__,
    )


def __getattr__(name: str) -> object:
    """Import a name on first use."""
    from importlib import import_module

    if name in ("dask", "mp", "ray"):
        return import_module(f"{__name__}.{name}")
    if name not in (*__all__, "_empty"):  # `dlx.empty(shared=True)`
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "pickling" if name in ("Pickler", "dumps") else "sharing"
    found: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found
