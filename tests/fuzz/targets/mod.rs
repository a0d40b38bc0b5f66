//! Fuzz targets: each makes a case out of bytes, gives it to dlx, and panics if the answer is wrong.
//!
//! `tests/fuzz` runs them under libFuzzer and AddressSanitizer; `cargo test` replays their corpus.
//!
//! A producer may describe anything, but the memory that it claims is there: elements are read only where all of them
//! lie in the arena of [`memory`].

use std::ffi::CStr;
use std::fmt::Debug;

use arbitrary::{Result, Unstructured};
use pyo3::exceptions::PySystemError;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::cpython::once::Once;

mod arrow;
mod buffer;
mod interface;
mod layout;
mod managed;
mod memory;
mod names;
mod numbers;
mod table;

/// A target: `Err` if the bytes do not suffice for a case.
pub type Target = fn(&mut Unstructured<'_>) -> Result<()>;

/// All targets by name, which is that of their corpus.
pub const TARGETS: [(&str, Target); 7] = [
    ("arrow", arrow::run),
    ("buffer", buffer::run),
    ("interface", interface::run),
    ("layout", layout::run),
    ("managed", managed::run),
    ("names", names::run),
    ("table", table::run),
];

/// Runs a target once.
pub fn run(target: Target, data: &[u8]) {
    // Bytes that do not suffice are no case.
    let _ = target(&mut Unstructured::new(data));
}

/// The Python functions that the targets use, beside dlx itself.
const CODE: &CStr = c"
import types

def answering(answer):
    return lambda **keywords: answer

def holder(**attributes):
    return types.SimpleNamespace(**attributes)

def typed(name, value):
    return type('Typed', (), {name: value})()

def look(tensor):
    for ask in LOOKS:
        try:
            ask(tensor)
        except (BufferError, ValueError, TypeError, OverflowError, IndexError, MemoryError, AttributeError):
            pass

# Addresses are made up, so no element is read.
LOOKS = [
    lambda t: repr(t[:0]), memoryview, len,
    *[lambda t, name=name: getattr(t, name) for name in (
        'shape', 'strides', 'dtype', 'device', 'nbytes', 'span', 'readonly', 'is_copied', 'is_contiguous', 'data_ptr',
        'byte_offset', '__array_interface__', '__cuda_array_interface__',
    )],
    lambda t: t.raw(), lambda t: t[0], lambda t: t[..., -1], lambda t: t[::-2], lambda t: t[None, 1:],
    lambda t: t.__dlpack__(), lambda t: t.__dlpack__(max_version=(1, 3)), lambda t: t.__dlpack_device__(),
]
";

/// Runs `body` with the module of [`CODE`], whose `dlx` is the one that is linked here.
fn with_python<R>(body: impl FnOnce(&Bound<'_, PyModule>) -> R) -> R {
    static MODULE: Once<Py<PyModule>> = Once::new();
    Python::attach(|py| {
        let module = MODULE.get_or_try_init(py, || {
            let sys = py.import("sys")?;
            let modules = sys.getattr("modules")?.cast_into::<PyDict>()?;
            // As text: Python passes over entries of other types.
            let python = concat!(env!("CARGO_MANIFEST_DIR"), "/python");
            sys.getattr("path")?
                .cast_into::<PyList>()?
                .insert(0, python)?;
            // `_core` imports a module of the package, which imports `_core`.
            let package = PyModule::new(py, "dlx")?;
            package.add("__path__", [format!("{python}/dlx")])?;
            modules.set_item("dlx", package)?;
            let core = pyo3::wrap_pymodule!(crate::_core)(py);
            modules.del_item("dlx")?;
            modules.set_item("dlx._core", core)?;
            let module = PyModule::from_code(py, CODE, c"targets.py", c"targets")?;
            module.add("dlx", py.import("dlx")?)?;
            Ok::<_, PyErr>(module.unbind())
        });
        body(module.expect("dlx can be imported").bind(py))
    })
}

/// What `dlx.from_dlpack` makes of `x`; `None` if it refuses. A panic of dlx's is a finding.
fn imported<'py>(
    module: &Bound<'py, PyModule>,
    x: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    accepted(call(module, "from_dlpack", x, false))
}

/// Calls a function of dlx's.
fn call<'py>(
    module: &Bound<'py, PyModule>,
    name: &str,
    x: &Bound<'py, PyAny>,
    copy: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let keywords = PyDict::new(module.py());
    if copy {
        keywords.set_item("copy", true)?;
    }
    module
        .getattr("dlx")?
        .getattr(name)?
        .call((x,), Some(&keywords))
}

/// The result; `None` for a refusal. A panic, or an error of the interpreter's, is a finding.
fn accepted<T>(result: PyResult<T>) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    Python::attach(|py| {
        let is_finding =
            error.is_instance_of::<PanicException>(py) || error.is_instance_of::<PySystemError>(py);
        assert!(!is_finding, "{error}");
    });
    None
}

/// An attribute of a tensor.
fn said<'py, T>(tensor: &Bound<'py, PyAny>, name: &str) -> T
where
    T: for<'a> FromPyObject<'a, 'py>,
    for<'a> <T as FromPyObject<'a, 'py>>::Error: Debug,
{
    tensor.getattr(name).expect(name).extract().expect(name)
}

/// An object with one attribute, a method that returns `answer`.
fn with_method<'py>(
    module: &Bound<'py, PyModule>,
    name: &str,
    answer: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let method = module.getattr("answering")?.call1((answer,))?;
    with_attribute(module, name, method)
}

/// An object with one attribute.
fn with_attribute<'py>(
    module: &Bound<'py, PyModule>,
    name: &str,
    value: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let attributes = PyDict::new(module.py());
    attributes.set_item(name, value)?;
    module
        .getattr("holder")?
        .call(PyTuple::empty(module.py()), Some(&attributes))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_corpus_finds_nothing() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
        for (name, target) in TARGETS {
            let files = corpus.join(name).read_dir().expect(name);
            let mut count = 0;
            for file in files {
                let path = file.expect(name).path();
                println!("{}", path.display());
                run(target, &std::fs::read(path).expect(name));
                count += 1;
            }
            assert!(count > 0, "{name} has no corpus");
        }
    }
}
