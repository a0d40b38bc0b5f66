//! What dlx knows of a type that it has met: found once, read without a lock.
//!
//! Each entry holds a strong reference to its type, so an address in the cache is never another type's
//! (invariant S6). The cache is bounded: types beyond it are asked anew each time.

#![forbid(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::abi::DLDevice;
use crate::adapters::{modules, numpy, torch};
use crate::device;
use crate::exchange::{Table, is_immutable};
use crate::slot::{Slot, is_mixin};
use crate::tensor::Tensor;

/// How objects of a type are imported.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// As what it is: a `dlx.Tensor`.
    Tensor,
    /// Through the table of the type, with torch's guards where it is torch's.
    Table(Table, Option<torch::Kind>),
    /// From the struct of a NumPy array.
    Numpy,
    /// Through `__dlpack__`, with torch's guards where it is torch's.
    Protocol(Option<torch::Kind>),
    /// As the object that an instance of a mixin class stands for.
    Mixin,
    /// The type has no table now; an object may name another that has (rung 2), else `__dlpack__`.
    Undecided,
}

/// What is known of one type.
pub(crate) struct Entry {
    class: Py<PyType>,
    /// Python code cannot set attributes of the type.
    immutable: bool,
    way: OnceLock<Way>,
    /// A way was looked for, and may be another one next time.
    undecided: AtomicBool,
    /// How often the type has been found without a table, and how many modules there were the last time.
    misses: AtomicUsize,
    modules: AtomicUsize,
    /// `__dlpack__` of this type takes no keyword newer than `stream`.
    old: AtomicBool,
    /// How many tensors of the type were on the CPU so far, [`ELSEWHERE`] once one was not.
    on_cpu: AtomicUsize,
    /// The type says nothing of further devices, and will not.
    single: OnceLock<bool>,
}

/// How often a type is found without a table before that is believed, and how often it is looked for again then.
const SETTLED: usize = 64;
/// Not all tensors of a type are on the CPU.
const ELSEWHERE: usize = usize::MAX;
const SLOTS: usize = 4096;
const PROBES: usize = 16;

static CACHE: [OnceLock<Entry>; SLOTS] = [const { OnceLock::new() }; SLOTS];

/// Calls `body` with what is known of the type of `x`.
pub(crate) fn with<R>(x: &Bound<'_, PyAny>, body: impl FnOnce(&Entry) -> R) -> R {
    let class: *mut ffi::PyObject = x.get_type_ptr().cast();
    for probe in 0..PROBES {
        let slot = &CACHE[place(class, probe)];
        let entry = match slot.get() {
            Some(entry) => entry,
            // Their slots know them, and let them die.
            None if is_mixin(&x.get_type()) => break,
            // Making an entry runs no Python code, which could come back here, or wait for who does.
            None => slot.get_or_init(|| Entry::new(&x.get_type())),
        };
        if entry.class.as_ptr() == class {
            return body(entry);
        }
    }
    // Dropping it drops its reference to the class, which takes a proper attachment.
    Python::attach(|_| body(&Entry::new(&x.get_type())))
}

