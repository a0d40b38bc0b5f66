"""Tests that need a CUDA GPU: what the simulated driver stands for, on a real one."""
