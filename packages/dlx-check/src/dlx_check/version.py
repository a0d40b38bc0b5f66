"""The version, which is also that of the dlx that it needs."""

__all__ = ["__version__"]

__version__ = "0.1.0"
