//! Managed tensors of either version in capsules.

use std::ffi::{CStr, c_void};
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use arbitrary::{Result, Unstructured};
use pyo3::ffi;
use pyo3::prelude::*;

use super::memory::{address, check_copy};
use super::numbers::{beside, device, dtype, number, numbers};
use super::{imported, with_python};
use crate::abi::*;

/// A managed tensor of either version, and all that it points to.
pub(super) struct Case {
    pub(super) tensor: DLTensor,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    version: (u32, u32),
    flags: u64,
    has_deleter: bool,
}

impl Case {
    pub(super) fn new(u: &mut Unstructured<'_>) -> Result<Self> {
        let mut shape = numbers(u)?;
        let mut strides = beside(u, &shape)?;
        let ndim = if u.ratio(1, 8)? {
            // One that the arrays do not have is not readable: only those that dlx must refuse unread.
            *u.choose(&[-1, i32::MIN, 65, 1000, i32::MAX])?
        } else {
            shape.len() as i32
        };
        let mut tensor = DLTensor {
            data: with_exposed_provenance_mut(address(u)?),
            device: device(u)?,
            ndim,
            dtype: dtype(u)?,
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut().map_or(null_mut(), Vec::as_mut_ptr),
            byte_offset: if u.ratio(1, 4)? { number(u)? as u64 } else { 0 },
        };
        if u.ratio(1, 12)? {
            tensor.shape = null_mut();
        }
        let version = if u.ratio(1, 8)? {
            u.arbitrary()?
        } else {
            (1, u.int_in_range(0..=4)?)
        };
        let flags = if u.ratio(1, 4)? {
            u.arbitrary()?
        } else {
            u.int_in_range(0..=7)?
        };
        let has_deleter = !u.ratio(1, 8)?;
        Ok(Self {
            tensor,
            shape,
            strides,
            version,
            flags,
            has_deleter,
        })
    }

    /// The struct of this version; `deleted` counts the calls of its deleter.
    pub(super) fn versioned(&self, deleted: &AtomicUsize) -> DLManagedTensorVersioned {
        DLManagedTensorVersioned {
            version: DLPackVersion {
                major: self.version.0,
                minor: self.version.1,
            },
            manager_ctx: std::ptr::from_ref(deleted).cast_mut().cast(),
            deleter: self.has_deleter.then_some(delete_versioned),
            flags: self.flags,
            dl_tensor: self.tensor,
        }
    }

    fn unversioned(&self, deleted: &AtomicUsize) -> DLManagedTensor {
        DLManagedTensor {
            dl_tensor: self.tensor,
            manager_ctx: std::ptr::from_ref(deleted).cast_mut().cast(),
            deleter: self.has_deleter.then_some(delete_unversioned),
        }
    }

    /// How often the deleter is to be called.
    pub(super) fn deletions(&self) -> usize {
        usize::from(self.has_deleter)
    }

    /// Checks what dlx made of the tensor.
    pub(super) fn check(&self, module: &Bound<'_, PyModule>, made: &Bound<'_, PyAny>) {
        assert_eq!(super::said::<Vec<i64>>(made, "shape"), self.shape);
        if let Some(strides) = &self.strides {
            assert_eq!(&super::said::<Vec<i64>>(made, "strides"), strides);
        }
        module
            .getattr("look")
            .expect("look")
            .call1((made,))
            .expect("only refusals");
        check_copy(module, made, self.tensor.dtype);
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: called with the struct of a case, which outlives all that is made of it.
    let context = unsafe { (*managed).manager_ctx };
    count(context);
}

unsafe extern "C" fn delete_unversioned(managed: *mut DLManagedTensor) {
    // SAFETY: as above.
    let context = unsafe { (*managed).manager_ctx };
    count(context);
}

fn count(context: *mut c_void) {
    // SAFETY: the counter of a case, which outlives all that is made of it.
    let deleted = unsafe { &*context.cast::<AtomicUsize>() };
    deleted.fetch_add(1, Ordering::SeqCst);
}

/// A capsule without a destructor.
pub(super) fn capsule<'py>(
    py: Python<'py>,
    pointer: *mut c_void,
    name: &'static CStr,
) -> Bound<'py, PyAny> {
    let pointer = NonNull::new(pointer).expect("a pointer");
    // SAFETY: attached; the name is static, and there is no destructor.
    let made = unsafe { ffi::PyCapsule_New(pointer.as_ptr(), name.as_ptr(), None) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr(py, made) }
}

pub(super) fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let versioned: bool = u.arbitrary()?;
    let by_method: bool = u.arbitrary()?;
    let case = Case::new(u)?;
    let deleted = AtomicUsize::new(0);
    let mut new = case.versioned(&deleted);
    let mut old = case.unversioned(&deleted);
    let (pointer, name, used) = if versioned {
        (
            (&raw mut new).cast::<c_void>(),
            c"dltensor_versioned",
            c"used_dltensor_versioned",
        )
    } else {
        ((&raw mut old).cast(), c"dltensor", c"used_dltensor")
    };
    with_python(|module| {
        let capsule = capsule(module.py(), pointer, name);
        let x = if by_method {
            let made =
                super::with_method(module, "__dlpack__", capsule.clone()).expect("an object");
            let device = (
                case.tensor.device.device_type.0,
                case.tensor.device.device_id,
            );
            let ask = module
                .getattr("answering")
                .expect("answering")
                .call1((device,))
                .expect("a function");
            made.setattr("__dlpack_device__", ask)
                .expect("an attribute");
            made
        } else {
            capsule.clone()
        };
        if let Some(made) = imported(module, &x) {
            case.check(module, &made);
        }
        // SAFETY: attached, with a capsule.
        let is_used = unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), used.as_ptr()) } != 0;
        let expected = if is_used { case.deletions() } else { 0 };
        assert_eq!(
            deleted.load(Ordering::SeqCst),
            expected,
            "calls of the deleter"
        );
    });
    Ok(())
}
