//! What a torch tensor must be asked before its memory may be believed.
//!
//! torch's exchange table exports views whose elements are lazily conjugated or negated as if they were
//! not, and tensors that record gradients; its `__dlpack__` still exports negated ones (R125).

mod fresh;

use std::ptr::null_mut;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyString, PyType};

use super::loaded;
use crate::abi::{DLDataType, kDLBool, kDLComplex, kDLInt, kDLUInt};
use fresh::Fresh;

/// How a type of torch is read.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// `torch.Tensor` or `torch.nn.Parameter` themselves: through the table, with these guards.
    Plain(Guards),
    /// Another subclass, which may mean something else by its data or veto the export with
    /// `__torch_function__`: through `__dlpack__`, which asks it.
    Subclass,
}

/// How to read tensors of the type of `x`, if it is torch's; torch is not imported for it.
pub(crate) fn kind(x: &Bound<'_, PyAny>) -> PyResult<Option<Kind>> {
    let py = x.py();
    let Some(torch) = loaded(intern!(py, "torch"))? else {
        return Ok(None);
    };
    let tensor = torch.getattr_opt(intern!(py, "Tensor"))?;
    // Whatever stands in for torch in `sys.modules` need not have a class there.
    let Some(Ok(tensor)) = tensor.map(|tensor| tensor.cast_into::<PyType>()) else {
        return Ok(None);
    };
    let class = x.get_type();
    if !class.is_subclass(&tensor)? {
        return Ok(None);
    }
    if !class.hasattr(intern!(py, "is_neg"))? || !class.hasattr(intern!(py, "is_conj"))? {
        return Ok(None);
    }
    let parameter = match torch.getattr_opt(intern!(py, "nn"))? {
        Some(nn) => nn.getattr_opt(intern!(py, "Parameter"))?,
        None => None,
    };
    if class.is(&tensor) || parameter.is_some_and(|parameter| class.is(&parameter)) {
        return Ok(Some(Kind::Plain(Guards::of(&torch, &tensor, x)?)));
    }
    Ok(Some(Kind::Subclass))
}

/// The questions, found once per type.
#[derive(Clone, Copy)]
pub(crate) struct Guards {
    is_conj: Option<Predicate>,
    is_neg: Option<Predicate>,
    fresh: Option<Fresh>,
}

/// A method of a builtin type that takes nothing and answers a bool, as the C function behind it.
#[derive(Clone, Copy)]
struct Predicate(ffi::PyCFunction);

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
            // Under a mode of torch that makes other tensors, the trial may fail: then the question is asked.
            fresh: Fresh::find(torch, class).unwrap_or(None),
        })
    }

    /// Whether `tensor` is neither a view nor records gradients, so that there is nothing to ask.
    #[inline(always)]
    fn is_fresh(&self, tensor: &Bound<'_, PyAny>) -> bool {
        // SAFETY: guards are for `torch.Tensor` and `Parameter` themselves, which have one layout.
        self.fresh
            .is_some_and(|fresh| unsafe { fresh.is_fresh(tensor) })
    }

    /// Refuses an export whose elements are not what its memory holds.
    ///
    /// Only floating and complex tensors can record gradients, only complex ones be conjugated.
    #[inline(always)]
    fn check(&self, tensor: &Bound<'_, PyAny>, dtype: DLDataType) -> PyResult<()> {
        match self.is_fresh(tensor) {
            true => Ok(()),
            false => self.ask(tensor, dtype),
        }
    }

    /// As [`Self::check`], by asking.
    fn ask(&self, tensor: &Bound<'_, PyAny>, dtype: DLDataType) -> PyResult<()> {
        let py = tensor.py();
        let floating = !matches!(dtype.code, kDLInt | kDLUInt | kDLBool);
        if floating && tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
            return Err(PyBufferError::new_err(
                "the torch tensor requires grad, which DLPack cannot carry; pass tensor.detach()",
            ));
        }
        self.check_values(tensor, dtype)
    }

    /// Refuses a view whose elements are still to be negated or conjugated.
    fn check_values(&self, tensor: &Bound<'_, PyAny>, dtype: DLDataType) -> PyResult<()> {
        let py = tensor.py();
        if self.is_fresh(tensor) {
            return Ok(());
        }
        refuse_negative(self.is_neg, tensor)?;
        if dtype.code == kDLComplex && ask(self.is_conj, tensor, intern!(py, "is_conj"))? {
            return Err(PyBufferError::new_err(
                "the torch tensor is a lazily conjugated view; pass tensor.resolve_conj()",
            ));
        }
        Ok(())
    }
}

