"""Every producer against every consumer, through dlx, with the real libraries.

`tests/tasks.py interop` runs these tests and compares the results with `pairs.json`,
which `tests/tasks.py interop-report` writes. `producers.py` and `consumers.py` list
what is expected. `test_check.py` compares what the conformance suite finds with
`conformance.json`.
"""
