"""Every producer against every consumer, through dlx, with the real libraries.

`make interop` runs it and writes `docs/interop.md`. What is expected of whom is data:
`producers.py` and `consumers.py`.
"""
