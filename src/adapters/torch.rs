//! The checks of a torch tensor before its memory is trusted.
//!
//! torch's exchange table exports lazily conjugated or negated views as if they were not, and tensors that record
//! gradients; its `__dlpack__` still exports negated ones (R125). Neither a `TorchFunctionMode` nor `torch.jit.trace`
//! is seen here: to ask for them would take time for each tensor.
//!
//! torch's exports hold the tensor and not its storage, so its memory is freed under all consumers when it gets other
//! memory (`x.data = y`, `x.set_()`, a growing `x.resize_()`). dlx cannot see that.
//!
//! What the table exports is checked by `torch/guards.rs`, what `__dlpack__` exports by `check_protocol`.

mod guards;
mod keys;
mod own;
mod questions;
mod refusal;

use std::thread;

use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::versions::Places;
use crate::cpython::call::call_with;
use crate::cpython::lookup::{is_method_of_class, known_base};
use crate::cpython::modules::python;
use crate::cpython::once::{Once, intern};
use crate::tensor::checked::Meta;
use crate::tensor::snapshot::Snapshot;
pub(crate) use guards::Guards;
pub(crate) use questions::is_lazy_on_cpu;
use questions::{ask, ask_python, is_byte};
pub(crate) use refusal::explain;
use refusal::{nowhere, outside, refused};

/// What asks torch in Python.
const TORCH: &str = "dlx._libraries.torch";

/// `torch._C.TensorBase`, which torch's C code made, once a tensor was seen.
static BASE: Once<Py<PyType>> = Once::new();
/// `torch.Tensor`, once one was seen.
static TENSOR: Once<Py<PyType>> = Once::new();

/// The base of all of torch's tensors, if `class` derives from it, whatever `sys.modules` says.
#[inline(always)]
fn base<'py>(class: &Bound<'py, PyType>) -> PyResult<Option<&'py Bound<'py, PyType>>> {
    let attribute = intern!(class.py(), "is_neg");
    known_base(&BASE, class, attribute, ("torch._C", "TensorBase"))
}

/// Tells torch that the memory of `x`, if it is torch's, was written to, so that a graph which has saved it raises.
pub(crate) fn increment_version(x: &Bound<'_, PyAny>) -> PyResult<()> {
    static INCREMENT: Once<Py<PyAny>> = Once::new();
    if !is_tensor(x)? {
        return Ok(());
    }
    let py = x.py();
    let increment = INCREMENT.get_or_try_init(py, || {
        python(py, TORCH, "increment_of", (x,)).map(Bound::unbind)
    })?;
    let written = PyTuple::new(py, [x])?;
    call_with(increment.bind(py), &[written.as_any()]).map(drop)
}

/// The counts by which torch sees that memory was written to.
pub(super) static COUNTS: Places = Places::new("torch", &TENSOR);

/// How to read a torch type.
#[derive(Clone, Copy)]
pub(crate) enum TorchClass {
    /// Exactly `torch.Tensor` or `torch.nn.Parameter`: through the table, if it has one, with these guards.
    Plain(Guards),
    /// Any other subclass, whose data may mean something else, or whose `__torch_function__` may veto the export:
    /// through `__dlpack__`, which calls it.
    Subclass,
}

/// Whether `x` is a torch tensor; does not import torch.
#[inline(always)]
pub(crate) fn is_tensor(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(base(&x.get_type())?.is_some())
}

/// Whether ``x`` is a tensor of torch that can be exported, and nothing else (torch's ``ReadOnlyTensorWrapper``).
#[pyfunction]
#[pyo3(signature = (x, /))]
#[inline(always)]
pub(crate) fn only_exports(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = x.get_type();
    match base(&class)? {
        Some(_) if !TENSOR.get(x.py()).is_some_and(|tensor| class.is(tensor)) => {
            python(x.py(), TORCH, "only_exports", (x,))?.extract()
        }
        _ => Ok(false),
    }
}

/// How to read tensors of `class`, if it is torch's; does not import torch.
#[inline(always)]
pub(crate) fn kind(class: &Bound<'_, PyType>) -> PyResult<Option<TorchClass>> {
    match base(class)? {
        Some(base) => of_tensor(class, base).map(Some),
        None => Ok(None),
    }
}

