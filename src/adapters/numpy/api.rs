//! NumPy's table of C functions, which also says that arrays are laid out as dlx assumes (S9 and S16, `docs/safety.md`).
//!
//! NumPy keeps it in a capsule for extension modules, which check no more than its version. These entries have had the
//! same places since NumPy 1.7.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};

use crate::cpython::head;
use crate::cpython::modules::loaded;
use crate::cpython::once::{Once, intern};

/// NumPy's array class, and the functions of `__multiarray_api.h` that dlx uses.
pub(super) struct Api {
    pub(super) ndarray: Py<PyType>,
    pub(super) descr_from_type: DescrFromType,
    pub(super) new_from_descr: NewFromDescr,
    pub(super) set_base_object: SetBaseObject,
}

/// NumPy, once an array class was seen whose layout is known.
pub(super) static NUMPY: Once<Api> = Once::new();

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
pub(super) type SetBaseObject =
    unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> c_int;

/// Whether NumPy of a known version has `ndarray` as its array class; then [`NUMPY`] is set.
#[inline(never)]
pub(super) fn is_known(ndarray: &Bound<'_, PyType>) -> bool {
    let py = ndarray.py();
    // The structs of arrays and dtypes begin with a head of a known size.
    if let Ok(Some(api)) = find(ndarray)
        && !head::IS_OPAQUE
    {
        NUMPY.get_or_init(py, || api);
    }
    NUMPY.get(py).is_some()
}

/// The functions in the capsule of the module of `ndarray`.
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
        if let Some(api) = functions(table, ndarray) {
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
        ndarray: ndarray.clone().unbind(),
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
