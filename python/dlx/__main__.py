"""Entry point of `python -m dlx`."""

import sys

import dlx

if __name__ == "__main__":
    # The public index has another `dlx`, whose files replace ours where both are
    # installed.
    if not hasattr(dlx, "from_dlpack"):
        sys.exit(
            f"dlx: {dlx.__file__} belongs to another project, which PyPI has under "
            "this name; uninstall it, then install this project's wheel, or a "
            "checkout by `pip install .`"
        )
    try:
        main = dlx._door("check", "main", "python -m dlx")
    except ModuleNotFoundError as error:
        if error.name != "dlx_check":
            raise
        sys.exit(f"dlx: {error}")
    sys.exit(main())
