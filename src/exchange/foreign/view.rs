//! What a foreign table lends of an object: a `DLTensor` whose dimensions belong to the object, until its library regains
//! control (R129).

use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::prelude::*;

use crate::abi::DLTensor;
use crate::cpython::interpreter::PythonOwner;
use crate::tensor::checked::{Checked, Meta, dimensions, is_exact};
use crate::tensor::snapshot::{Snapshot, Source};
use crate::types::error::Error;

/// A view that a table has just lent; whoever has it runs no code of the library until it is read.
pub(crate) struct View<'a, 'py> {
    pub(super) object: &'a Bound<'py, PyAny>,
    /// What a table has filled for the object.
    pub(super) tensor: &'a DLTensor,
}

impl View<'_, '_> {
    /// The tensor itself, to be passed on. With `may_be_fast`, one of the usual form is not checked further.
    ///
    /// # Errors
    ///
    /// `BufferError` for what dlx would have to correct: nothing would own the correction.
    #[inline(always)]
    pub(crate) fn tensor(self, may_be_fast: bool) -> Result<DLTensor, Error> {
        if !(may_be_fast && Meta::usual(self.tensor, 0).is_some()) {
            self.check_exact()?;
        }
        Ok(*self.tensor)
    }

    /// The tensor without its dimensions, and the offset of its last element from the first, if it has the usual form and
    /// row-major elements; `None` for all others.
    #[inline(always)]
    pub(crate) fn row_major(&self) -> Option<(Meta, u32)> {
        let tensor = self.tensor;
        let meta = Meta::usual(tensor, 0)?;
        let read = |values: *mut i64, index: usize| {
            // SAFETY: the producer lends `ndim` extents and strides until it regains control (R129).
            let value = unsafe { values.add(index) };
            // SAFETY: as above; another thread may change it, so it is read once and atomically (S13, torch's layout).
            unsafe { AtomicI64::from_ptr(value) }.load(Ordering::Relaxed)
        };
        let mut size = 1_i64;
        for index in (0..tensor.ndim as usize).rev() {
            let extent = read(tensor.shape, index);
            if extent != 1 && read(tensor.strides, index) != size {
                return None;
            }
            size = size.checked_mul(extent)?;
        }
        // No elements have no last one.
        let last = u32::try_from(size - 1).ok()?;
        Some((meta, last))
    }

    /// A snapshot with a copy of the dimensions, and a reference to the object to keep the memory.
    #[cold]
    #[inline(never)]
    pub(crate) fn snapshot(&self) -> PyResult<Snapshot> {
        self.check_exact()?;
        // SAFETY: the producer lends the dimensions until it regains control (R129); they are copied before that.
        let (shape, strides) = unsafe { dimensions(self.tensor) }?;
        let checked = Checked::new(Meta::of(self.tensor, 0)?, shape, strides)?;
        Ok(checked.over(self.owner()))
    }

    /// As [`Self::snapshot`], without checks if the tensor has the usual form: then also the offset of its last element, if
    /// that is known (`Snapshot::import_fast`).
    #[inline(always)]
    pub(crate) fn fast_snapshot(&self) -> PyResult<(Snapshot, Option<u32>)> {
        // SAFETY: the producer lends the dimensions until it regains control (R129); they are copied before that.
        match unsafe { Snapshot::lent_fast(self.tensor, || self.owner()) } {
            Some(fast) => Ok(fast),
            None => Ok((self.snapshot()?, None)),
        }
    }

    fn owner(&self) -> Source {
        Source::Python(PythonOwner::new(self.object.clone().unbind()))
    }

    fn check_exact(&self) -> Result<(), Error> {
        // SAFETY: the producer lends the dimensions until it regains control (R129).
        if unsafe { is_exact(self.tensor, 0) }? {
            return Ok(());
        }
        Err(Error::refused(
            "the tensor has no strides, or a data pointer that dlx has to normalize, so it can be exported but not lent",
        ))
    }
}
