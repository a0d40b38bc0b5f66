//! NumPy arrays over foreign memory, made by NumPy's C functions; by its Python functions where dlx does not know those.

use std::ffi::c_int;
use std::ptr::null_mut;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use super::api::{Api, NUMPY, SetBaseObject};
use super::element::number;
use super::{NPY_ARRAY_WRITEABLE, is_subclass_of_ndarray};
use crate::cpython::modules::loaded_class;
use crate::cpython::once::intern;
use crate::tensor::managed::PROTECTED;
use crate::tensor::numpy::to_numpy;
use crate::tensor::object::Tensor;
use crate::types::error::{caused, first_line, is_urgent};
use crate::types::layout::MAX_NDIM;
use crate::types::{device, dtype};

/// The array over `tensor`, which is in host memory and has not ended; the array holds it.
///
/// # Errors
///
/// `BufferError` for what NumPy cannot represent.
#[inline(always)]
pub(crate) fn of_tensor(tensor: Bound<'_, Tensor>) -> PyResult<Bound<'_, PyAny>> {
    match array(&tensor)? {
        Some((array, set_base_object)) => {
            // SAFETY: NumPy's function, with an array that has no base; it steals the reference to `tensor`.
            match unsafe { set_base_object(array.as_ptr(), tensor.into_ptr()) } {
                0 => Ok(array),
                _ => Err(PyErr::fetch(array.py())),
            }
        }
        None => to_numpy(&tensor),
    }
}

/// An array over the memory of `tensor` that does not yet hold it, and what makes it do so. `None` if NumPy has no dtype
/// of its own for it, or its C functions are not as expected.
///
/// # Errors
///
/// `BufferError` for more dimensions than NumPy supports.
fn array<'py>(tensor: &Bound<'py, Tensor>) -> PyResult<Option<(Bound<'py, PyAny>, SetBaseObject)>> {
    let (py, snapshot) = (tensor.py(), tensor.get().described());
    let (shape, strides, flags) = (snapshot.shape(), snapshot.strides(), snapshot.meta().flags);
    let tensor = snapshot.dl_tensor();
    let Some(type_num) = number(tensor.dtype) else {
        return Ok(None);
    };
    let Some(api) = api(py) else {
        return Ok(None);
    };
    let flags = match flags & PROTECTED {
        0 => NPY_ARRAY_WRITEABLE,
        _ => 0,
    };
    let item = i64::from(dtype::bits(tensor.dtype).div_ceil(8));
    let mut steps = [0; MAX_NDIM];
    // A stride that reaches no element may be anything (R99).
    for (index, step) in steps[..shape.len()].iter_mut().enumerate() {
        *step = strides[index].wrapping_mul(item) as isize;
    }
    // NumPy would allocate for NULL.
    static NOTHING: [u64; 32] = [0; 32];
    let data = if tensor.data.is_null() {
        NOTHING.as_ptr().cast_mut().cast()
    } else {
        tensor.data
    };
    // SAFETY: the number of one of NumPy's own dtypes; returns a new reference, or NULL with an exception (S16).
    let descr = unsafe { (api.descr_from_type)(type_num) };
    // SAFETY: as many extents and strides as stated, which reach only elements of the memory at `data`; the call steals
    // the reference to `descr`. NumPy does not initialize memory that it is given (S16, NumPy's functions).
    let array = unsafe {
        (api.new_from_descr)(
            api.ndarray.as_ptr().cast(),
            descr,
            // At most MAX_NDIM.
            shape.len() as c_int,
            shape.as_ptr().cast(),
            steps.as_ptr(),
            data,
            flags,
            null_mut(),
        )
    };
    // SAFETY: a new reference, or NULL with an exception.
    match unsafe { Bound::from_owned_ptr_or_err(py, array) } {
        Ok(array) => Ok(Some((array, api.set_base_object))),
        Err(error) if is_urgent(py, &error) => Err(error),
        Err(error) => {
            let message = format!(
                "numpy.ndarray does not accept {} with {} dimensions: {}",
                tensor.dtype,
                shape.len(),
                first_line(py, &error)
            );
            Err(caused(py, PyBufferError::new_err(message), error))
        }
    }
}

/// Implements `Tensor.numpy`.
pub(crate) fn of<'py>(tensor: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyAny>> {
    let meta = tensor.get().snapshot()?.meta();
    // Without elements the strides of the array are those of the buffer, compact.
    if device::is_readable(meta.device) && !meta.data.is_null() {
        of_tensor(tensor.clone())
    } else {
        to_numpy(tensor)
    }
}

/// NumPy's functions, if it is loaded; maybe no array has been seen yet.
fn api(py: Python<'_>) -> Option<&Api> {
    if NUMPY.get(py).is_none()
        && let Ok(Some(class)) = loaded_class(intern!(py, "numpy"), intern!(py, "ndarray"))
    {
        let _ = is_subclass_of_ndarray(&class);
    }
    NUMPY.get(py)
}
