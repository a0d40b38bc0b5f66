//! Tables of other libraries: finds them on types and calls them.

mod making;
mod view;

use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString, PyType};

use self::view::View;
use crate::abi::*;
use crate::cpython::call::attribute;
use crate::cpython::lookup::lacks;
use crate::cpython::once::intern;
use crate::exchange::published::NAME;
use crate::stream::WorkStream;
use crate::tensor::managed::{Managed, ManagedVersioned};
use crate::types::error::{EXCEPTION_SET, broken, failed};

/// A foreign table of major version 1 that can export.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    from_py: DLPackManagedTensorFromPyObjectNoSync,
    borrow: Option<DLPackDLTensorFromPyObjectNoSync>,
    pub(crate) to_py: Option<DLPackManagedTensorToPyObjectNoSync>,
    pub(crate) allocator: Option<DLPackManagedTensorAllocator>,
    /// The address of the table.
    pub(crate) address: usize,
    /// Answers which stream the library works on now.
    pub(crate) work_stream: Option<WorkStream>,
    /// The check that an object must pass before the table is trusted.
    guard: Option<Guard>,
    /// Whether the table is of a DLPack whose flags dlx knows.
    has_known_flags: bool,
}

/// Refuses an object that its library's table would export wrongly; `true` if gradients matter.
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
    /// The table that a type publishes (R112), or `None` without one that dlx can read.
    ///
    /// Does not follow an integer in place of a capsule: any class attribute could be one.
    #[inline(always)]
    pub(crate) fn of_type(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        match Self::is_absent(class) {
            true => Ok(None),
            false => Self::found_on(class),
        }
    }

    /// Whether `class` certainly has no table.
    #[inline(always)]
    pub(crate) fn is_absent(class: &Bound<'_, PyType>) -> bool {
        lacks(class, &names(class.py()))
    }

    fn found_on(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        for name in names(class.py()) {
            if let Some(header) = header(class, name)? {
                // SAFETY: a capsule of this name points to a table that lives as long as the process (R114, S6), and
                // every table starts with a header.
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
    /// `header` starts a table that lives as long as the process, as does each `prev_api`.
    unsafe fn readable(mut header: NonNull<DLPackExchangeAPIHeader>) -> Option<Self> {
        // A longer chain than DLPack has versions is a loop.
        for _ in 0..64 {
            // SAFETY: the caller promises a live header.
            let DLPackExchangeAPIHeader { version, prev_api } = unsafe { header.as_ref() };
            if version.major == DLPACK_MAJOR_VERSION {
                // SAFETY: a header with major version 1 starts this struct.
                let api = unsafe { header.cast::<DLPackExchangeAPI>().as_ref() };
                return Some(Self {
                    from_py: api.managed_tensor_from_py_object_no_sync?,
                    address: header.addr().get(),
                    borrow: api.dltensor_from_py_object_no_sync,
                    to_py: api.managed_tensor_to_py_object_no_sync,
                    allocator: api.managed_tensor_allocator,
                    work_stream: api.current_work_stream.map(WorkStream::new),
                    guard: None,
                    has_known_flags: version.minor <= DLPACK_MINOR_VERSION,
                });
            }
            header = NonNull::new(*prev_api)?;
        }
        None
    }

    /// The same table, with `guard` called before each export.
    pub(crate) fn guarded(self, guard: Guard) -> Self {
        let guard = Some(guard);
        Self { guard, ..self }
    }

    /// Whether a view says all that matters to a reader of elements of whole bytes: no object has to be checked, and no flag
    /// of the table's DLPack changes what they are.
    #[inline(always)]
    pub(crate) fn tells_all_by_view(&self) -> bool {
        self.guard.is_none() && self.has_known_flags
    }

    /// An owned export of `object`, without synchronization; for a kernel gradients do not matter.
    ///
    /// # Errors
    ///
    /// That of the guard, the table's own exception, or `BufferError` if it breaks R123.
    #[inline(always)]
    pub(crate) fn export(
        &self,
        object: &Bound<'_, PyAny>,
        gradients_matter: bool,
    ) -> PyResult<ManagedVersioned> {
        if let Some(guard) = self.guard {
            Python::attach(|_| guard(object, gradients_matter))?;
        }
        let mut out = null_mut();
        // SAFETY: the table was found on the type of `object`, the thread is attached, and `out` is ours.
        let code = unsafe { (self.from_py)(object.as_ptr().cast(), &mut out) };
        // SAFETY: the table passes ownership of what it writes to `out` (S3, managed tensors).
        let managed = NonNull::new(out).map(|out| unsafe { Managed::from_raw(out) });
        match (code, managed) {
            // SAFETY: attached.
            (0, Some(managed)) if unsafe { ffi::PyErr_Occurred() }.is_null() => Ok(managed),
            (0, managed) => {
                let how = match managed {
                    Some(_) => EXCEPTION_SET,
                    None => "succeeded without a tensor",
                };
                Err(broken(&object.get_type(), FROM_PY, how))
            }
            // A failing table must not return a tensor; do not dereference what it wrote.
            (_, managed) => {
                std::mem::forget(managed);
                Err(failed(&object.get_type(), FROM_PY))
            }
        }
    }

    /// The view that the table lends of `object`, written into `room`; `None` if it lends none (R122).
    ///
    /// # Errors
    ///
    /// The table's own exception, or `BufferError` if it breaks R123.
    #[inline(always)]
    pub(crate) fn view<'a, 'py>(
        &self,
        object: &'a Bound<'py, PyAny>,
        room: &'a mut MaybeUninit<DLTensor>,
    ) -> PyResult<Option<View<'a, 'py>>> {
        let Some(borrow) = self.borrow else {
            return Ok(None);
        };
        // SAFETY: the table was found on the type of `object`, the thread is attached, and `room` is a `DLTensor`'s.
        let code = unsafe { borrow(object.as_ptr().cast(), room.as_mut_ptr()) };
        if code != 0 {
            return Err(failed(&object.get_type(), BORROW));
        }
        // SAFETY: attached.
        if !unsafe { ffi::PyErr_Occurred() }.is_null() {
            return Err(broken(&object.get_type(), BORROW, EXCEPTION_SET));
        }
        // SAFETY: a table that succeeds has filled it (R123).
        let tensor = unsafe { room.assume_init_ref() };
        Ok(Some(View::new(object, tensor)))
    }
}

/// The table in attribute `name` of `class`, if that is a capsule of a table.
pub(crate) fn header(
    class: &Bound<'_, PyType>,
    name: &Bound<'_, PyString>,
) -> PyResult<Option<NonNull<DLPackExchangeAPIHeader>>> {
    match attribute(class, name)? {
        Some(attribute) => header_in(&attribute),
        None => Ok(None),
    }
}

/// The table that `attribute` holds, if it is a capsule of one.
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
