"""What the fuzzer looks for."""


class Wrong(AssertionError):
    """The result of dlx differs from what the library says."""

    known = ""
    """The name of the known fault that it is."""
