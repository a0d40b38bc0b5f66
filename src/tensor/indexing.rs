//! Basic indexing: ints, slices, `None` and `...` choose elements of a tensor without copying them.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PySlice, PyTuple};

use crate::abi::kDLBool;
use crate::tensor::snapshot::Snapshot;
use crate::types::dtype::DType;
use crate::types::error::type_name;

/// The dimensions that an index leaves, and the offset of their first element.
struct Chosen<'a> {
    /// The dimensions still to be indexed.
    left: &'a [i64],
    strides: &'a [i64],
    offset: i64,
    chosen: (Vec<i64>, Vec<i64>),
}

impl Chosen<'_> {
    fn add(&mut self, extent: i64, stride: i64) {
        self.chosen.0.push(extent);
        self.chosen.1.push(stride);
    }

    /// The next dimension of the tensor.
    fn next(&mut self) -> (i64, i64) {
        // `part` has counted the dimensions.
        let (extent, stride) = (self.left[0], self.strides[0]);
        (self.left, self.strides) = (&self.left[1..], &self.strides[1..]);
        (extent, stride)
    }

    /// Leaves the next `count` dimensions whole.
    fn keep(&mut self, count: usize) {
        for _ in 0..count {
            let (extent, stride) = self.next();
            self.add(extent, stride);
        }
    }

    fn apply(&mut self, item: &Bound<'_, PyAny>) -> PyResult<()> {
        if item.is_none() {
            self.add(1, 0);
            return Ok(());
        }
        let (extent, stride) = self.next();
        if let Ok(slice) = item.cast::<PySlice>() {
            let range = slice.indices(extent as isize)?;
            let (start, step) = (range.start as i64, range.step as i64);
            let length = range.slicelength as i64;
            // A step is only taken from one element to the next, inside of the memory.
            let step = if length > 1 {
                step.wrapping_mul(stride)
            } else {
                stride
            };
            if length > 0 {
                self.move_by(start, stride);
            }
            self.add(length, step);
            return Ok(());
        }
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
        self.move_by(place, stride);
        Ok(())
    }

    /// Adds `steps` steps of `stride`. An empty tensor may have any strides; it has no address that they could change.
    fn move_by(&mut self, steps: i64, stride: i64) {
        self.offset = self.offset.wrapping_add(steps.wrapping_mul(stride));
    }
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
    for item in items.iter() {
        count += usize::from(is_dimension(&item)?);
    }
    if count > ndim {
        return Err(PyIndexError::new_err(format!(
            "{count} indices for a tensor of {ndim} dimensions"
        )));
    }
    let mut chosen = Chosen {
        left: snapshot.shape(),
        strides: snapshot.strides(),
        offset: 0,
        chosen: (Vec::new(), Vec::new()),
    };
    let mut is_whole = false;
    for item in items.iter() {
        if !item.is(PyEllipsis::get(py)) {
            chosen.apply(&item)?;
        } else if is_whole {
            return Err(PyIndexError::new_err("an index has at most one '...'"));
        } else {
            is_whole = true;
            chosen.keep(ndim - count);
        }
    }
    chosen.keep(chosen.left.len());
    let (shape, strides) = chosen.chosen;
    Ok(snapshot.part(chosen.offset, &shape, &strides)?)
}
