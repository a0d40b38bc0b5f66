"""A differential fuzzer: what dlx hands on must be what the source's library says.

A program is a few lines of Python. They make a tensor ``x`` and then ``look`` at what
an entry point of dlx makes of it. It runs twice: once without dlx, to hear from the
library what the numbers are, and once for dlx.
"""
