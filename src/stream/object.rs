//! The Python class `dlx.Stream`; its methods are in `api/stream.rs`.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::stream::handle::Stream;

/// A stream of a device: work that is given to it runs in order.
///
/// Takes an int as DLPack writes it (1 legacy default, 2 the thread's default, or a handle), a `Stream`, or the
/// stream object of a library (``__cuda_stream__``), which is kept alive. ``device`` is that of the handle, as
/// the driver of CUDA tells; for 1 and 2 it is ``cuda:0`` unless it is given. Equal to a stream of the same handle
/// and device, and to the handle.
///
///     >>> dlx.Stream(1, device="cuda:1")
///     dlx.Stream(1, device='cuda:1')
#[pyclass(frozen, weakref, name = "Stream", module = "dlx")]
pub(crate) struct PyStream(pub(crate) Stream);

impl PyStream {
    /// The `repr`.
    pub(crate) fn repr(&self) -> String {
        let device = self.0.device();
        match self.0.handle() {
            handle @ 0..=2 => format!("dlx.Stream({handle}, device='{device}')"),
            handle => format!("dlx.Stream({handle:#x}, device='{device}')"),
        }
    }
}
