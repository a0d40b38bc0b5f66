"""Tests on the libraries of NVIDIA and AMD themselves, on a machine without a GPU."""
