//! dlx: zero-copy tensor exchange between Python array libraries, through DLPack 1.3.
//!
//! `docs/design.md` explains ownership; `docs/safety.md` numbers the invariants that SAFETY comments cite.

pub mod abi;

/// What `tests/fuzz/run` runs; `cargo test` replays its corpus.
#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzz/targets/mod.rs"]
#[allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a target reports by a panic"
)]
pub mod fuzz;

mod adapters;
mod api;
mod classes;
mod convert;
mod copy;
mod cpython;
mod driver;
mod exchange;
mod import;
#[cfg(target_os = "linux")]
mod shared;
mod stream;
mod tensor;
mod types;

/// Releases memory that still waits for a stream; runs when the interpreter exits.
#[pyo3::pyfunction]
fn finalize(py: pyo3::Python<'_>) {
    stream::release::finish();
    cpython::interpreter::finalize(py);
}

#[pyo3::pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    use crate::api::entry::add;
    use crate::api::fast::FromDlpack;
    use crate::convert::{empty, function};
    use crate::tensor::object::Tensor;

    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::shared::{
        file::OpenFile,
        link::{LinkedFile, end_links},
        mapping::{MappedFile, covering},
    };
    #[pymodule_export]
    use crate::{
        adapters::torch::only_exports,
        api::borrow::Borrow,
        api::from_buffer::from_buffer,
        api::from_dlpack::{from_pointer, is_tensor},
        api::launched::launched_type,
        api::tree::map_tree,
        api::writing::{increment_version, written},
        classes::mixin::{
            allocate, current_work_stream, dlpack, dlpack_device, dlpack_device_aliases, exported,
            import_tensor, mixin, register,
        },
        classes::publish::{exchange_api, publish, unpublish},
        convert::bridge::{Kind, Types, bridged_type, placed},
        convert::target::array_type,
        stream::PyStream,
        stream::current::{CurrentStream, current_stream},
        stream::release::deferred,
        tensor::array_interface::array_interface,
        tensor::trace::trace_with,
        types::device::Device,
        types::dtype::DType,
        types::error::type_name,
    };

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        crate::cpython::interpreter::one_interpreter(py)?;
        let finalize = wrap_pyfunction!(super::finalize, module)?;
        py.import("atexit")?.call_method1("register", (finalize,))?;
        crate::cpython::once::make_those_of_pyo3(py)?;
        crate::cpython::fork::watch();
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        crate::cpython::unwind::park_ending_threads();
        let parsed = wrap_pyfunction!(crate::api::from_dlpack::from_dlpack, module)?;
        let tensor = Tensor::class(py)?;
        // R112 to R114: PyO3's base class gets no table, because the table makes objects of the derived class.
        let table = crate::exchange::publish(py, &crate::exchange::tensor_table::TABLE)?;
        tensor.setattr("__dlpack_c_exchange_api__", table)?;
        module.add("Tensor", tensor)?;
        add::<FromDlpack>(module, &parsed)?;
        crate::api::fast::dlpack::set(py)?;
        let convert = wrap_pyfunction!(function::py_convert, module)?;
        add::<function::Fast>(module, &convert)?;
        let parsed = wrap_pyfunction!(empty::empty, module)?;
        add::<empty::Fast>(module, &parsed)?;
        // Those of the process: `dlx` may be imported again.
        module.add("CudaError", crate::types::error::cuda_error_type(py)?)?;
        module.add("CopyRefused", crate::types::error::copy_refused_type(py)?)
    }
}
