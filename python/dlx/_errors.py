"""The exceptions of dlx that are not Python's own."""

from __future__ import annotations

__all__ = ["CopyRefused", "CudaError"]


class CopyRefused(BufferError, ValueError):
    """``copy=False`` was passed, but the request cannot be met without a copy.

    Source: the array API, which allows both of its bases.
    """

    __module__ = "dlx"


class CudaError(RuntimeError):
    """A function of the CUDA or HIP driver failed.

    ``call`` is its name, ``code`` the error code that it returned, and ``name`` the
    name of that code.
    """

    __module__ = "dlx"

    call: str | None = None
    code: int | None = None
    name: str | None = None
