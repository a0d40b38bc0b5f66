//! Tables of other libraries: finds them on types and calls them.

mod making;

use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicI64, Ordering};

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
use crate::tensor::managed::{Managed, ManagedVersioned};
use crate::tensor::snapshot::{Snapshot, Source};
use crate::types::error::{EXCEPTION_SET, Error, broken, failed, forgotten};
use crate::types::layout::MAX_NDIM;

/// A foreign table of major version 1 that can export.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    from_py: DLPackManagedTensorFromPyObjectNoSync,
    borrow: Option<DLPackDLTensorFromPyObjectNoSync>,
    to_py: Option<DLPackManagedTensorToPyObjectNoSync>,
    allocator: Option<DLPackManagedTensorAllocator>,
    /// The address of the table.
    pub(crate) address: usize,
    /// Answers which stream the library works on now.
    pub(crate) work_stream: Option<WorkStream>,
    /// The check that an object must pass before the table is trusted.
    guard: Option<Guard>,
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
        if Self::is_absent(class) {
            Ok(None)
        } else {
            Self::found_on(class, &names(class.py()))
        }
    }

    /// Whether `class` certainly has no table.
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

    /// An owned export of `object`, without synchronization.
    ///
    /// # Errors
    ///
    /// That of the guard, the table's own exception, or `BufferError` if it breaks R123.
    #[inline(always)]
    pub(crate) fn export(&self, object: &Bound<'_, PyAny>) -> PyResult<ManagedVersioned> {
        if let Some(guard) = self.guard {
            Python::attach(|_| guard(object, true))?;
        }
        self.export_unguarded(object)
    }

    /// As [`Self::export`], for a kernel, which records no gradients.
    pub(crate) fn export_to_kernel(&self, object: &Bound<'_, PyAny>) -> PyResult<ManagedVersioned> {
        if let Some(guard) = self.guard {
            Python::attach(|_| guard(object, false))?;
        }
        self.export_unguarded(object)
    }

    #[inline(always)]
    fn export_unguarded(&self, object: &Bound<'_, PyAny>) -> PyResult<ManagedVersioned> {
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

    /// A view of `object`, which owns its dimensions; `None` if the table lends none (R122). With `may_be_fast`,
    /// tensors of the common form are not checked further.
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
        let Some(tensor) = self.unchecked(object)? else {
            return Ok(None);
        };
        if may_be_fast && is_fast(&tensor, 0) {
            return Ok(Some(tensor));
        }
        check_exact(&tensor)?;
        Ok(Some(tensor))
    }

    /// As [`Self::borrow`], without checks.
    #[inline(always)]
    fn unchecked(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<DLTensor>> {
        let Some(borrow) = self.borrow else {
            return Ok(None);
        };
        let mut out = MaybeUninit::uninit();
        // SAFETY: the table was found on the type of `object`, the thread is attached, and `out` is ours.
        let code = unsafe { borrow(object.as_ptr().cast(), out.as_mut_ptr()) };
        if code != 0 {
            return Err(failed(&object.get_type(), BORROW));
        }
        // SAFETY: attached.
        if !unsafe { ffi::PyErr_Occurred() }.is_null() {
            return Err(broken(&object.get_type(), BORROW, EXCEPTION_SET));
        }
        // SAFETY: a table that succeeds has filled `out` (R123).
        Ok(Some(unsafe { out.assume_init() }))
    }
}

/// Drops the exception of a glimpse.
#[cold]
#[inline(never)]
fn unseen(error: PyErr) {
    // PyO3 may not count the attachment (S20).
    Python::attach(|py| forgotten(py, error));
}

impl Table {
    /// As [`Self::unchecked`]; `None` also if the table fails.
    #[inline(always)]
    fn glimpse(&self, object: &Bound<'_, PyAny>) -> Option<DLTensor> {
        match self.unchecked(object) {
            Ok(tensor) => tensor,
            Err(error) => {
                unseen(error);
                None
            }
        }
    }

    /// As [`Self::borrow`], without the dimensions, if the tensor has the common form and row-major elements: also the
    /// offset of the last element from the first. `None` for all others, and if the table fails.
    #[inline(always)]
    pub(crate) fn borrow_row_major(&self, object: &Bound<'_, PyAny>) -> Option<(Meta, u32)> {
        let tensor = self.glimpse(object)?;
        let ndim = usize::try_from(tensor.ndim).ok()?;
        if !is_fast(&tensor, 0) || ndim > MAX_NDIM || tensor.shape.is_null() {
            return None;
        }
        let read = |values: *mut i64, index: usize| {
            // SAFETY: the producer lends `ndim` extents and strides until it regains control (R129).
            let value = unsafe { values.add(index) };
            // SAFETY: as above; another thread may change it, so it is read once and atomically (S13, torch's layout).
            unsafe { AtomicI64::from_ptr(value) }.load(Ordering::Relaxed)
        };
        let mut size = 1_i64;
        for index in (0..ndim).rev() {
            let extent = read(tensor.shape, index);
            if extent != 1 && read(tensor.strides, index) != size {
                return None;
            }
            size = size.checked_mul(extent)?;
        }
        // No elements have no last one.
        let last = u32::try_from(size - 1).ok()?;
        Some((Meta::on_cpu(tensor.data, tensor.dtype, 0), last))
    }

    /// As [`Self::borrow`], with a copy of the dimensions, and a reference to `object` to keep the memory.
    pub(crate) fn lend(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
        let tensor = self.unchecked(object)?;
        tensor.map(|tensor| lent(object, &tensor)).transpose()
    }

    /// As [`Self::lend`], without checks if the tensor has the common form: then also the offset of its last element, if
    /// that is known (`Snapshot::import_fast`).
    #[inline(always)]
    pub(crate) fn lend_fast(
        &self,
        object: &Bound<'_, PyAny>,
    ) -> PyResult<Option<(Snapshot, Option<u32>)>> {
        let Some(tensor) = self.unchecked(object)? else {
            return Ok(None);
        };
        let source = || Source::Python(PythonOwner::new(object.clone().unbind()));
        // SAFETY: the producer lends the dimensions until it regains control (R129); they are copied before that.
        match unsafe { Snapshot::lent_fast(&tensor, source) } {
            None => lent(object, &tensor).map(|lent| Some((lent, None))),
            fast => Ok(fast),
        }
    }
}

/// Refuses a view that dlx would have to correct: nothing would own the correction.
fn check_exact(tensor: &DLTensor) -> PyResult<()> {
    // SAFETY: the producer lends the dimensions until it regains control (R129).
    if unsafe { is_exact(tensor, 0) }? {
        return Ok(());
    }
    Err(Error::refused(
        "the tensor has no strides, or a data pointer that dlx has to normalize, so it can be exported but not lent",
    )
    .into())
}

/// A view that `object` has just lent, with a copy of the dimensions.
#[cold]
#[inline(never)]
fn lent(object: &Bound<'_, PyAny>, tensor: &DLTensor) -> PyResult<Snapshot> {
    check_exact(tensor)?;
    // SAFETY: the producer lends the dimensions until it regains control (R129); they are copied before that.
    let (shape, strides) = unsafe { dimensions(tensor) }?;
    let owner = PythonOwner::new(object.clone().unbind());
    let checked = Checked::new(Meta::of(tensor, 0)?, shape, strides)?;
    Ok(checked.over(Source::Python(owner)))
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
