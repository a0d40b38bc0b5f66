//! What another library made of a tensor: its refusals, and whether its result shows the tensor that it was given. What
//! may be believed of the exports of a class is in `convert/importer.rs`.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyOverflowError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::abi::{DLDataType, DLPACK_FLAG_BITMASK_READ_ONLY, DLTensor};
use crate::adapters::jax;
use crate::convert::importer::Importer;
use crate::convert::target::Target;
use crate::copy::request::Request;
use crate::cpython::call::attribute;
use crate::cpython::once::intern;
use crate::import::ladder::from_dlpack;
use crate::tensor::bytes::are_apart;
use crate::tensor::snapshot::Snapshot;
use crate::types::dtype::DType;
use crate::types::error::{
    caused, copy_refused, copy_refused_type, first_line, is_urgent, or_false,
};

/// Address and dtype of the tensor that a library was given.
pub(super) struct Given {
    pub(super) address: usize,
    pub(super) dtype: DLDataType,
}

impl Given {
    pub(super) fn of(tensor: &DLTensor) -> Self {
        Self {
            address: tensor.data.addr(),
            dtype: tensor.dtype,
        }
    }

    /// The result, if the library made one of the right class.
    #[inline(always)]
    pub(super) fn accepted<'py>(
        &self,
        made: PyResult<Bound<'py, PyAny>>,
        target: &Target<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let made = made.map_err(|error| self.refused(target, error))?;
        target.check(&made)?;
        Ok(made)
    }

    /// Turns a library's refusal into a `BufferError` that names the target and the dtype.
    #[cold]
    pub(super) fn refused(&self, target: &Target<'_>, error: PyErr) -> PyErr {
        let py = target.class.py();
        if !is_refusal(py, &error) {
            return error;
        }
        let name = target.name();
        let dtype = self.dtype;
        let text = first_line(py, &error);
        let message = format!("{name} does not accept the {dtype} tensor: {text}");
        caused(py, PyBufferError::new_err(message), error)
    }

    /// Refuses a result with another dtype than the given one or the one `asked` for (JAX without x64 narrows 64-bit
    /// types, MLX has no float64).
    pub(super) fn check_dtype(
        &self,
        made: &Bound<'_, PyAny>,
        importer: &Importer,
        target: &Target<'_>,
    ) -> PyResult<()> {
        if importer.keeps {
            return Ok(());
        }
        let py = made.py();
        let found = match self.named(made, importer.namespace.bind(py)) {
            Err(error) if is_urgent(py, &error) => return Err(error),
            Ok(Some(found)) => Some(found),
            // It names none that dlx can read; its export has one.
            _ => seen(made)?.map(|snapshot| snapshot.meta().dtype),
        };
        let Some(found) = found.filter(|found| *found != self.dtype) else {
            return Ok(());
        };
        let hints = ["", ", or call jax.config.update('jax_enable_x64', True)"];
        let hint = hints[usize::from(jax::is_array(made)?)];
        let (name, given) = (target.name(), self.dtype);
        Err(PyBufferError::new_err(format!(
            "{name} would import {given} as {found}; cast it to {found} first if its numbers fit, or pass \
             dtype={{'{given}': '{found}'}} to dlx.convert{hint}"
        )))
    }

    /// The dtype that a result names: the given one if the library's own constant of that name is it, any other by what it
    /// prints.
    fn named(
        &self,
        made: &Bound<'_, PyAny>,
        namespace: &Bound<'_, PyAny>,
    ) -> PyResult<Option<DLDataType>> {
        let py = made.py();
        let Some(spec) = attribute(made, intern!(py, "dtype"))? else {
            return Ok(None);
        };
        let name = PyString::new(py, &self.dtype.to_string());
        let own = attribute(namespace, &name)?;
        if own.is_some_and(|own| spec.is(&own) || or_false(spec.eq(&own))) {
            return Ok(Some(self.dtype));
        }
        DType::of(&spec).map(Some)
    }

    /// Refuses a copy made by the library.
    pub(super) fn check_shared(
        &self,
        made: &Bound<'_, PyAny>,
        target: &Target<'_>,
    ) -> PyResult<()> {
        let py = made.py();
        let cause = match from_dlpack(made, &Request::NOTHING) {
            Ok(snapshot) if snapshot.meta().data.addr() == self.address => return Ok(()),
            Ok(_) => None,
            Err(error) if is_urgent(py, &error) => return Err(error),
            Err(error) => Some(error),
        };
        let name = target.name();
        let message = format!("copy=False, but {name} makes a copy of the tensor");
        Err(caused(py, copy_refused(py, message), cause))
    }
}

/// What the result exports, to look at it; `None` if it exports nothing.
fn seen(made: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    match from_dlpack(made, &Request::NOTHING) {
        Err(error) if !is_urgent(made.py(), &error) => Ok(None),
        found => found.map(Some),
    }
}

/// Whether the result reports itself read-only; not if it says nothing.
pub(super) fn is_readonly(made: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(seen(made)?.is_some_and(|result| result.has(DLPACK_FLAG_BITMASK_READ_ONLY)))
}

/// Whether nothing that is written to the result reaches `source`: it reports itself read-only, or the importer shows
/// that its memory is elsewhere.
pub(super) fn is_protected(
    made: &Bound<'_, PyAny>,
    source: &Snapshot,
    (importer, class): (&Importer, &Bound<'_, PyType>),
) -> PyResult<bool> {
    let Some(result) = seen(made)? else {
        return Ok(false);
    };
    Ok(result.has(DLPACK_FLAG_BITMASK_READ_ONLY)
        || importer.shows_memory(made, class)? && are_apart(&result, source)?)
}

/// Whether a library refuses a tensor by this exception.
pub(super) fn is_refusal(py: Python<'_>, error: &PyErr) -> bool {
    let refused = copy_refused_type(py).is_ok_and(|class| error.is_instance(py, class));
    !refused
        && (error.is_instance_of::<PyBufferError>(py)
            || error.is_instance_of::<PyOverflowError>(py)
            || error.is_instance_of::<PyRuntimeError>(py)
            || error.is_instance_of::<PyTypeError>(py)
            || error.is_instance_of::<PyValueError>(py))
}
