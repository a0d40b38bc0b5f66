"""Shared by tests: producers and consumers, the simulated driver, processes.

``dlpack_abi`` has the structs; ``fake_*`` are exporters that tests configure freely,
``dlx_producers`` and ``alias_producers`` export through dlx or on several devices;
``simulated_*`` and ``cuda_*`` simulate a driver and frameworks on it.
"""
