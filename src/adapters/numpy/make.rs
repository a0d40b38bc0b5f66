//! NumPy arrays over foreign memory, made by NumPy's C functions.
//!
//! NumPy keeps their table in a capsule for extension modules; these entries have had the same places since NumPy 1.7.
//! dlx uses them only once a trial array is as requested (S16, `docs/safety.md`), and NumPy's Python functions
//! otherwise.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{NonNull, null_mut};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyCapsule, PyType};

use super::element::number;
use super::{FEW, NDARRAY, NPY_ARRAY_WRITEABLE, is_subclass_of_ndarray};
use crate::abi::*;
use crate::cpython::modules::{loaded, loaded_class};
use crate::tensor::checked::Dimensions;
use crate::tensor::managed::PROTECTED;
use crate::tensor::numpy::to_numpy;
use crate::tensor::object::Tensor;
use crate::types::error::{caused, first_line, is_urgent};
use crate::types::{device, dtype, layout};

/// The functions of `__multiarray_api.h` that dlx uses.
#[derive(Clone, Copy)]
struct Api {
    ndarray: NonNull<ffi::PyTypeObject>,
    descr_from_type: DescrFromType,
    new_from_descr: NewFromDescr,
    set_base_object: SetBaseObject,
}

type GetNDArrayCVersion = unsafe extern "C" fn() -> c_uint;
type DescrFromType = unsafe extern "C" fn(c_int) -> *mut ffi::PyObject;
type NewFromDescr = unsafe extern "C" fn(
    *mut ffi::PyTypeObject,
    *mut ffi::PyObject,
    c_int,
    *const isize,
    *const isize,
    *mut c_void,
    c_int,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;
type SetBaseObject = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> c_int;

// SAFETY: functions of NumPy and its array type, which live as long as the process.
unsafe impl Send for Api {}
// SAFETY: as for `Send`.
unsafe impl Sync for Api {}

/// An array that does not yet hold its memory.
pub(crate) struct Unheld<'py>(Bound<'py, PyAny>, SetBaseObject);

impl<'py> Unheld<'py> {
    /// The array, which now holds `base`.
    #[inline(always)]
    pub(crate) fn held_by(self, base: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let Self(array, set_base_object) = self;
        // SAFETY: NumPy's function, with an array that has no base; it steals the reference to `base`.
        match unsafe { set_base_object(array.as_ptr(), base.into_ptr()) } {
            0 => Ok(array),
            _ => Err(PyErr::fetch(array.py())),
        }
    }
}

