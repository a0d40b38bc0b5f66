"""Views of arrays of any shape and strides."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

DTYPES = ["?", "i1", "u1", "i2", "f2", "u4", "f4", "i8", "f8", "c8", "c16"]


@st.composite
def views(draw: st.DrawFn) -> np.ndarray:
    """Draw an array, and a slice of it with steps, new, permuted and repeated axes."""
    shape = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    base = draw(npst.arrays(draw(st.sampled_from(DTYPES)), draw(shape)))
    index = npst.basic_indices(base.shape, allow_ellipsis=False, allow_newaxis=True)
    chosen = draw(index)
    view = base[(*chosen, ...) if isinstance(chosen, tuple) else (chosen, ...)]
    view = view.transpose(draw(st.permutations(range(view.ndim))))
    if draw(st.booleans()):
        view = np.broadcast_to(view, (2, *view.shape))
    return view
