//! The checks of a torch tensor before its memory is trusted.
//!
//! torch's exchange table exports lazily conjugated or negated views as if they were not, and tensors that record
//! gradients; its `__dlpack__` still exports negated ones (R125).

mod class;
mod keys;
mod questions;
mod refusal;

use std::env;
use std::ffi::c_void;
use std::thread;

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::abi::{DLDataType, kDLBool, kDLComplex, kDLInt, kDLUInt};
use crate::cpython::modules::loaded;
use crate::tensor::checked::Meta;
use crate::tensor::snapshot::Snapshot;
use crate::types::{device, dtype};
use class::{is_subtype, tensor_class};
use keys::{Found, Layout};
pub(crate) use questions::is_lazy_on_cpu;
use questions::{Getter, Predicate, ask, is_lazy};
pub(crate) use refusal::{explain, outside};
use refusal::{nowhere, refused};

/// How to read a torch type.
#[derive(Clone, Copy)]
pub(crate) enum TorchClass {
    /// Exactly `torch.Tensor` or `torch.nn.Parameter`: through the table, with these guards.
    Plain(Guards),
    /// Any other subclass, whose data may mean something else, or whose `__torch_function__` may veto the export:
    /// through `__dlpack__`, which calls it.
    Subclass,
}

/// Whether `x` is a torch tensor; does not import torch.
#[inline(always)]
pub(crate) fn is_tensor(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let tensor = tensor_class(x.py())?;
    Ok(tensor.is_some_and(|tensor| is_subtype(x.get_type_ptr(), tensor.as_type_ptr())))
}

/// How to read tensors of the type of `x`, if it is torch's; does not import torch.
#[inline(always)]
pub(crate) fn kind(x: &Bound<'_, PyAny>) -> PyResult<Option<TorchClass>> {
    let class = x.get_type_ptr();
    match tensor_class(x.py())? {
        Some(tensor) if is_subtype(class, tensor.as_type_ptr()) => of_tensor(x, tensor).map(Some),
        _ => Ok(None),
    }
}

fn of_tensor(x: &Bound<'_, PyAny>, tensor: &Bound<'_, PyType>) -> PyResult<TorchClass> {
    // `__dlpack__` reads every tensor.
    let Some(torch) = loaded(intern!(x.py(), "torch"))? else {
        return Ok(TorchClass::Subclass);
    };
    let (py, class) = (x.py(), x.get_type());
    let parameter = match torch.getattr_opt(intern!(py, "nn"))? {
        Some(nn) => nn.getattr_opt(intern!(py, "Parameter"))?,
        None => None,
    };
    if class.is(tensor) || parameter.is_some_and(|parameter| class.is(&parameter)) {
        return Ok(TorchClass::Plain(Guards::of(&torch, tensor, x)?));
    }
    Ok(TorchClass::Subclass)
}

/// The checks, looked up once per type.
#[derive(Clone, Copy)]
pub(crate) struct Guards {
    is_conj: Option<Predicate>,
    is_neg: Option<Predicate>,
    requires_grad: Option<Getter>,
    layout: Option<Layout>,
}

/// How often to reread a tensor that reaches outside its storage.
const TRIES: usize = 1000;

