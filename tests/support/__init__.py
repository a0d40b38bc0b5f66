"""What several tests share: producers and consumers, the simulated driver, processes.

``dlpack_abi`` has the structs; ``fake_*`` are exporters that tests shape freely,
``dlx_producers`` and ``alias_producers`` those that go through dlx or have several
devices; ``simulated_*`` and ``cuda_*`` stand for a driver and for frameworks on it.
"""
