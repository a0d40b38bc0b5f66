"""Every producer against every consumer, through dlx, with the real libraries.

`make interop` runs it and compares with `docs/interop.md`, which `make interop-report`
writes. What is expected of whom is data: `producers.py` and `consumers.py`.
"""