/// Whether `x` is a torch tensor with a `__dlpack__` of its own, which alone counts then, and which no tensor that is made of
/// it has.
#[cold]
#[inline(never)]
pub(crate) fn decides(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(is_tensor(x)? && is_method_of_class(x, intern!(x.py(), "__dlpack__"))? != Some(true))
}

fn of_tensor(class: &Bound<'_, PyType>, base: &Bound<'_, PyType>) -> PyResult<TorchClass> {
    let (py, name) = (class.py(), intern!(class.py(), "__base__"));
    let above = class.getattr(name)?;
    let tensor = match above.is(base) {
        true => class.clone(),
        // `torch.nn.Parameter` derives from `torch.Tensor`.
        false if above.getattr(name)?.is(base) => above.cast_into()?,
        false => return Ok(TorchClass::Subclass),
    };
    let plain = python(py, TORCH, "plain", (class, &tensor))?;
    Ok(match plain.is_none() {
        true => TorchClass::Subclass,
        false => {
            TENSOR.get_or_init(py, || tensor.clone().unbind());
            TorchClass::Plain(Guards::find(&plain, &tensor)?)
        }
    })
}

/// Whether `address` is only the offset of a subclass's `tensor` without memory.
#[cold]
#[inline(never)]
fn is_offset(tensor: &Bound<'_, PyAny>, address: usize) -> bool {
    let ask = |py: Python<'_>| python(py, TORCH, "is_offset", (tensor, address))?.extract::<bool>();
    // Refuse if torch does not say.
    Python::attach(|py| ask(py).unwrap_or(true))
}

/// How often to reread a tensor that reaches outside its storage.
const TRIES: usize = 1000;

/// Rereads a tensor until its storage contains it: another thread that changes the shape only needs time to finish.
#[cold]
#[inline(never)]
pub(crate) fn settled(
    guards: &Guards,
    tensor: &Bound<'_, PyAny>,
    read: impl Fn() -> PyResult<Snapshot>,
) -> PyResult<Snapshot> {
    for _ in 0..TRIES {
        thread::yield_now();
        let snapshot = read()?;
        if guards.holds(tensor, &snapshot, None) {
            return Ok(snapshot);
        }
    }
    Err(explain(tensor, outside()))
}

impl TorchClass {
    /// Refuses a tensor that torch's `__dlpack__` would export wrongly, or would refuse only after a query that may end
    /// the process: see [`is_lazy_on_cpu`].
    #[cold]
    #[inline(never)]
    pub(crate) fn check_protocol(&self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let is = |name| ask(tensor, name);
        let py = tensor.py();
        let (is_lazy, may_have_tangent) = match self {
            Self::Plain(guards) => (
                is(intern!(py, "is_neg"))? || is(intern!(py, "is_conj"))?,
                guards.may_have_tangent(tensor),
            ),
            Self::Subclass => (ask_python(tensor, "is_lazy")?, true),
        };
        if is_lazy || (may_have_tangent && ask_python(tensor, "has_tangent")?) {
            Err(refused(tensor, true))
        } else {
            Ok(())
        }
    }

    /// Refuses an export of `tensor` of fewer bits than torch says (see [`Guards`]), one of a tensor without memory, whose
    /// address is only its offset, and not NULL if it is a view, and one of memory that is not that of `tensor`.
    pub(crate) fn check_export(&self, tensor: &Bound<'_, PyAny>, made: &Snapshot) -> PyResult<()> {
        let Meta { dtype, data, .. } = made.meta();
        if is_byte(dtype) && !ask_python(tensor, "is_whole")? {
            return Err(refused(tensor, false));
        }
        match self {
            Self::Plain(guards) => {
                guards.check_address(tensor, data)?;
                match guards.holds(tensor, made, None) {
                    true => Ok(()),
                    false => Err(outside()),
                }
            }
            // Such a class may export the memory of another tensor.
            Self::Subclass if !data.is_null() && is_offset(tensor, data.addr()) => {
                Err(nowhere(tensor))
            }
            Self::Subclass => Ok(()),
        }
    }
}
