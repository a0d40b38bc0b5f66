//! Tables of other libraries: found on a type, and called.

mod making;

use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString, PyType};

use crate::abi::*;
use crate::cpython::call::attribute;
use crate::cpython::interpreter::PythonOwner;
use crate::cpython::lookup::lacks;
use crate::exchange::published::NAME;
use crate::stream::WorkStream;
use crate::tensor::checked::{Checked, Meta, dimensions, is_exact, is_fast};
use crate::tensor::managed::Managed;
use crate::tensor::snapshot::{Snapshot, Source};
use crate::types::error::{Error, type_name};

/// A foreign table of major version 1 that can export.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    from_py: DLPackManagedTensorFromPyObjectNoSync,
    borrow: Option<DLPackDLTensorFromPyObjectNoSync>,
    to_py: Option<DLPackManagedTensorToPyObjectNoSync>,
    allocator: Option<DLPackManagedTensorAllocator>,
    /// Where the table is.
    pub(crate) address: usize,
    /// The stream that the library works on now.
    pub(crate) work_stream: Option<WorkStream>,
    /// What an object is asked before the table is believed.
    guard: Option<Guard>,
}

/// Refuses an object whose library's table would export it wrongly; `true` says that gradients matter.
pub(crate) type Guard = fn(&Bound<'_, PyAny>, bool) -> PyResult<()>;

/// The attributes of a type that may hold its table.
#[inline(always)]
fn names(py: Python<'_>) -> [&Bound<'_, PyString>; 2] {
    [
        intern!(py, "__dlpack_c_exchange_api__"),
        intern!(py, "__c_dlpack_exchange_api__"),
    ]
}

impl Table {
    /// The table that a type publishes (R112), or `None` if it publishes none that dlx can read.
    ///
    /// An integer in place of a capsule is not followed: any class attribute could be one.
    #[inline(always)]
    pub(crate) fn of_type(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        if Self::is_absent(class) {
            Ok(None)
        } else {
            Self::found_on(class, &names(class.py()))
        }
    }

    /// Whether it is certain that `class` has no table.
    #[inline(always)]
    pub(crate) fn is_absent(class: &Bound<'_, PyType>) -> bool {
        lacks(class, &names(class.py()))
    }

    fn found_on(
        class: &Bound<'_, PyType>,
        names: &[&Bound<'_, PyString>],
    ) -> PyResult<Option<Self>> {
        for name in names {
            if let Some(header) = header(class, name)? {
                // SAFETY: a capsule of this name points to a table that lives as long as the process
                // (R114, S6), and every table starts with a header.
                if let Some(table) = unsafe { Self::readable(header) } {
                    return Ok(Some(table));
                }
            }
        }
        Ok(None)
    }

    /// The first table of the chain that has major version 1 and exports (R119).
    ///
    /// # Safety
    ///
    /// `header` is the start of a table that lives as long as the process, and so is each `prev_api`.
    unsafe fn readable(mut header: NonNull<DLPackExchangeAPIHeader>) -> Option<Self> {
        // A chain of more versions than DLPack has had is a loop.
        for _ in 0..64 {
            // SAFETY: the caller promises a live header.
            let DLPackExchangeAPIHeader { version, prev_api } = unsafe { header.as_ref() };
            if version.major == DLPACK_MAJOR_VERSION {
                // SAFETY: major version 1 means that the header belongs to this struct.
                let api = unsafe { header.cast::<DLPackExchangeAPI>().as_ref() };
                return Some(Self {
                    from_py: api.managed_tensor_from_py_object_no_sync?,
                    address: header.addr().get(),
                    borrow: api.dltensor_from_py_object_no_sync,
                    to_py: api.managed_tensor_to_py_object_no_sync,
                    allocator: api.managed_tensor_allocator,
                    work_stream: api.current_work_stream.map(WorkStream::new),
                    guard: None,
                });
            }
            header = NonNull::new(*prev_api)?;
        }
        None
    }

    /// The same table, whose exports are for objects that pass `guard`.
    pub(crate) fn guarded(self, guard: Guard) -> Self {
        let guard = Some(guard);
        Self { guard, ..self }
    }

    /// An owned export of `object`, without synchronization.
    ///
    /// # Errors
    ///
    /// That of the guard, the table's own exception, or `BufferError` where it breaks the rule of R123.
    #[inline(always)]
    pub(crate) fn export(
        &self,
        object: &Bound<'_, PyAny>,
    ) -> PyResult<Managed<DLManagedTensorVersioned>> {
        if let Some(guard) = self.guard {
            Python::attach(|_| guard(object, true))?;
        }
        self.export_unguarded(object)
    }

    /// As [`Self::export`], for a kernel, which records no gradients.
    pub(crate) fn export_to_kernel(
        &self,
        object: &Bound<'_, PyAny>,
    ) -> PyResult<Managed<DLManagedTensorVersioned>> {
        if let Some(guard) = self.guard {
            Python::attach(|_| guard(object, false))?;
        }
        self.export_unguarded(object)
    }

    #[inline(always)]
    fn export_unguarded(
        &self,
        object: &Bound<'_, PyAny>,
    ) -> PyResult<Managed<DLManagedTensorVersioned>> {
        let py = object.py();
        let mut out = null_mut();
        // SAFETY: the table was found on the type of `object`, the thread is attached, `out` is ours.
        let code = unsafe { (self.from_py)(object.as_ptr().cast(), &mut out) };
        // SAFETY: what a table writes to `out` is given to the caller, and nobody else has it (S3).
        let managed = NonNull::new(out).map(|out| unsafe { Managed::from_raw(out) });
        match (code, managed) {
            // SAFETY: attached.
            (0, Some(managed)) if unsafe { ffi::PyErr_Occurred() }.is_null() => Ok(managed),
            (0, Some(_)) => Err(broken(
                &object.get_type(),
                FROM_PY,
                "succeeded with an exception set",
                PyErr::take(py),
            )),
            (0, None) => Err(broken(
                &object.get_type(),
                FROM_PY,
                "succeeded without a tensor",
                PyErr::take(py),
            )),
            // A table that failed must not have given a tensor; what it wrote is not followed.
            (_, managed) => {
                std::mem::forget(managed);
                Err(failed(&object.get_type(), FROM_PY))
            }
        }
    }

    /// A view of `object`, whose dimensions belong to it; `None` where the table lends none (R122). The tensors of a
    /// library that `may_be_fast` need no checking as long as they look as usual.
    ///
    /// # Errors
    ///
    /// As for [`Self::export`].
    #[inline(always)]
    pub(crate) fn borrow(
        &self,
        object: &Bound<'_, PyAny>,
        may_be_fast: bool,
    ) -> PyResult<Option<DLTensor>> {
        let Some(borrow) = self.borrow else {
            return Ok(None);
        };
        let mut out = MaybeUninit::uninit();
        // SAFETY: the table was found on the type of `object`, the thread is attached, `out` is ours.
        let code = unsafe { borrow(object.as_ptr().cast(), out.as_mut_ptr()) };
        if code != 0 {
            return Err(failed(&object.get_type(), BORROW));
        }
        // SAFETY: attached.
        if !unsafe { ffi::PyErr_Occurred() }.is_null() {
            let cause = PyErr::take(object.py());
            return Err(broken(
                &object.get_type(),
                BORROW,
                "succeeded with an exception set",
                cause,
            ));
        }
        // SAFETY: a table that succeeds has filled `out` (R123).
        let tensor = unsafe { out.assume_init() };
        if may_be_fast && is_fast(&tensor, 0) {
            return Ok(Some(tensor));
        }
        // SAFETY: the producer lends the dimensions until it gets control again (R129).
        if unsafe { is_exact(&tensor, 0) }? {
            return Ok(Some(tensor));
        }
        // A view cannot be corrected: nobody would own the correction.
        Err(Error::refused(
            "the tensor has no strides, or data that has to be normalized: it can be exported, but not lent",
        )
        .into())
    }
}

impl Table {
    /// As [`Self::borrow`], with dimensions of its own, and `object` itself to keep the memory.
    pub(crate) fn lend(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
        let Some(tensor) = self.borrow(object, false)? else {
            return Ok(None);
        };
        // SAFETY: the producer lends the dimensions until it gets control again (R129), and here they are copied.
        let (shape, strides) = unsafe { dimensions(&tensor) }?;
        let owner = PythonOwner::new(object.clone().unbind());
        let checked = Checked::new(Meta::of(&tensor, 0)?, shape, strides)?;
        Ok(Some(checked.over(Source::Python(owner))))
    }
}

/// The table that `class` has under `name`, if that is a capsule of a table.
pub(crate) fn header(
    class: &Bound<'_, PyType>,
    name: &Bound<'_, PyString>,
) -> PyResult<Option<NonNull<DLPackExchangeAPIHeader>>> {
    match attribute(class, name)? {
        Some(attribute) => header_in(&attribute),
        None => Ok(None),
    }
}

/// The table that an attribute is the capsule of, if it is one.
pub(crate) fn header_in(
    attribute: &Bound<'_, PyAny>,
) -> PyResult<Option<NonNull<DLPackExchangeAPIHeader>>> {
    match attribute.cast::<PyCapsule>() {
        Ok(capsule) if capsule.is_valid_checked(Some(NAME)) => {
            Ok(Some(capsule.pointer_checked(Some(NAME))?.cast()))
        }
        _ => Ok(None),
    }
}

const FROM_PY: &str = "managed_tensor_from_py_object_no_sync";
const BORROW: &str = "dltensor_from_py_object_no_sync";

/// The exception of a function that failed.
#[cold]
fn failed(class: &Bound<'_, PyType>, function: &str) -> PyErr {
    PyErr::take(class.py())
        .unwrap_or_else(|| broken(class, function, "failed without an exception", None))
}

/// The error for a table that does not keep to R123.
#[cold]
fn broken(class: &Bound<'_, PyType>, function: &str, how: &str, cause: Option<PyErr>) -> PyErr {
    let name = type_name(class);
    let error = PyBufferError::new_err(format!("{function} of {name} {how}"));
    error.set_cause(class.py(), cause);
    error
}
