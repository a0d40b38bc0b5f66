//! The pool of tables, one for each class that dlx turns into a producer, looked up by class or by table.
//!
//! `managed_tensor_to_py_object_no_sync` gets no context, so a consumer can return an instance of a class only if the
//! function itself knows the class: each slot has functions of its own. A slot serves one class and is never reused.
//! When the class dies, its table stays and answers with an exception.

use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyType, PyWeakrefReference};

mod functions;
mod origin;

pub(crate) use origin::{
    Hooks, MAX_HOPS, Origin, endless, inner_of, innermost, is_mixin, is_root, lends_nothing, lent,
    names_devices, nested, root_or,
};

use crate::cpython::once::intern;
use crate::exchange::foreign::header;
use crate::exchange::published::Published;
use crate::stream::namer::Of;
use crate::types::error::type_name;

/// Maximum number of classes with a table of their own.
pub(crate) const SLOTS: usize = 512;

static POOL: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
static USED: AtomicUsize = AtomicUsize::new(0);
static CLAIMING: Mutex<()> = Mutex::new(());

/// One class's place in the pool.
pub(crate) struct Slot {
    /// The class while it lives, else NULL. Never dereferenced, only compared with the types of live objects.
    class: AtomicPtr<ffi::PyObject>,
    holder: OnceLock<Holder>,
    /// 1 + the index of the slot of a later class at the same address, once one of its instances came with this table:
    /// a consumer that identifies types by address alone confuses the two. 0 if there is none.
    heir: AtomicUsize,
}

/// The class of a slot, and what was decided when it was defined.
pub(crate) struct Holder {
    class: Py<PyWeakrefReference>,
    address: usize,
    name: String,
    pub(crate) origin: Origin,
    pub(crate) hooks: Hooks,
    table: Published,
}

impl Slot {
    const fn new() -> Self {
        Self {
            class: AtomicPtr::new(null_mut()),
            holder: OnceLock::new(),
            heir: AtomicUsize::new(0),
        }
    }

