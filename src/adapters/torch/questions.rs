//! Queries about a torch tensor, through the C functions behind its methods and attributes.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyString, PyType};

use super::is_tensor;
use crate::abi::{DLDataType, kDLInt, kDLUInt};

/// The C function behind a builtin type's method that takes no arguments and returns a bool.
#[derive(Clone, Copy)]
pub(super) struct Predicate(ffi::PyCFunction);

/// The descriptor of a builtin type's attribute, never released, and the C function that reads it.
#[derive(Clone, Copy)]
pub(super) struct Getter(*mut ffi::PyObject, ffi::descrgetfunc);

// SAFETY: the descriptor lives as long as the process and is used attached.
unsafe impl Send for Getter {}
// SAFETY: as for `Send`.
unsafe impl Sync for Getter {}

/// Calls the method `name` of `tensor`, through its C function if there is one.
pub(super) fn ask(
    predicate: Option<Predicate>,
    tensor: &Bound<'_, PyAny>,
    name: &Bound<'_, PyString>,
) -> PyResult<bool> {
    match predicate {
        Some(predicate) => predicate.ask(tensor),
        None => tensor.call_method0(name)?.is_truthy(),
    }
}

/// Whether `tensor` is lazily conjugated or negated, bypassing what its class overrides.
pub(super) fn is_lazy(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    ask_python(tensor, "is_lazy")
}

/// Whether `tensor` has a tangent of forward mode.
#[cold]
pub(super) fn has_tangent(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    ask_python(tensor, "has_tangent")
}

/// Whether `tensor`, which is exported with integers of 8 bits, has elements of as many.
#[cold]
pub(super) fn is_whole(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    ask_python(tensor, "is_whole")
}

/// What `question` of `dlx._libraries.torch` answers for `tensor`, whatever `sys.modules` and its class say.
fn ask_python(tensor: &Bound<'_, PyAny>, question: &str) -> PyResult<bool> {
    // Drops what it owns, also in table functions, to which PyO3 may not count the attachment (S20).
    Python::attach(|py| {
        let module = py.import("dlx._libraries.torch")?;
        (module.call_method1(question, (tensor,))?).extract()
    })
}

/// Whether elements are exported as integers of 8 bits.
#[inline(always)]
pub(super) fn is_byte(dtype: DLDataType) -> bool {
    dtype.bits == 8 && matches!(dtype.code, kDLInt | kDLUInt)
}

/// Whether `tensor` is a lazy torch view on the CPU. To say whether such a view is pinned, torch resolves a copy of it,
/// which ends the process if the memory has been released.
pub(crate) fn is_lazy_on_cpu(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(is_tensor(tensor)? && ask_python(tensor, "is_lazy_on_cpu")?)
}

impl Predicate {
    /// The C function behind the method `name` of `base`, if it takes no arguments.
    ///
    /// Looked up on the base of the type of `tensor` and bound to that: what this instance or its class was given must
    /// not answer for others.
    pub(super) fn of(
        base: &Bound<'_, PyType>,
        tensor: &Bound<'_, PyAny>,
        name: &Bound<'_, PyString>,
    ) -> PyResult<Option<Self>> {
        let method = base.getattr(name)?;
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

    /// Calls it for `tensor`.
    fn ask(self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        // SAFETY: the function is a METH_NOARGS method of a builtin base of torch.Tensor, found through an object of
        // the exact type of `tensor`, and its code is never unloaded (S8, torch's functions).
        let answer = unsafe { (self.0)(tensor.as_ptr(), null_mut()) };
        // SAFETY: it returned a new reference, or NULL with an exception.
        unsafe { Bound::from_owned_ptr_or_err(tensor.py(), answer) }?.is_truthy()
    }
}

impl Getter {
    /// The C function that reads the attribute `name` of `base`, if that is a builtin type's attribute.
    pub(super) fn of(
        base: &Bound<'_, PyType>,
        name: &Bound<'_, PyString>,
    ) -> PyResult<Option<Self>> {
        let descriptor = base.getattr(name)?;
        let class = descriptor.get_type();
        if class.as_type_ptr() != &raw mut ffi::PyGetSetDescr_Type {
            return Ok(None);
        }
        // SAFETY: a live type; this only reads the slot.
        let get = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_descr_get) };
        if get.is_null() {
            return Ok(None);
        }
        // SAFETY: this slot holds a function of this type.
        let get = unsafe { transmute::<*mut c_void, ffi::descrgetfunc>(get) };
        Ok(Some(Self(descriptor.into_ptr(), get)))
    }

    /// Whether the attribute of `tensor` is true.
    pub(super) fn get(self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        let class = tensor.get_type_ptr().cast();
        // SAFETY: the descriptor's own function, which checks that `tensor`, a live object, is of its type (S8).
        let answer = unsafe { (self.1)(self.0, tensor.as_ptr(), class) };
        // SAFETY: it returned a new reference, or NULL with an exception.
        unsafe { Bound::from_owned_ptr_or_err(tensor.py(), answer) }?.is_truthy()
    }
}
