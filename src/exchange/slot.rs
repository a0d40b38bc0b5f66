//! The pool of tables, one for each class that dlx turns into a producer, looked up by class or by table.
//!
//! `managed_tensor_to_py_object_no_sync` gets no context, so a consumer can return an instance of a class only if the
//! function itself knows the class: each slot has functions of its own. A slot serves one class and is never reused.
//! When the class dies, its table stays and answers with an exception.

use std::ptr::from_ref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyType, PyWeakrefReference};

mod functions;
mod origin;

pub(crate) use origin::{
    Hooks, MAX_HOPS, Origin, endless, inner_of, innermost, is_mixin, is_root, lends_nothing, lent,
    names_devices, nested, root_or, stranger,
};

use crate::cpython::fork::Lock;
use crate::cpython::once::intern;
use crate::exchange::foreign::header;
use crate::exchange::published::Published;
use crate::stream::namer::Of;
use crate::types::error::type_name;

/// Maximum number of classes with a table of their own.
pub(crate) const SLOTS: usize = 512;

/// The slots, used from the first on.
static POOL: [OnceLock<Slot>; SLOTS] = [const { OnceLock::new() }; SLOTS];
static CLAIMING: Lock<()> = Lock::new(());

/// The class of a table, and what was decided when it was defined.
pub(crate) struct Slot {
    class: Py<PyWeakrefReference>,
    /// That of the class. Never dereferenced, only compared with the types of live objects.
    address: usize,
    is_alive: AtomicBool,
    pub(crate) name: String,
    pub(crate) origin: Origin,
    hooks: Hooks,
    /// It lives as long as the process (R114).
    pub(crate) table: Published,
    /// The slot of a later class at the same address, once one of its instances came with this table: a consumer that
    /// identifies types by address alone confuses the two.
    heir: Lock<Option<&'static Slot>>,
}

impl Slot {
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
        let _claiming = CLAIMING.lock();
        if let Some(slot) = Self::given_to(class) {
            return Ok(Some(slot));
        }
        let index = used().count();
        let Some(place) = POOL.get(index) else {
            return Ok(None);
        };
        Ok(Some(place.get_or_init(|| Self {
            class: weak,
            address: class.as_ptr().addr(),
            is_alive: AtomicBool::new(true),
            name,
            table: functions::table(index, origin.lends()),
            origin,
            hooks,
            heir: Lock::new(None),
        })))
    }

    /// The slot of a living class, whose table may not be published.
    pub(crate) fn given_to(class: &Bound<'_, PyType>) -> Option<&'static Self> {
        used().find(|slot| slot.is_for(class.as_ptr()))
    }

    /// The slot of `class` itself, not of a base, if its table is published.
    pub(crate) fn of_class(class: &Bound<'_, PyType>) -> PyResult<Option<&'static Self>> {
        let name = intern!(class.py(), "__dlpack_c_exchange_api__");
        let slot = header(class, name)?.and_then(|table| Self::of_table(table.addr().get()));
        Ok(slot.filter(|slot| slot.is_for(class.as_ptr())))
    }

    /// The slot that owns this table, if the table is from the pool.
    pub(crate) fn of_table(table: usize) -> Option<&'static Self> {
        let offset = table.checked_sub(POOL.as_ptr().addr())?;
        let slot = POOL.get(offset / size_of::<OnceLock<Self>>())?.get()?;
        (slot.table.header().addr().get() == table).then_some(slot)
    }

    /// The hooks of the class that the table serves.
    pub(crate) fn hooks(&self) -> Hooks {
        self.serving().hooks
    }

    /// The slot of the class that the table serves: its own, or the heir of a dead one.
    pub(crate) fn serving(&self) -> &Self {
        if self.is_alive() {
            return self;
        }
        self.heir.lock().unwrap_or(self)
    }

    /// Whether its own class is alive.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Acquire)
    }

    /// Whether this is the slot of the live class at this address.
    #[inline(always)]
    pub(crate) fn is_for(&self, class: *mut ffi::PyObject) -> bool {
        self.address == class.addr() && self.is_alive()
    }

    /// Whether dlx provides the table for a class that is not its own.
    pub(crate) fn is_provided(&self) -> bool {
        matches!(self.origin, Origin::Itself { .. })
    }

    /// Whether `class` has the address of this slot's class, which is dead.
    pub(crate) fn was_at(&self, class: &Bound<'_, PyType>) -> bool {
        self.address == class.as_ptr().addr() && !self.is_alive()
    }

    /// Lets the table serve a later class at the same address, found by [`Self::was_at`].
    pub(crate) fn inherit(&self, heir: &'static Self) {
        *self.heir.lock() = Some(heir);
    }

    /// The live class that the table serves, with its slot.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the class is gone.
    pub(crate) fn living<'py>(&self, py: Python<'py>) -> PyResult<(&Self, Bound<'py, PyType>)> {
        let slot = self.serving();
        match slot.class.bind(py).upgrade_as::<PyType>()? {
            Some(class) => Ok((slot, class)),
            None => Err(PyRuntimeError::new_err(format!(
                "the exchange table of {} was called, but the class is gone",
                self.name
            ))),
        }
    }

    /// What is noted of the tensors that this table passes on.
    pub(crate) fn noted(&self) -> Of {
        Of(from_ref(self).addr())
    }
}

/// The slots that have a class, dead or alive.
fn used() -> impl Iterator<Item = &'static Slot> {
    POOL.iter().map_while(OnceLock::get)
}

/// Clears the slot of a class that has died, so that a later class at its address does not match.
#[pyfunction]
fn forget(weak: &Bound<'_, PyAny>) {
    if let Some(slot) = used().find(|slot| slot.class.is(weak)) {
        slot.is_alive.store(false, Ordering::Release);
    }
}