    /// Gives `class` a slot; `None` if the pool is exhausted.
    pub(crate) fn claim(
        class: &Bound<'_, PyType>,
        origin: Origin,
        hooks: Hooks,
    ) -> PyResult<Option<&'static Self>> {
        let forget = wrap_pyfunction!(forget, class.py())?;
        let weak = PyWeakrefReference::new_with(class, forget)?.unbind();
        let name = type_name(class);
        // The code above may have run Python that claimed a slot for the same class.
        let _claiming = CLAIMING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = POOL.iter().find(|slot| slot.is_for(class.as_ptr())) {
            return Ok(Some(slot));
        }
        let next = |used: usize| (used < SLOTS).then_some(used + 1);
        let Ok(index) = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) else {
            return Ok(None);
        };
        let slot = &POOL[index];
        let table = functions::table(index, origin.lends());
        slot.holder.get_or_init(|| Holder {
            class: weak,
            address: class.as_ptr().addr(),
            name,
            origin,
            hooks,
            table,
        });
        slot.class.store(class.as_ptr(), Ordering::Release);
        Ok(Some(slot))
    }

    /// The slot of `class` itself, not of a base.
    pub(crate) fn of_class(class: &Bound<'_, PyType>) -> PyResult<Option<&'static Self>> {
        let name = intern!(class.py(), "__dlpack_c_exchange_api__");
        let slot = header(class, name)?.and_then(|table| Self::of_table(table.addr().get()));
        Ok(slot.filter(|slot| slot.is_for(class.as_ptr())))
    }

    /// The slot that owns this table, if the table is from the pool.
    pub(crate) fn of_table(table: usize) -> Option<&'static Self> {
        let offset = table.checked_sub(POOL.as_ptr().addr())?;
        let slot = POOL.get(offset / size_of::<Self>())?;
        let own = slot.holder.get()?.table.header();
        (own.addr().get() == table).then_some(slot)
    }

    /// The table, which lives as long as the process (R114).
    pub(crate) fn table(&'static self) -> Option<&'static Published> {
        self.holder.get().map(|holder| &holder.table)
    }

    /// The class that the slot was given to, dead or alive.
    pub(crate) fn holder(&self) -> Option<&Holder> {
        self.holder.get()
    }

    /// The hooks of the class that the table serves, or of its heir.
    pub(crate) fn hooks(&self) -> Hooks {
        let heir = self.is_for(null_mut()).then(|| self.heir()).flatten();
        let holder = heir.unwrap_or(self).holder.get();
        holder.map(|holder| holder.hooks).unwrap_or_default()
    }

    /// The slot of the class that replaced a dead one at its address.
    fn heir(&self) -> Option<&'static Self> {
        let number = self.heir.load(Ordering::Acquire).checked_sub(1)?;
        POOL.get(number)
    }

    /// Whether this is the slot of the live class at this address.
    pub(crate) fn is_for(&self, class: *mut ffi::PyObject) -> bool {
        self.class.load(Ordering::Acquire) == class
    }

    /// Whether this is the slot of `class` or of one of its bases.
    pub(crate) fn is_for_base_of(&self, class: &Bound<'_, PyType>) -> bool {
        class.mro().iter().any(|base| self.is_for(base.as_ptr()))
    }

    /// The slot of a type that dlx provides a table for, published or not.
    pub(crate) fn provided(class: &Bound<'_, PyType>) -> Option<&'static Self> {
        let class = class.as_ptr();
        POOL.iter()
            .find(|slot| slot.is_for(class) && slot.is_provided())
    }

    /// Whether dlx provides the table for a class that is not its own.
    pub(crate) fn is_provided(&self) -> bool {
        let itself = |holder: &Holder| matches!(holder.origin, Origin::Itself { .. });
        self.holder.get().is_some_and(itself)
    }

    /// Whether the table lends views.
    pub(crate) fn lends(&self) -> bool {
        (self.holder.get()).is_some_and(|holder| holder.origin.lends())
    }

    /// The error of a table that was given an object of another type (R127).
    #[cold]
    pub(crate) fn stranger(&self, class: &Bound<'_, PyType>) -> PyErr {
        let own = self.holder.get().map_or("a class", |holder| &holder.name);
        let name = type_name(class);
        PyBufferError::new_err(format!("the exchange table of {own} was given {name}"))
    }

    /// Whether `class` has the address of this slot's class, which is dead.
    pub(crate) fn was_at(&self, class: &Bound<'_, PyType>) -> bool {
        let was = |holder: &Holder| holder.address == class.as_ptr().addr();
        self.is_for(null_mut()) && self.holder.get().is_some_and(was)
    }

    /// Lets the table serve a later class at the same address, found by [`Self::was_at`].
    pub(crate) fn inherit(&self, heir: &Self) {
        self.heir.store(heir.number() + 1, Ordering::Release);
    }

    /// The index in the pool.
    fn number(&self) -> usize {
        (from_ref(self).addr() - POOL.as_ptr().addr()) / size_of::<Self>()
    }

    /// This slot, which lives as long as the process.
    pub(crate) fn for_ever(&self) -> &'static Self {
        &POOL[self.number()]
    }

    /// Whether the class of the slot, or of its heir, is alive.
    pub(crate) fn is_living(&self) -> bool {
        let is_living = |slot: &Self| !slot.is_for(null_mut());
        is_living(self) || self.heir().is_some_and(is_living)
    }

    /// The live class of the slot, or of its heir, with its holder.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the class is gone.
    pub(crate) fn living<'py>(&self, py: Python<'py>) -> PyResult<(&Holder, Bound<'py, PyType>)> {
        let slots = [Some(self), self.heir()].into_iter().flatten();
        for holder in slots.flat_map(Self::holder) {
            if let Some(class) = holder.class.bind(py).upgrade_as::<PyType>()? {
                return Ok((holder, class));
            }
        }
        let name = self.holder.get().map_or("a class", |holder| &holder.name);
        Err(PyRuntimeError::new_err(format!(
            "the exchange table of {name} was called, but the class is gone"
        )))
    }

    /// What is noted of the tensors that this table passes on.
    pub(crate) fn noted(&self) -> Of {
        Of(from_ref(self).addr())
    }
}

/// Clears the slot of a class that has died, so that a later class at its address does not match.
#[pyfunction]
fn forget(weak: &Bound<'_, PyAny>) {
    let holds = |slot: &&Slot| (slot.holder.get()).is_some_and(|holder| holder.class.is(weak));
    if let Some(slot) = POOL.iter().find(holds) {
        slot.class.store(null_mut(), Ordering::Release);
    }
}
