"""Tests on oneAPI itself: dpctl and dpnp on the CPU, as Intel's OpenCL runs it."""
