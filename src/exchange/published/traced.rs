//! The functions of a table while a trace is on. They call those that they replace, then note what was handed over.
//!
//! They call through a pointer: a second caller that the compiler knows would change how it compiles the first.

use std::ffi::{CStr, c_int, c_void};
use std::hint::black_box;
use std::mem::transmute_copy;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{
    ExchangeType, Published, managed_tensor_allocator, managed_tensor_from_py_object_no_sync,
    managed_tensor_to_py_object_no_sync,
};
use crate::abi::*;
use crate::tensor::trace::{exported, imported};

const WAY: &CStr = c"table";

/// The functions of a table that hand memory over. A view that a table lends is no longer valid once it is used, so
/// there is nothing to note.
pub(crate) struct Functions {
    allocator: Option<DLPackManagedTensorAllocator>,
    pub(crate) from_py: Option<DLPackManagedTensorFromPyObjectNoSync>,
    to_py: Option<DLPackManagedTensorToPyObjectNoSync>,
}

/// The functions of the table of `T` while a trace is on.
pub(crate) const fn traced<T: ExchangeType>() -> Functions {
    Functions {
        allocator: Some(allocate::<T>),
        from_py: Some(export::<T>),
        to_py: Some(import::<T>),
    }
}

impl Published {
    /// The functions of a table that no trace changes.
    pub(crate) fn functions(&self) -> Functions {
        // SAFETY: nothing writes to this table, as the caller says.
        let api = unsafe { &*self.0.get() };
        Functions {
            allocator: api.managed_tensor_allocator,
            from_py: api.managed_tensor_from_py_object_no_sync,
            to_py: api.managed_tensor_to_py_object_no_sync,
        }
    }

    /// Puts `functions` into the table, one after the other; each works beside the others' twins.
    pub(crate) fn exchange(&self, functions: &Functions) {
        let api = self.0.get();
        // SAFETY: a field of the table, which is static (S27, traces).
        let place = unsafe { &raw mut (*api).managed_tensor_allocator };
        // SAFETY: as above.
        unsafe { store(place, functions.allocator) };
        // SAFETY: as above.
        let place = unsafe { &raw mut (*api).managed_tensor_from_py_object_no_sync };
        // SAFETY: as above.
        unsafe { store(place, functions.from_py) };
        // SAFETY: as above.
        let place = unsafe { &raw mut (*api).managed_tensor_to_py_object_no_sync };
        // SAFETY: as above.
        unsafe { store(place, functions.to_py) };
    }
}

/// Stores a function pointer as a whole.
///
/// # Safety
///
/// `F` is a function pointer, and `place` is valid and otherwise accessed as a whole.
unsafe fn store<F: Copy>(place: *mut Option<F>, function: Option<F>) {
    const { assert!(size_of::<Option<F>>() == size_of::<*mut c_void>()) };
    // SAFETY: an optional function pointer has the size of a pointer, and NULL for none.
    let function = unsafe { transmute_copy::<Option<F>, *mut c_void>(&function) };
    // SAFETY: the caller's promise.
    unsafe { AtomicPtr::from_ptr(place.cast()) }.store(function, Ordering::Release);
}

unsafe extern "C" fn export<T: ExchangeType>(
    py_object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    let plain: DLPackManagedTensorFromPyObjectNoSync = managed_tensor_from_py_object_no_sync::<T>;
    // SAFETY: the caller of the table obeys `dlpack.h` (S2).
    let code = unsafe { black_box(plain)(py_object, out) };
    // SAFETY: as above.
    unsafe { note_export(code, py_object, out, WAY) };
    code
}

unsafe extern "C" fn import<T: ExchangeType>(
    tensor: *mut DLManagedTensorVersioned,
    out_py_object: *mut *mut c_void,
) -> c_int {
    let plain: DLPackManagedTensorToPyObjectNoSync = managed_tensor_to_py_object_no_sync::<T>;
    // SAFETY: the caller of the table obeys `dlpack.h` (S2).
    let code = unsafe { black_box(plain)(tensor, out_py_object) };
    if code == 0 {
        // SAFETY: it succeeded, so there is a new object.
        let made = unsafe { out_py_object.read() };
        // SAFETY: the thread is attached (R146).
        unsafe { imported(made.cast(), null_mut(), WAY) };
    }
    code
}

unsafe extern "C" fn allocate<T: ExchangeType>(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    let plain: DLPackManagedTensorAllocator = managed_tensor_allocator::<T>;
    // SAFETY: the caller of the table obeys `dlpack.h` (S2).
    let code = unsafe { black_box(plain)(prototype, out, error_ctx, set_error) };
    // SAFETY: as above.
    unsafe { note_export(code, null_mut(), out, c"allocator") };
    code
}

/// Notes what a function of a table has made, if it succeeded.
///
/// # Safety
///
/// `out` is the place of a result that a function of a table has written, if it returned 0.
pub(crate) unsafe fn note_export(
    code: c_int,
    py_object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
    way: &'static CStr,
) {
    if code != 0 {
        return;
    }
    // SAFETY: the caller's promise.
    if let Some(made) = NonNull::new(unsafe { out.read() }) {
        // SAFETY: the function has just made it.
        unsafe { exported(made, py_object.cast(), way) };
    }
}