/// How objects of the type of `x` are imported, if that is remembered; nothing is remembered by asking.
#[inline(always)]
pub(crate) fn known(x: &Bound<'_, PyAny>) -> Option<&'static Way> {
    let class: *mut ffi::PyObject = x.get_type_ptr().cast();
    (0..PROBES)
        .map_while(|probe| CACHE[place(class, probe)].get())
        .find(|entry| entry.class.as_ptr() == class)
        .and_then(Entry::known)
}

/// Where a class is looked for: here, if not at an earlier probe.
fn place(class: *mut ffi::PyObject, probe: usize) -> usize {
    // Types are allocated at multiples of 16; the upper bits are mixed in by the multiplication.
    let hash = (class.addr() >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52;
    (hash + probe) % SLOTS
}

impl Entry {
    fn new(class: &Bound<'_, PyType>) -> Self {
        Self {
            class: class.clone().unbind(),
            immutable: is_immutable(class),
            way: OnceLock::new(),
            undecided: AtomicBool::new(false),
            misses: AtomicUsize::new(0),
            modules: AtomicUsize::new(0),
            old: AtomicBool::new(false),
            on_cpu: AtomicUsize::new(0),
            single: OnceLock::new(),
        }
    }

    /// How objects of this type are imported, if that is remembered.
    pub(crate) fn known(&self) -> Option<&Way> {
        self.way.get()
    }

    /// How to import `x`, which is of this type, and others of it.
    ///
    /// A table is remembered, and so is the absence of one where it is for good: a type that Python cannot
    /// change, and subclasses of torch and NumPy. Other types are asked again, because extensions add tables
    /// after they are imported; after [`SETTLED`] times without one, at every so many calls and when modules have
    /// been imported.
    pub(crate) fn way(&self, x: &Bound<'_, PyAny>) -> PyResult<Way> {
        if let Some(way) = self.known() {
            return Ok(*way);
        }
        if self.is_settled(x.py())? {
            return Ok(Way::Protocol(None));
        }
        let class = self.class.bind(x.py());
        if is_mixin(class) {
            return Ok(Way::Mixin);
        }
        if Tensor::of(x).is_some() {
            return Ok(*self.way.get_or_init(|| Way::Tensor));
        }
        let kind = torch::kind(x)?;
        // What dlx provides for others to use is no way for dlx itself.
        let provided = |table: &Table| Slot::of_table(table.address).is_some();
        let table = Table::of_type(class)?.filter(|table| !provided(table));
        let way = match (table, kind) {
            (_, Some(torch::Kind::Subclass)) => Way::Protocol(kind),
            (Some(table), _) => Way::Table(table, kind),
            (None, Some(_)) => return Ok(Way::Protocol(kind)),
            (None, None) if numpy::is_native(x)? => Way::Numpy,
            (None, None) if self.immutable => Way::Protocol(None),
            (None, None) => {
                self.undecided.store(true, Ordering::Relaxed);
                return Ok(Way::Undecided);
            }
        };
        Ok(*self.way.get_or_init(|| way))
    }

    /// Whether the type has been found without a table so often that another look would tell nothing new.
    fn is_settled(&self, py: Python<'_>) -> PyResult<bool> {
        let misses = self.misses.load(Ordering::Relaxed);
        if misses < SETTLED {
            return Ok(false);
        }
        let modules = modules(py)?.len();
        let before = self.modules.swap(modules, Ordering::Relaxed);
        self.misses
            .store(misses.wrapping_add(1).max(SETTLED), Ordering::Relaxed);
        Ok(!misses.is_multiple_of(SETTLED) && modules == before)
    }

    /// Notes that neither the type nor the object had a table.
    pub(crate) fn missed(&self) {
        if self.misses.load(Ordering::Relaxed) < SETTLED {
            self.misses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that an object of the type names another that has one.
    pub(crate) fn forwards(&self) {
        self.misses.store(0, Ordering::Relaxed);
    }

    /// Whether the type had no table when it was last looked for.
    pub(crate) fn is_undecided(&self) -> bool {
        self.undecided.load(Ordering::Relaxed)
    }

    /// Whether objects of this type are known to be on one device each: a look for what they do not have takes
    /// longer than an export by table. Remembered where the absence of a table is.
    pub(crate) fn is_single(&self, py: Python<'_>) -> bool {
        if !self.immutable && !matches!(self.known(), Some(Way::Table(_, Some(_)))) {
            return false;
        }
        if let Some(&single) = self.single.get() {
            return single;
        }
        let has = |name| self.class.bind(py).hasattr(name).unwrap_or(true);
        let single =
            !has(intern!(py, "__dlpack_device_aliases__")) && !has(intern!(py, "usm_type"));
        // Nobody waits for who runs Python code.
        *self.single.get_or_init(|| single)
    }

    /// Notes where a tensor of the type says that it is.
    pub(crate) fn found_on(&self, here: DLDevice) {
        let before = self.on_cpu.load(Ordering::Relaxed);
        if here != device::CPU {
            self.on_cpu.store(ELSEWHERE, Ordering::Relaxed);
        } else if before < SETTLED {
            // Not over what another thread has noted.
            let after = before + 1;
            let _ =
                self.on_cpu
                    .compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether so many tensors of the type were on the CPU, and none elsewhere, that the next one may be exported
    /// without a question where it is. What is exported has to be looked at: [`Self::is_confirmed`].
    pub(crate) fn is_on_cpu(&self) -> bool {
        self.on_cpu.load(Ordering::Relaxed) == SETTLED
    }

    /// Whether what was exported without a question is where it was thought to be; notes it if not.
    pub(crate) fn is_confirmed(&self, found: DLDevice) -> bool {
        self.found_on(found);
        found == device::CPU
    }

    /// Whether `__dlpack__` is known to take no new keywords.
    pub(crate) fn is_old(&self) -> bool {
        self.old.load(Ordering::Relaxed)
    }

    /// Remembers that it takes none.
    pub(crate) fn set_old(&self) {
        self.old.store(true, Ordering::Relaxed);
    }
}
