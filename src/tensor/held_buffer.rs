//! A Python buffer that holds the memory of a tensor.

use std::mem::forget;
use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::cpython::depth::nested;
use crate::cpython::interpreter::{is_finalizing, release_unless_exiting};
use crate::tensor::managed::read_only;

/// A buffer exported to dlx. While it is held, the exporter keeps the memory in place: a `bytearray` refuses to be
/// resized, a `memoryview` to be released.
pub(crate) struct Buffer(*mut ffi::Py_buffer);

// SAFETY: CPython lets any attached thread release a buffer (S10, buffers).
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`; shared access only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Takes over a buffer.
    ///
    /// # Safety
    ///
    /// `view` came from a `Box`, and `PyObject_GetBuffer` filled it; exporters may point fields into it, so it has not
    /// moved.
    pub(crate) unsafe fn filled(view: *mut ffi::Py_buffer) -> Self {
        Self(view)
    }

    /// The exporter's description of the buffer.
    pub(crate) fn view(&self) -> &ffi::Py_buffer {
        // SAFETY: filled, and not written until `self` is dropped (S10).
        unsafe { &*self.0 }
    }

    /// The DLPack flag READ_ONLY if the buffer is.
    pub(crate) fn flags(&self) -> u64 {
        read_only(self.view().readonly != 0)
    }

    /// The exporter, for the garbage collector; NULL for a memoryview. In a cycle the collector would clear that while its
    /// memory is still exported, which CPython does not survive (S10), so such a cycle is kept.
    pub(crate) fn exporter(&self) -> *mut ffi::PyObject {
        let exporter = self.view().obj;
        // SAFETY: the buffer holds its exporter; only the type is looked at.
        if !exporter.is_null() && unsafe { ffi::PyMemoryView_Check(exporter) } != 0 {
            return null_mut();
        }
        exporter
    }

    /// Drops it on a thread that is attached.
    pub(crate) fn drop_attached(self, py: Python<'_>) {
        if is_finalizing() {
            forget(self);
        } else {
            nested(self, |this| this.release(py));
        }
    }

    /// Releases the buffer; the caller does not use it again.
    fn release(&mut self, _py: Python<'_>) {
        // SAFETY: attached; it is filled, and this is the only release (S10).
        unsafe { ffi::PyBuffer_Release(self.0) };
        // SAFETY: a box, as `filled` requires; after the release the exporter does not use it.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        nested(Self(self.0), |this| {
            release_unless_exiting(|py| this.release(py));
        });
    }
}