/// An array over the memory of `tensor`, which is on the CPU and has passed the checks of a snapshot. `None` if NumPy
/// has no dtype of its own for it, or its C functions are not as expected.
///
/// # Errors
///
/// `BufferError` for more dimensions than NumPy supports.
pub(crate) fn array<'py>(
    py: Python<'py>,
    tensor: &DLTensor,
    (shape, strides): Dimensions<'_>,
    flags: u64,
) -> PyResult<Option<Unheld<'py>>> {
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
    let (mut few, mut many);
    let steps: &mut [isize] = if shape.len() <= FEW {
        few = [0; FEW];
        &mut few[..shape.len()]
    } else {
        many = vec![0; shape.len()];
        &mut many
    };
    // A stride that reaches no element may be anything (R99).
    let in_bytes = |stride: i64| stride.wrapping_mul(item) as isize;
    match strides {
        Some(strides) => {
            for (step, &stride) in steps.iter_mut().zip(strides) {
                *step = in_bytes(stride);
            }
        }
        None => {
            for (index, step) in steps.iter_mut().enumerate() {
                *step = in_bytes(layout::row_major(shape, index));
            }
        }
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
            api.ndarray.as_ptr(),
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
        Ok(array) => Ok(Some(Unheld(array, api.set_base_object))),
        Err(error) if is_urgent(py, &error) => Err(error),
        Err(error) => {
            let message = format!(
                "numpy.ndarray does not accept {} with {} dimensions: {}",
                dtype::name(tensor.dtype),
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

/// The array over `tensor`, which is in host memory and has not ended; the array holds it.
///
/// # Errors
///
/// `BufferError` for what NumPy cannot represent.
#[inline(always)]
pub(crate) fn of_tensor(tensor: Bound<'_, Tensor>) -> PyResult<Bound<'_, PyAny>> {
    let snapshot = tensor.get().described();
    let dimensions = (snapshot.shape(), Some(snapshot.strides()));
    let flags = snapshot.meta().flags;
    match array(tensor.py(), snapshot.dl_tensor(), dimensions, flags)? {
        Some(array) => array.held_by(tensor.into_any()),
        None => to_numpy(&tensor),
    }
}

/// NumPy's functions, once a trial array has been as requested.
fn api(py: Python<'_>) -> Option<Api> {
    static API: PyOnceLock<Option<Api>> = PyOnceLock::new();
    if let Some(api) = API.get(py) {
        return *api;
    }
    if let Ok(Some(class)) = loaded_class(intern!(py, "numpy"), intern!(py, "ndarray")) {
        // Maybe no array has been seen yet.
        let _ = is_subclass_of_ndarray(&class);
    }
    let api = find(NDARRAY.get(py)?.bind(py)).ok().flatten();
    *API.get_or_init(py, || api)
}

/// The functions in the capsule of the module of `ndarray`, the proven class.
fn find(ndarray: &Bound<'_, PyType>) -> PyResult<Option<Api>> {
    let py = ndarray.py();
    for name in [
        intern!(py, "numpy._core._multiarray_umath"),
        intern!(py, "numpy.core._multiarray_umath"),
    ] {
        let Some(module) = loaded(name)? else {
            continue;
        };
        let Some(capsule) = module.getattr_opt("_ARRAY_API")? else {
            continue;
        };
        let table = capsule.cast::<PyCapsule>()?.pointer_checked(None)?;
        if let Some(api) = functions(table, ndarray)
            && is_as_expected(py, api)?
        {
            return Ok(Some(api));
        }
    }
    Ok(None)
}

/// The functions in NumPy's table, if that is a version of it that has `ndarray` as its array class.
fn functions(table: NonNull<c_void>, ndarray: &Bound<'_, PyType>) -> Option<Api> {
    // SAFETY: entry 2 is the array class in every NumPy (S16).
    let class = unsafe { entry::<NonNull<ffi::PyTypeObject>>(table, 2) }?;
    if class.as_ptr() != ndarray.as_type_ptr() {
        return None;
    }
    // SAFETY: entry 0 is this function in every NumPy (S16).
    let version = unsafe { entry::<GetNDArrayCVersion>(table, 0) }?;
    // SAFETY: it takes no arguments and returns the version of the C interface.
    if !matches!(unsafe { version() } >> 24, 1 | 2) {
        return None;
    }
    Some(Api {
        ndarray: class,
        // SAFETY: in these versions, entry 45 is this function (S16).
        descr_from_type: unsafe { entry(table, 45) }?,
        // SAFETY: as above, for entry 94.
        new_from_descr: unsafe { entry(table, 94) }?,
        // SAFETY: as above, for entry 282.
        set_base_object: unsafe { entry(table, 282) }?,
    })
}

/// Entry `index` of NumPy's table; `None` for NULL.
///
/// # Safety
///
/// `table` is NumPy's table, which has some three hundred entries, and this one is a `T`: a pointer or a function.
unsafe fn entry<T: Copy>(table: NonNull<c_void>, index: usize) -> Option<T> {
    const { assert!(size_of::<Option<T>>() == size_of::<*mut c_void>()) };
    // SAFETY: the caller's promise.
    let place = unsafe { table.cast::<Option<T>>().add(index) };
    // SAFETY: as above; NULL is `None`, since `T` and `Option<T>` have the same size.
    unsafe { place.read() }
}

/// Whether an array that `api` makes is as requested.
fn is_as_expected(py: Python<'_>, api: Api) -> PyResult<bool> {
    let base = PyBytes::new(py, &[0; 64]);
    let data = base.as_bytes().as_ptr().cast_mut();
    let (shape, strides) = ([3, 1, 2], [-12, 6, 4]);
    // SAFETY: as in `array`; 4 is `NPY_USHORT`.
    let descr = unsafe { (api.descr_from_type)(4) };
    // SAFETY: the elements lie in the bytes, which `base` holds.
    let data = unsafe { data.add(40) };
    // SAFETY: as in `array`.
    let array = unsafe {
        (api.new_from_descr)(
            api.ndarray.as_ptr(),
            descr,
            3,
            shape.as_ptr(),
            strides.as_ptr(),
            data.cast(),
            0,
            null_mut(),
        )
    };
    // SAFETY: a new reference, or NULL with an exception.
    let array = unsafe { Bound::from_owned_ptr_or_err(py, array) }?;
    let array = Unheld(array, api.set_base_object).held_by(base.clone().into_any())?;
    let interface = array.getattr("__array_interface__")?;
    let (address, readonly): (usize, bool) = interface.get_item("data")?.extract()?;
    Ok(address == data.addr()
        && readonly
        && array.get_type_ptr() == api.ndarray.as_ptr()
        && array.getattr("shape")?.extract::<[isize; 3]>()? == shape
        && array.getattr("strides")?.extract::<[isize; 3]>()? == strides
        && array.getattr("dtype")?.str()? == "uint16"
        && array.getattr("base")?.is(&base))
}
