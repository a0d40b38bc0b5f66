"""Tests that need a CUDA GPU: what the simulated driver replaces, on a real one."""
