//! A case that Python cannot build: functions that all panic, behind a table that must not (R144).

#![allow(clippy::panic, clippy::expect_used)]

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use pyo3::ffi;
use pyo3::panic::PanicException;

use super::*;
use crate::tensor::checked::Prototype;
use crate::types::device::CPU;
use crate::types::dtype;

struct Panicky;

impl Exchange for Panicky {
    fn export(
        &'static self,
        _: Borrowed<'_, '_, PyAny>,
    ) -> PyResult<Managed<DLManagedTensorVersioned>> {
        panic!("export")
    }

    fn borrow(&'static self, _: Borrowed<'_, '_, PyAny>) -> PyResult<DLTensor> {
        panic!("borrow")
    }

    fn import<'py>(&self, _: Python<'py>, _: Snapshot) -> PyResult<Bound<'py, PyAny>> {
        panic!("import")
    }

    fn allocate(&self, _: Prototype<'_>) -> Result<Managed<DLManagedTensorVersioned>, Error> {
        panic!("allocate")
    }

    fn current_work_stream(&self, _: Python<'_>, _: DLDevice) -> PyResult<i64> {
        panic!("current_work_stream")
    }

    fn namer(&'static self, _: DLDevice) -> Namer {
        Namer::Nobody
    }
}

impl ExchangeType for Panicky {
    type Exchange = Self;

    fn exchange() -> Option<&'static Self> {
        Some(&Self)
    }
}

const TABLE: DLPackExchangeAPI = table::<Panicky>().0;

const SCALAR: DLTensor = DLTensor {
    data: NonNull::<c_void>::dangling().as_ptr(),
    device: CPU,
    ndim: 0,
    dtype: dtype::scalar(kDLFloat, 32),
    shape: null_mut(),
    strides: null_mut(),
    byte_offset: 0,
};

/// Calls `function` attached and checks that it fails with a `PanicException` with this message.
fn panics(message: &str, function: impl FnOnce(*mut c_void) -> c_int) {
    Python::attach(|py| {
        let code = function(py.None().as_ptr().cast());
        // `PyErr::take` would resume the panic.
        let (mut kind, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
        #[allow(deprecated)]
        // SAFETY: attached, and the three out places are ours.
        unsafe {
            ffi::PyErr_Fetch(&mut kind, &mut value, &mut traceback)
        };
        assert_eq!(code, -1);
        // SAFETY: an owned reference, or NULL, fetched above.
        let kind = unsafe { Bound::from_owned_ptr_or_opt(py, kind) }.expect("an exception");
        // SAFETY: as above.
        let value = unsafe { Bound::from_owned_ptr_or_opt(py, value) }.expect("a value");
        assert!(kind.is(py.get_type::<PanicException>()));
        assert!(value.to_string().contains(message), "{value}");
    });
}

#[test]
fn a_panic_in_managed_tensor_from_py_object_no_sync_is_an_exception() {
    let function = TABLE.managed_tensor_from_py_object_no_sync.expect("set");
    let mut out = null_mut();
    // SAFETY: attached, with a live object and a place for the result.
    panics("export", |object| unsafe { function(object, &mut out) });
    assert!(out.is_null());
}

#[test]
fn a_panic_in_dltensor_from_py_object_no_sync_is_an_exception() {
    let function = TABLE.dltensor_from_py_object_no_sync.expect("set");
    let mut out = SCALAR;
    // SAFETY: attached, with a live object and a place for the result.
    panics("borrow", |object| unsafe { function(object, &mut out) });
}

#[test]
fn a_panic_in_managed_tensor_to_py_object_no_sync_is_an_exception() {
    let function = TABLE.managed_tensor_to_py_object_no_sync.expect("set");
    let owner = Arc::new(());
    let tensor: Managed<DLManagedTensorVersioned> =
        crate::tensor::managed::export(SCALAR, &[], &[], 0, owner.clone()).expect("memory");
    let tensor = tensor.into_raw();
    let mut out = null_mut();
    // SAFETY: attached, with a tensor of our own and a place for the result.
    panics("import", |_| unsafe { function(tensor.as_ptr(), &mut out) });
    assert!(out.is_null());
    assert_eq!(
        Arc::strong_count(&owner),
        2,
        "the tensor is still the caller's"
    );
    // SAFETY: we still own the tensor, as just checked.
    drop(unsafe { Managed::from_raw(tensor) });
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn a_panic_in_current_work_stream_is_an_exception() {
    let function = TABLE.current_work_stream.expect("set");
    let mut out = null_mut();
    // SAFETY: attached, with a place for the result.
    panics("current_work_stream", |_| unsafe {
        function(kDLCPU, 0, &mut out)
    });
}

#[test]
fn a_panic_in_managed_tensor_allocator_goes_to_set_error() {
    unsafe extern "C" fn set_error(context: *mut c_void, kind: *const c_char, text: *const c_char) {
        // SAFETY: the context is the vector below.
        let calls = unsafe { &mut *context.cast::<Vec<(String, String)>>() };
        // SAFETY: the allocator passes C strings.
        let [kind, text] = [kind, text].map(|text| unsafe { CStr::from_ptr(text) });
        calls.push((
            kind.to_string_lossy().into_owned(),
            text.to_string_lossy().into_owned(),
        ));
    }
    let function = TABLE.managed_tensor_allocator.expect("set");
    let mut calls: Vec<(String, String)> = Vec::new();
    let (mut prototype, mut out) = (SCALAR, null_mut());
    let context = (&raw mut calls).cast();
    // SAFETY: a prototype, a place for the result, and a callback with its context.
    let code = unsafe { function(&mut prototype, &mut out, context, Some(set_error)) };
    assert_eq!(code, -1);
    assert!(out.is_null());
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].0, "RuntimeError");
    assert!(calls[0].1.contains("allocate"), "{}", calls[0].1);
}
