"""Functions that take tensors of any library: `bridge` and `launcher`."""