impl Guards {
    fn of(
        torch: &Bound<'_, PyAny>,
        class: &Bound<'_, PyType>,
        tensor: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let py = tensor.py();
        Ok(Self {
            is_conj: Predicate::of(tensor, intern!(py, "is_conj"))?,
            is_neg: Predicate::of(tensor, intern!(py, "is_neg"))?,
            requires_grad: Getter::of(tensor, intern!(py, "requires_grad"))?,
            layout: layout(torch, class)?,
        })
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
    fn check(
        &self,
        tensor: &Bound<'_, PyAny>,
        dtype: DLDataType,
        address: *mut c_void,
    ) -> PyResult<()> {
        match self.found(tensor) {
            Found::Plain if self.storage(tensor).0 != 0 => Ok(()),
            found => self.ask(tensor, dtype, address, matches!(found, Found::Unknown)),
        }
    }

    /// The slow path of [`Self::check`], which asks torch.
    #[inline(never)]
    fn ask(
        &self,
        tensor: &Bound<'_, PyAny>,
        dtype: DLDataType,
        address: *mut c_void,
        values: bool,
    ) -> PyResult<()> {
        if !address.is_null() && self.storage(tensor).0 == 0 {
            return Err(nowhere(tensor));
        }
        let floating = !matches!(dtype.code, kDLInt | kDLUInt | kDLBool);
        if floating && self.records(tensor)? {
            return Err(refused(tensor, true));
        }
        if values {
            self.ask_values(tensor, dtype)
        } else {
            Ok(())
        }
    }

    /// Whether `tensor` records gradients.
    fn records(&self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        match self.requires_grad {
            Some(getter) => getter.get(tensor),
            None => tensor
                .getattr(intern!(tensor.py(), "requires_grad"))?
                .is_truthy(),
        }
    }

    /// Whether the storage of `tensor`, which has memory, contains the elements, the first of which is at the address in
    /// `meta`. [`Self::check`] has refused tensors without memory, whose address is only an offset.
    #[inline(always)]
    fn holds(&self, tensor: &Bound<'_, PyAny>, meta: &Meta, last: u32) -> bool {
        let (base, nbytes) = self.storage(tensor);
        let bytes = (u64::from(last) + 1) * u64::from(dtype::bits(meta.dtype) / 8);
        let start = (meta.data.addr() as u64).wrapping_sub(base);
        start < nbytes && bytes <= nbytes - start
    }

    /// As [`Self::holds`], for any shape and strides.
    #[cold]
    #[inline(never)]
    fn holds_any(&self, tensor: &Bound<'_, PyAny>, made: &Snapshot) -> bool {
        let meta = made.meta();
        if meta.device != device::CPU || meta.data.is_null() {
            return true;
        }
        let (base, nbytes) = self.storage(tensor);
        let start = i128::from(meta.data.addr() as u64) - i128::from(base);
        let steps = made.shape().iter().zip(made.strides());
        // At most 64 products of 126 bits each.
        let mut steps =
            steps.map(|(&extent, &stride)| (i128::from(extent) - 1) * i128::from(stride));
        let end = steps
            .try_fold(0, i128::checked_add)
            .and_then(|last| {
                last.checked_add(1)?
                    .checked_mul(i128::from(dtype::bits(meta.dtype) / 8))
            })
            .and_then(|bytes| start.checked_add(bytes));
        base != 0 && start >= 0 && end.is_some_and(|end| start < end && end <= i128::from(nbytes))
    }

    /// Start and size in bytes of the storage of `tensor`; 0 if torch does not say.
    #[inline(always)]
    fn storage(&self, tensor: &Bound<'_, PyAny>) -> (u64, u64) {
        match self.layout {
            // SAFETY: as in `found`.
            Some(layout) => unsafe { layout.storage(tensor) },
            None => storage(tensor),
        }
    }

    /// Refuses a lazily negated or conjugated view.
    #[inline(always)]
    fn check_values(&self, tensor: &Bound<'_, PyAny>, dtype: DLDataType) -> PyResult<()> {
        match self.found(tensor) {
            Found::Unknown => self.ask_values(tensor, dtype),
            _ => Ok(()),
        }
    }

    /// The slow path of [`Self::check_values`], which asks torch.
    #[inline(never)]
    fn ask_values(&self, tensor: &Bound<'_, PyAny>, dtype: DLDataType) -> PyResult<()> {
        let py = tensor.py();
        if ask(self.is_neg, tensor, intern!(py, "is_neg"))?
            || (dtype.code == kDLComplex && ask(self.is_conj, tensor, intern!(py, "is_conj"))?)
            || tensor.getattr(intern!(py, "is_quantized"))?.is_truthy()?
        {
            return Err(refused(tensor, false));
        }
        Ok(())
    }
}

/// Whether `address` is only the offset of a subclass's `tensor` without memory.
#[cold]
#[inline(never)]
fn is_offset(tensor: &Bound<'_, PyAny>, address: usize) -> bool {
    let ask = |py: Python<'_>| {
        let module = py.import("dlx._torch")?;
        (module.call_method1("is_offset", (tensor, address))?).extract::<bool>()
    };
    // Refuse if torch does not say.
    Python::attach(|py| ask(py).unwrap_or(true))
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

/// Rereads a tensor until its storage contains it: another thread that changes the shape only needs time to finish.
#[cold]
#[inline(never)]
pub(crate) fn settled(
    kind: &TorchClass,
    tensor: &Bound<'_, PyAny>,
    read: impl Fn() -> PyResult<Snapshot>,
) -> PyResult<Snapshot> {
    for _ in 0..TRIES {
        thread::yield_now();
        let snapshot = read()?;
        if kind.holds(tensor, &snapshot, None) {
            return Ok(snapshot);
        }
    }
    Err(explain(Some(kind), tensor, outside()))
}

/// The layout of torch's tensors, found once per process; `None` with `DLX_TORCH_FAST=0`.
fn layout(torch: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<Option<Layout>> {
    static LAYOUT: PyOnceLock<Option<Layout>> = PyOnceLock::new();
    let py = torch.py();
    let found = LAYOUT.get_or_try_init(py, || {
        if env::var_os("DLX_TORCH_FAST").is_some_and(|fast| fast == "0") {
            return Ok(None);
        }
        match Layout::find(torch, class) {
            // The search may fail under a torch mode that makes other tensors.
            Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
            found => found,
        }
    });
    found.copied()
}

impl TorchClass {
    /// Whether the table exports tensors of this type without further checks.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Refuses a tensor that torch's exchange table would export wrongly.
    #[inline(always)]
    pub(crate) fn check_table(
        &self,
        tensor: &Bound<'_, PyAny>,
        dtype: DLDataType,
        address: *mut c_void,
    ) -> PyResult<()> {
        match self {
            Self::Plain(guards) => guards.check(tensor, dtype, address),
            Self::Subclass => Ok(()),
        }
    }

    /// Refuses a tensor that a kernel would read wrongly. Recording gradients does not matter.
    pub(crate) fn check_borrow(
        &self,
        tensor: &Bound<'_, PyAny>,
        dtype: DLDataType,
    ) -> PyResult<()> {
        match self {
            Self::Plain(guards) => guards.check_values(tensor, dtype),
            Self::Subclass => Ok(()),
        }
    }

    /// Whether the storage of `tensor` contains the elements of `made`, read from it; another thread may have changed
    /// the shape meanwhile. Tensors off the CPU are trusted.
    ///
    /// `last` is the offset of the last element from the first, if known.
    #[inline(always)]
    pub(crate) fn holds(
        &self,
        tensor: &Bound<'_, PyAny>,
        made: &Snapshot,
        last: Option<u32>,
    ) -> bool {
        match (self, last) {
            (Self::Plain(guards), Some(last)) => guards.holds(tensor, &made.meta(), last),
            (Self::Plain(guards), None) => guards.holds_any(tensor, made),
            (Self::Subclass, _) => true,
        }
    }

    /// Refuses a tensor without memory: its address is only its offset, and not NULL if it is a view.
    #[inline(always)]
    pub(crate) fn check_address(
        &self,
        tensor: &Bound<'_, PyAny>,
        address: *mut c_void,
    ) -> PyResult<()> {
        let is_offset = match self {
            _ if address.is_null() => false,
            Self::Plain(guards) => guards.storage(tensor).0 == 0,
            // Such a class may export the memory of another tensor.
            Self::Subclass => is_offset(tensor, address.addr()),
        };
        if is_offset {
            Err(nowhere(tensor))
        } else {
            Ok(())
        }
    }

    /// Refuses a tensor that torch's `__dlpack__` would export wrongly, or would refuse only after a query that may end
    /// the process: see [`is_lazy_on_cpu`].
    pub(crate) fn check_protocol(self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = tensor.py();
        let is_lazy = match self {
            Self::Plain(guards) => {
                ask(guards.is_neg, tensor, intern!(py, "is_neg"))?
                    || ask(guards.is_conj, tensor, intern!(py, "is_conj"))?
            }
            Self::Subclass => is_lazy(tensor)?,
        };
        if is_lazy {
            Err(refused(tensor, true))
        } else {
            Ok(())
        }
    }
}
