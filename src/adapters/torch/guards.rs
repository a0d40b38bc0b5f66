//! The checks of a tensor of `torch.Tensor` itself or `Parameter`: by the words of its struct, else by asking torch.

use std::env;
use std::ffi::c_void;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::keys::{Found, Layout};
use super::own::Own;
use super::questions::{ask, ask_python, get, is_byte};
use super::refusal::{nowhere, refused};
use crate::abi::{DLDataType, kDLBool, kDLComplex, kDLInt, kDLUInt};
use crate::cpython::once::{Once, intern};
use crate::tensor::checked::Meta;
use crate::tensor::snapshot::Snapshot;
use crate::types::{device, dtype, layout};

/// The checks, looked up once per process.
#[derive(Clone, Copy)]
pub(crate) struct Guards {
    layout: Option<Layout>,
    pub(crate) own: Own,
}

impl Guards {
    /// Those of tensors of `class`, which is `torch.Tensor`, and of Parameters.
    pub(super) fn find(torch: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<Self> {
        static FOUND: Once<Guards> = Once::new();
        let unknown = Self {
            layout: None,
            own: Own::unknown(),
        };
        let search = || {
            Ok::<_, PyErr>(Self {
                layout: Layout::find(torch, class)?,
                own: Own::find(torch, class)?.unwrap_or(unknown.own),
            })
        };
        let found = FOUND.get_or_try_init(torch.py(), || {
            if env::var_os("DLX_TORCH_FAST").is_some_and(|fast| fast == "0") {
                return Ok(unknown);
            }
            match search() {
                // It may fail under a torch mode that makes other tensors.
                Err(error) if error.is_instance_of::<PyException>(torch.py()) => Ok(unknown),
                found => found,
            }
        });
        found.copied()
    }

    /// What the struct of `tensor` shows.
    #[inline(always)]
    fn found(&self, tensor: &Bound<'_, PyAny>) -> Found {
        match self.layout {
            // SAFETY: guards are only for `torch.Tensor` and `Parameter` themselves, which share a layout (S13).
            Some(layout) => unsafe { layout.read(tensor) },
            None => Found::Unknown,
        }
    }

    /// Refuses an export whose elements differ from what the memory holds, or that records gradients.
    ///
    /// Only floating-point and complex tensors can record gradients, and only complex ones can be conjugated.
    #[inline(always)]
    pub(crate) fn check(
        &self,
        tensor: &Bound<'_, PyAny>,
        dtype: DLDataType,
        address: *mut c_void,
    ) -> PyResult<()> {
        match self.found(tensor) {
            Found::Plain if self.storage(tensor).0 != 0 && !self.may_be_narrow(tensor, dtype) => {
                Ok(())
            }
            found => self.ask(tensor, dtype, address, found),
        }
    }

    /// The slow path of [`Self::check`], which asks torch.
    #[inline(never)]
    fn ask(
        &self,
        tensor: &Bound<'_, PyAny>,
        dtype: DLDataType,
        address: *mut c_void,
        found: Found,
    ) -> PyResult<()> {
        self.check_address(tensor, address)?;
        let floating = !matches!(dtype.code, kDLInt | kDLUInt | kDLBool);
        if floating
            && (self.records(tensor)?
                || (self.may_have_tangent(tensor) && ask_python(tensor, "has_tangent")?))
        {
            return Err(refused(tensor, true));
        }
        if matches!(found, Found::Unknown) || self.may_be_narrow(tensor, dtype) {
            return ask_values(tensor, dtype);
        }
        Ok(())
    }

    /// Whether elements that are exported as integers of 8 bits may have fewer: torch exports its narrower ones likewise.
    #[inline(always)]
    fn may_be_narrow(&self, tensor: &Bound<'_, PyAny>, dtype: DLDataType) -> bool {
        // SAFETY: as in `found`.
        let number = |layout: Layout| unsafe { layout.number(tensor) };
        is_byte(dtype) && self.layout.is_none_or(|layout| number(layout) > 1)
    }

    /// Whether `tensor` records gradients.
    #[inline(always)]
    fn records(&self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Some(layout) = self.layout
            // SAFETY: as in `found`.
            && let Some(records) = unsafe { layout.records(tensor) }
        {
            return Ok(records);
        }
        get(tensor, intern!(tensor.py(), "requires_grad"))
    }

    /// Whether the storage of `tensor` contains the elements of `made`, read from it; another thread may have changed the
    /// shape meanwhile. `last` is the offset of the last element from the first, if known.
    #[inline(always)]
    pub(crate) fn holds(
        &self,
        tensor: &Bound<'_, PyAny>,
        made: &Snapshot,
        last: Option<u32>,
    ) -> bool {
        match last {
            Some(last) => self.holds_view(tensor, &made.meta(), last.into()),
            None => self.holds_any(tensor, made),
        }
    }

    /// As [`Self::holds`], for a view; of a tensor without memory the address is only an offset.
    #[inline(always)]
    pub(crate) fn holds_view(&self, tensor: &Bound<'_, PyAny>, meta: &Meta, last: u64) -> bool {
        let storage = self.storage(tensor);
        storage.0 != 0 && is_inside(storage, meta, last)
    }

    /// As [`Self::holds`], for any shape and strides; torch's are not negative. Tensors off the CPU are trusted.
    #[cold]
    #[inline(never)]
    fn holds_any(&self, tensor: &Bound<'_, PyAny>, made: &Snapshot) -> bool {
        let meta = made.meta();
        if meta.device != device::CPU || meta.data.is_null() || made.size() == 0 {
            return true;
        }
        let is_inside = |(low, high)| low == 0 && self.holds_view(tensor, &meta, high as u64);
        layout::span(made.shape(), made.strides()).is_ok_and(is_inside)
    }

    /// Refuses a tensor without memory: its address is only its offset, and not NULL if it is a view.
    pub(crate) fn check_address(
        &self,
        tensor: &Bound<'_, PyAny>,
        address: *mut c_void,
    ) -> PyResult<()> {
        if !address.is_null() && self.storage(tensor).0 == 0 {
            return Err(nowhere(tensor));
        }
        Ok(())
    }

    /// Start and size in bytes of the storage of `tensor`; 0 if torch does not say.
    #[inline(always)]
    pub(super) fn storage(&self, tensor: &Bound<'_, PyAny>) -> (u64, u64) {
        match self.layout {
            // SAFETY: as in `found`.
            Some(layout) => unsafe { layout.storage(tensor) },
            None => storage(tensor),
        }
    }

    /// Refuses a lazily negated or conjugated view, which a kernel would read wrongly. Recording gradients does not matter;
    /// returns whether `tensor` certainly records none, and has no tangent.
    #[inline(always)]
    pub(crate) fn check_values(
        &self,
        tensor: &Bound<'_, PyAny>,
        dtype: DLDataType,
    ) -> PyResult<bool> {
        let found = self.found(tensor);
        let is_known = !matches!(found, Found::Unknown) && !self.may_be_narrow(tensor, dtype);
        if !is_known {
            ask_values(tensor, dtype)?;
        }
        Ok(matches!(found, Found::Plain))
    }

    /// Whether `tensor` may have a tangent.
    #[inline(always)]
    pub(super) fn may_have_tangent(&self, tensor: &Bound<'_, PyAny>) -> bool {
        // SAFETY: as in `found`.
        let may = |layout: Layout| unsafe { layout.may_have_tangent(tensor) };
        self.layout.is_none_or(may)
    }
}

/// The slow path of [`Guards::check_values`], which asks torch.
#[inline(never)]
fn ask_values(tensor: &Bound<'_, PyAny>, dtype: DLDataType) -> PyResult<()> {
    let py = tensor.py();
    if ask(tensor, intern!(py, "is_neg"))?
        || (dtype.code == kDLComplex && ask(tensor, intern!(py, "is_conj"))?)
        || get(tensor, intern!(py, "is_quantized"))?
        || (is_byte(dtype) && !ask_python(tensor, "is_whole")?)
    {
        return Err(refused(tensor, false));
    }
    Ok(())
}

/// Whether a storage, by its start and size in bytes, contains the elements.
#[inline(always)]
fn is_inside((base, nbytes): (u64, u64), meta: &Meta, last: u64) -> bool {
    let item = u64::from(dtype::bits(meta.dtype) / 8);
    let bytes = (last + 1).saturating_mul(item);
    let start = (meta.data.addr() as u64).wrapping_sub(base);
    start < nbytes && bytes <= nbytes - start
}

/// The slow path of [`Guards::storage`], which asks torch.
#[cold]
#[inline(never)]
fn storage(tensor: &Bound<'_, PyAny>) -> (u64, u64) {
    let ask = || {
        let storage = tensor.call_method0("untyped_storage")?;
        let base = storage.call_method0("data_ptr")?.extract()?;
        let nbytes = storage.call_method0("nbytes")?.extract()?;
        Ok::<_, PyErr>((base, nbytes))
    };
    Python::attach(|_| ask().unwrap_or((0, 0)))
}
