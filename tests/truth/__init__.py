"""A differential fuzzer: dlx must pass on what the source's library says.

A program is a few lines of Python that make a tensor ``x`` and then ``look`` at what an
entry point of dlx makes of it. It runs twice: once without dlx, to record the numbers
that the library reports, and once with dlx, to compare.
"""
