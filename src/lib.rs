//! dlx: zero-copy tensor exchange between Python array libraries, through DLPack 1.3.
//!
//! `docs/design.md` tells who owns what, `docs/safety.md` numbers the invariants that SAFETY comments cite.

pub mod abi;

mod adapters;
mod aliases;
mod array_interface;
mod borrow;
mod boundary;
mod bridge;
mod buffer;
mod cache;
mod capsule;
mod checked;
mod convert;
mod copy;
mod depth;
mod device;
mod device_memory;
mod driver;
mod dtype;
mod empty;
mod entry;
mod error;
mod exchange;
mod fork;
mod functions;
mod give_back;
mod interpreter;
mod layout;
mod lend;
mod lookup;
mod managed;
mod memory;
mod method;
mod mixin;
mod no_sync;
mod order;
mod protocol;
mod publish;
mod release;
mod relocate;
mod request;
mod resolve;
mod shared;
mod slot;
mod snapshot;
mod stream;
mod strided;
mod tensor;
mod transfer;
mod work;
mod writing;

#[pyo3::pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::array_interface::array_interface;
    #[pymodule_export]
    use crate::borrow::Borrow;
    #[pymodule_export]
    use crate::bridge::{Bridged, Kind, Types, placed};
    #[pymodule_export]
    use crate::convert::convert;
    #[pymodule_export]
    use crate::device::Device;
    #[pymodule_export]
    use crate::dtype::DType;
    #[pymodule_export]
    use crate::empty::empty;
    #[pymodule_export]
    use crate::functions::{from_pointer, is_tensor};
    #[pymodule_export]
    use crate::mixin::{
        allocate, current_work_stream, dlpack, dlpack_device, dlpack_device_aliases, exported,
        import_tensor, mixin, register,
    };
    #[pymodule_export]
    use crate::publish::{exchange_api, publish, unpublish};
    #[pymodule_export]
    use crate::stream::current::{CurrentStream, current_stream};
    #[pymodule_export]
    use crate::stream::object::PyStream;
    #[pymodule_export]
    use crate::writing::written;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        crate::interpreter::one_interpreter(py)?;
        crate::fork::watch();
        module.setattr(
            "__getattr__",
            wrap_pyfunction!(crate::device::__getattr__, module)?,
        )?;
        let parsed = wrap_pyfunction!(crate::functions::from_dlpack, module)?;
        module.add("Tensor", crate::tensor::Tensor::class(py)?)?;
        module.add("from_dlpack", crate::entry::from_dlpack(&parsed, module)?)?;
        crate::entry::set_dlpack(py)?;
        module.add("CudaError", crate::error::cuda_error_type(py)?)?;
        module.add("CopyRefused", crate::error::copy_refused_type(py)?)
    }
}
