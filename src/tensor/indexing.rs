//! Basic indexing: ints, slices, `None` and `...` choose elements of a tensor without copying them.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PySlice, PyTuple};

use crate::abi::kDLBool;
use crate::tensor::snapshot::Snapshot;
use crate::types::dtype::DType;
use crate::types::error::type_name;

/// The index in a dimension of this extent that `item`, an int, chooses; negative ones count from the end.
fn place(item: &Bound<'_, PyAny>, extent: i64) -> PyResult<i64> {
    let index = item.extract::<i64>().map_err(|error| {
        if error.is_instance_of::<PyOverflowError>(item.py()) {
            PyIndexError::new_err("the index takes more than 64 bits")
        } else {
            error
        }
    })?;
    let place = if index < 0 {
        index.saturating_add(extent)
    } else {
        index
    };
    if !(0..extent).contains(&place) {
        return Err(PyIndexError::new_err(format!(
            "index {index} is out of bounds for a dimension of {extent}"
        )));
    }
    Ok(place)
}

/// Whether `item` stands for one dimension of the tensor.
fn is_dimension(item: &Bound<'_, PyAny>) -> PyResult<bool> {
    if item.is_none() || item.is(PyEllipsis::get(item.py())) {
        return Ok(false);
    }
    let is_index = item.hasattr("__index__")? && !is_bool_or_array(item)?;
    if is_index || item.is_instance_of::<PySlice>() {
        return Ok(true);
    }
    Err(PyTypeError::new_err(format!(
        "a dlx.Tensor takes ints, slices, None and ... as an index, not {}; \
         convert it to a library that indexes by arrays, such as np.asarray(t)",
        type_name(&item.get_type())
    )))
}

/// Whether `item` is a bool, of any library, or an array: both are indices of another kind.
fn is_bool_or_array(item: &Bound<'_, PyAny>) -> PyResult<bool> {
    if item.is_instance_of::<PyInt>() {
        return Ok(item.is_instance_of::<PyBool>());
    }
    let ndim = item.getattr_opt("ndim")?;
    if ndim.is_some_and(|ndim| ndim.extract::<i64>().is_ok_and(|ndim| ndim > 0)) {
        return Ok(true);
    }
    let dtype = item.getattr_opt("dtype")?;
    Ok(dtype.is_some_and(|dtype| DType::of(&dtype).is_ok_and(|dtype| dtype.code == kDLBool)))
}

/// The elements of `snapshot` that `index` chooses, in the same memory.
///
/// # Errors
///
/// `IndexError` for an index out of bounds and for too many of them, `TypeError` for other objects, and `BufferError`
/// for a packed element that does not begin with a byte.
pub(crate) fn part(snapshot: &Snapshot, index: &Bound<'_, PyAny>) -> PyResult<Snapshot> {
    let py = index.py();
    let items = match index.cast::<PyTuple>() {
        Ok(items) => items.clone(),
        Err(_) => PyTuple::new(py, [index])?,
    };
    let ndim = snapshot.ndim();
    let mut count = 0;
    for item in &items {
        count += usize::from(is_dimension(&item)?);
    }
    if count > ndim {
        return Err(PyIndexError::new_err(format!(
            "{count} indices for a tensor of {ndim} dimensions"
        )));
    }
    let (extents, steps) = (snapshot.shape().iter(), snapshot.strides().iter());
    let mut dimensions = extents.copied().zip(steps.copied());
    let (mut chosen, mut offset) = (Vec::new(), 0_i64);
    let mut is_whole = false;
    for item in items {
        if item.is_none() {
            chosen.push((1, 0));
        } else if item.is(PyEllipsis::get(py)) {
            if is_whole {
                return Err(PyIndexError::new_err("an index has at most one '...'"));
            }
            is_whole = true;
            chosen.extend(dimensions.by_ref().take(ndim - count));
        } else if let Some((extent, stride)) = dimensions.next() {
            // An empty tensor may have any strides; it has no address that they could change.
            let start = if let Ok(slice) = item.cast::<PySlice>() {
                let range = slice.indices(extent as isize)?;
                let (length, step) = (range.slicelength as i64, range.step as i64);
                // A step is only taken from one element to the next, inside of the memory.
                let step = if length > 1 { step } else { 1 };
                chosen.push((length, step.wrapping_mul(stride)));
                if length > 0 { range.start as i64 } else { 0 }
            } else {
                place(&item, extent)?
            };
            offset = offset.wrapping_add(start.wrapping_mul(stride));
        }
    }
    chosen.extend(dimensions);
    let (shape, strides): (Vec<_>, Vec<_>) = chosen.into_iter().unzip();
    Ok(snapshot.part(offset, &shape, &strides)?)
}
