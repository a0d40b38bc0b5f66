//! Exchange tables, whose functions may be missing or fail, behind others of any version.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use arbitrary::{Result, Unstructured};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use super::managed::{Case, capsule};
use super::{accepted, call, imported, with_python};
use crate::abi::*;

/// What the functions of the table answer.
static TENSOR: AtomicPtr<DLManagedTensorVersioned> = AtomicPtr::new(null_mut());
static ANSWER: AtomicUsize = AtomicUsize::new(0);
static HANDED_OUT: AtomicUsize = AtomicUsize::new(0);

/// 0 with a tensor, or -1 with or without an exception, or 0 with NULL.
fn answer() -> c_int {
    // SAFETY: dlx calls these functions attached.
    let py = unsafe { Python::assume_attached() };
    match ANSWER.load(Ordering::SeqCst) {
        0..=5 => return 0,
        6 => PyBufferError::new_err("fuzzed").restore(py),
        7 => PyValueError::new_err("fuzzed").restore(py),
        _ => {}
    }
    -1
}

unsafe extern "C" fn from_py(_: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int {
    let answer = answer();
    let is_null = ANSWER.load(Ordering::SeqCst) == 5;
    if answer == 0 && !is_null {
        HANDED_OUT.fetch_add(1, Ordering::SeqCst);
        // SAFETY: a place of dlx's.
        unsafe { out.write(TENSOR.load(Ordering::SeqCst)) };
    }
    answer
}

unsafe extern "C" fn borrow(_: *mut c_void, out: *mut DLTensor) -> c_int {
    let answer = answer();
    if answer == 0 {
        // SAFETY: the tensor of the case, which lives during the call of dlx.
        let tensor = unsafe { (*TENSOR.load(Ordering::SeqCst)).dl_tensor };
        // SAFETY: a place of dlx's.
        unsafe { out.write(tensor) };
    }
    answer
}

unsafe extern "C" fn stream(_: DLDeviceType, _: i32, out: *mut *mut c_void) -> c_int {
    let answer = answer();
    if answer == 0 {
        // SAFETY: a place of dlx's.
        unsafe { out.write(null_mut()) };
    }
    answer
}

pub(super) fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let case = Case::new(u)?;
    ANSWER.store(u.int_in_range(0..=8)?, Ordering::SeqCst);
    let mut tables = Vec::new();
    for _ in 0..u.int_in_range(1..=3)? {
        let major = if u.ratio(1, 4)? { u.arbitrary()? } else { 1 };
        tables.push(Box::new(DLPackExchangeAPI {
            header: DLPackExchangeAPIHeader {
                version: DLPackVersion {
                    major,
                    minor: u.arbitrary()?,
                },
                prev_api: null_mut(),
            },
            managed_tensor_allocator: None,
            managed_tensor_from_py_object_no_sync: (!u.ratio(1, 8)?).then_some(from_py),
            managed_tensor_to_py_object_no_sync: None,
            dltensor_from_py_object_no_sync: u.arbitrary::<bool>()?.then_some(borrow),
            current_work_stream: u.arbitrary::<bool>()?.then_some(stream),
        }));
    }
    let loops = u.ratio(1, 8)?;
    for at in 0..tables.len() {
        let next = if at + 1 < tables.len() {
            Some(at + 1)
        } else {
            loops.then_some(0)
        };
        let previous = next.map_or(null_mut(), |next| &raw mut tables[next].header);
        tables[at].header.prev_api = previous;
    }
    let name = *u.choose(&["__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"])?;
    let capsule_name = *u.choose(&[c"dlpack_exchange_api", c"dlpack_exchange_api", c"other"])?;
    let borrows: bool = u.arbitrary()?;
    let deleted = AtomicUsize::new(0);
    let mut managed = case.versioned(&deleted);
    TENSOR.store(&raw mut managed, Ordering::SeqCst);
    HANDED_OUT.store(0, Ordering::SeqCst);
    with_python(|module| {
        let first = NonNull::from(&mut *tables[0]).as_ptr().cast();
        let capsule = capsule(module.py(), first, capsule_name);
        let typed = module.getattr("typed").expect("typed");
        let x = typed.call1((name, capsule)).expect("an object");
        if borrows {
            let borrowed = accepted(call(module, "borrow", &x, false));
            if let Some(lent) = borrowed
                && let Some(tensors) = accepted(lent.call_method0("__enter__"))
            {
                if let Ok(tensor) = tensors.get_item(0) {
                    module
                        .getattr("look")
                        .expect("look")
                        .call1((tensor,))
                        .expect("only refusals");
                }
                let none = module.py().None();
                drop(tensors);
                accepted(lent.call_method1("__exit__", (&none, &none, &none)));
            }
        } else if let Some(made) = imported(module, &x) {
            case.check(module, &made);
        }
        drop(x);
        // The class is in a cycle with itself, and dlx may remember that it has a table.
        // SAFETY: attached.
        unsafe { ffi::PyGC_Collect() };
    });
    let expected = HANDED_OUT.load(Ordering::SeqCst) * case.deletions();
    assert_eq!(
        deleted.load(Ordering::SeqCst),
        expected,
        "calls of the deleter"
    );
    Ok(())
}