impl Kind {
    /// Whether the table makes tensors that need no checking.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Refuses what the exchange table of torch would export wrongly.
    #[inline(always)]
    pub(crate) fn check_table(&self, tensor: &Bound<'_, PyAny>, dtype: DLDataType) -> PyResult<()> {
        match self {
            Self::Plain(guards) => guards.check(tensor, dtype),
            Self::Subclass => Ok(()),
        }
    }

    /// Refuses what a kernel would read wrongly. That a gradient is recorded does not matter to it.
    pub(crate) fn check_borrow(self, tensor: &Bound<'_, PyAny>, dtype: DLDataType) -> PyResult<()> {
        match self {
            Self::Plain(guards) => guards.check_values(tensor, dtype),
            Self::Subclass => Ok(()),
        }
    }

    /// Refuses what `__dlpack__` of torch would export wrongly.
    pub(crate) fn check_protocol(self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        match self {
            Self::Plain(guards) => refuse_negative(guards.is_neg, tensor),
            Self::Subclass => {
                // The question is about the object itself, whatever its class makes of torch's functions.
                let plain = tensor
                    .py()
                    .import("torch._C")?
                    .getattr_opt("DisableTorchFunctionSubclass")?
                    .map(|class| class.call0())
                    .transpose()?;
                if let Some(plain) = &plain {
                    plain.call_method0("__enter__")?;
                }
                let answer = refuse_negative(None, tensor);
                if let Some(plain) = &plain {
                    let none = tensor.py().None();
                    plain.call_method1("__exit__", (&none, &none, &none))?;
                }
                answer
            }
        }
    }
}

/// Refuses a tensor whose negation is still to be done.
fn refuse_negative(is_neg: Option<Predicate>, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
    if ask(is_neg, tensor, intern!(tensor.py(), "is_neg"))? {
        return Err(PyBufferError::new_err(
            "the torch tensor is a lazily negated view; pass tensor.resolve_neg()",
        ));
    }
    Ok(())
}

/// What the method `name` of `tensor` answers, through the C function where there is one.
fn ask(
    predicate: Option<Predicate>,
    tensor: &Bound<'_, PyAny>,
    name: &Bound<'_, PyString>,
) -> PyResult<bool> {
    match predicate {
        Some(predicate) => predicate.ask(tensor),
        None => tensor.call_method0(name)?.is_truthy(),
    }
}

impl Predicate {
    /// The C function behind the method `name` of the type of `tensor`, if it is one that takes nothing.
    ///
    /// Found on the type and bound to `tensor`: an attribute of this one tensor must not answer for others.
    fn of(tensor: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<Option<Self>> {
        let method = tensor.get_type().getattr(name)?;
        let Ok(method) = method.call_method1("__get__", (tensor,)) else {
            return Ok(None);
        };
        if !method.is_instance_of::<PyCFunction>() {
            return Ok(None);
        }
        // SAFETY: `method` is a builtin function.
        let flags = unsafe { ffi::PyCFunction_GetFlags(method.as_ptr()) };
        if flags != ffi::METH_NOARGS {
            return Ok(None);
        }
        // SAFETY: as above.
        let function = unsafe { ffi::PyCFunction_GetFunction(method.as_ptr()) };
        Ok(function.map(Self))
    }

    /// Its answer for `tensor`.
    fn ask(self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        // SAFETY: the function is a METH_NOARGS method of a builtin base of torch.Tensor, found through an
        // object of the exact type of `tensor`, and its code is never unloaded (S8).
        let answer = unsafe { (self.0)(tensor.as_ptr(), null_mut()) };
        // SAFETY: it returned a new reference, or NULL with an exception.
        unsafe { Bound::from_owned_ptr_or_err(tensor.py(), answer) }?.is_truthy()
    }
}
