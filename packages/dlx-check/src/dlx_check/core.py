"""dlx itself, for what needs it: this project's, and of the same version.

`inspect`, `trace` and `testing` take dlx from here. The conformance suite does without,
and judges a machine that has none.
"""

from dlx_check.version import __version__

try:
    import dlx
except ModuleNotFoundError as error:
    if error.name != "dlx":
        raise
    raise ModuleNotFoundError(
        "dlx is not installed, which all of dlx_check but the conformance suite needs; "
        "install it by `pip install .` in a checkout, as PyPI's dlx is another project",
        name="dlx",
    ) from None

__all__ = ["dlx"]

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
        f"dlx_check {__version__} needs dlx {__version__}, found {dlx.__version__} in "
        f"{dlx.__file__}; install both from one checkout by `pip install . "
        "./packages/dlx-check`",
        name="dlx",
        path=dlx.__file__,
    )
