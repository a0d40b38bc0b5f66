"""What dlx says of a tensor by each way in, against what its library says.

The library's word is the struct behind `x.__dlpack__(max_version=(1, 3))`, read without
dlx; for what has none, its documentation. `known.py` lists what differs, with reasons.
"""
