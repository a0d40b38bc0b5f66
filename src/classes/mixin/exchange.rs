//! The table functions of the pool's slots: for mixin classes, and for types that dlx provides a table for.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::make;
use crate::abi::*;
use crate::adapters::numpy;
use crate::api::writing;
use crate::copy::by_driver;
use crate::copy::request::Consumer;
use crate::cpython::interpreter::attach_uncounted;
use crate::cpython::once::intern;
use crate::exchange::Exchange;
use crate::exchange::slot::{Origin, Slot, is_mixin, lent, nested, stranger};
use crate::import::export::{self, FromPyObjectNoSync, from_py_object_no_sync};
use crate::import::ladder::{explain, is_accepted};
use crate::stream::namer::noted;
use crate::stream::{self, Namer, NamesStream, Stream, WorkStream};
use crate::tensor::checked::{Checked, Prototype};
use crate::tensor::managed::ManagedVersioned;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::device::Device;
use crate::types::dtype::DType;
use crate::types::error::{Error, type_name};

impl Exchange for Slot {
    fn export(&'static self, object: Borrowed<'_, '_, PyAny>) -> PyResult<ManagedVersioned> {
        let inner = self.read(&object)?;
        let managed: ManagedVersioned = self.no_sync(&object, &inner)?;
        if self.is_provided()
            && managed.read()?.1 & DLPACK_FLAG_BITMASK_READ_ONLY != 0
            && numpy::is_subclass_of_ndarray(&object.get_type())?
        {
            return Err(unasked(&object));
        }
        Ok(managed)
    }

    fn borrow(&'static self, object: Borrowed<'_, '_, PyAny>) -> PyResult<DLTensor> {
        let inner = lent(&object, self.read(&object)?)?;
        self.no_sync(&object, &inner)
    }

    fn import<'py>(&self, py: Python<'py>, snapshot: Snapshot) -> PyResult<Bound<'py, PyAny>> {
        let made = Python::attach(|py| {
            let (slot, class) = self.living(py)?;
            let tensor = Tensor::new(py, snapshot)?;
            make(&slot.origin, &class, &tensor).map(Bound::unbind)
        })?;
        Ok(made.into_bound(py))
    }

    fn allocate(&self, wanted: Prototype<'_>) -> Result<ManagedVersioned, Error> {
        if !self.hooks().empty {
            return by_driver::empty(wanted)?.export(true);
        }
        // Refuse here what dlx's own allocator would refuse, before the hook runs.
        if Checked::planned(wanted)?.meta.device != wanted.device {
            return Err(Error::refused(format!(
                "{} does not exist; expected cpu:0",
                wanted.device
            )));
        }
        let make = |py: Python<'_>| {
            let (_, class) = self.living(py)?;
            let stream = |device| self.current_work_stream(py, device);
            Ok::<_, PyErr>(memory_of(&class, &stream, wanted)?.export(true)?)
        };
        // The allocator may be called without being attached (S2, callers).
        let made = attach_uncounted(|_| {
            Python::attach(|py| make(py).map_err(|error| Error::raised(py, &error)))
        });
        made.unwrap_or_else(|| Err(Error::refused("Python is exiting")))
    }

    fn current_work_stream(&self, py: Python<'_>, device: DLDevice) -> PyResult<i64> {
        if !stream::needs_order(device) {
            return Ok(0);
        }
        if self.hooks().stream {
            Python::attach(|py| self.hooked(py, device))
        } else {
            self.inherited(py, device)
        }
    }

    fn namer(&'static self, device: DLDevice) -> Namer {
        match self.hooks().stream {
            true => Namer::Class(self),
            false => self.inherits(device),
        }
    }
}

impl NamesStream for Slot {
    fn is_there(&self) -> bool {
        self.serving().is_alive()
    }

    fn stream(&self, py: Python<'_>, device: DLDevice) -> PyResult<i64> {
        self.current_work_stream(py, device)
    }
}

/// The consumer of what a mixin class exports: it asks the class for its stream.
struct OfClass<'py>(&'static Slot, Python<'py>);

impl Consumer for OfClass<'_> {
    /// The stream of the class, or else of the object's own library, if that names one.
    fn stream(&self, device: DLDevice) -> PyResult<i64> {
        match self.0.hooks().stream {
            true => self.0.current_work_stream(self.1, device),
            false => stream::current(self.1, device),
        }
    }

    /// Notes who names the stream, and makes the one that a consumer was told before wait for it.
    #[cold]
    fn ready(&self, device: DLDevice, handle: i64) -> PyResult<()> {
        stream::note(self.0.noted(), device, stream::namer(device));
        let ready = || Ok(Stream::of_table(handle, device));
        stream::exported(self.1, device, self.0.namer(device), ready)
    }

    /// As [`Consumer::ready`], of a stream that its library names.
    #[cold]
    fn note_library(&self, device: DLDevice, work_stream: WorkStream) -> PyResult<()> {
        let namer = Namer::Library(work_stream);
        stream::note(self.0.noted(), device, namer.clone());
        let ready = || Ok(Stream::of_table(work_stream.get(self.1, device)?, device));
        stream::exported(self.1, device, namer, ready)
    }
}

impl Slot {
    /// What a table function returns for `object`, which exports `inner`.
    #[inline(always)]
    fn no_sync<T: FromPyObjectNoSync>(
        &'static self,
        object: &Bound<'_, PyAny>,
        inner: &Bound<'_, PyAny>,
    ) -> PyResult<T> {
        let consumer = OfClass(self, object.py());
        from_py_object_no_sync(inner, &consumer)
            .map_err(|error| Python::attach(|_| explain(object, inner, error)))
    }

    /// Reads the object that is exported in place of `object`.
    #[inline(always)]
    fn read<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if self.is_for(object.get_type_ptr().cast()) {
            self.origin.read(object)
        } else {
            Python::attach(|_| self.read_other(object))
        }
    }

    /// As [`Self::read`], for objects that are not exactly of the table's class.
    #[cold]
    fn read_other<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let class = object.get_type();
        let own = Self::of_class(&class)?;
        if self.was_at(&class) && (own.is_some() || is_mixin(&class)) {
            own.into_iter().for_each(|own| self.inherit(own));
        } else if !class.mro().iter().any(|base| self.is_for(base.as_ptr())) {
            return Err(stranger(&self.name, &class));
        }
        match own {
            Some(own) => own.origin.read(object),
            None if is_mixin(&class) => Origin::without_slot(&class)?.read(object),
            None => Ok(object.clone()),
        }
    }

    /// The stream of a class that does not name one.
    pub(super) fn inherited(&self, py: Python<'_>, device: DLDevice) -> PyResult<i64> {
        match self.inherits(device) {
            Namer::Library(work_stream) => work_stream.get(py, device),
            _ if !stream::has_streams(device) => Err(stream::no_streams(device)),
            namer => Ok(namer
                .stream(py, device)?
                .map_or(0, |stream| stream.handle())),
        }
    }

    /// Who names that stream: the library whose table exported last; else the one set by `dlx.stream`, or of what was
    /// exported last.
    fn inherits(&self, device: DLDevice) -> Namer {
        let noted = noted(self.noted(), device).filter(Namer::is_there);
        match (noted, stream::namer(device)) {
            (Some(library @ Namer::Library(_)), _) => library,
            (_, set @ Namer::Set) => set,
            (Some(Namer::Set) | None, last) => last,
            (Some(noted), _) => noted,
        }
    }

    /// The stream that `__dlx_stream__` names.
    fn hooked(&self, py: Python<'_>, device: DLDevice) -> PyResult<i64> {
        let (_, class) = self.living(py)?;
        let hook = intern!(py, "__dlx_stream__");
        let named = nested(&class, || class.call_method1(hook, (Device(device),)))?;
        if named.is_none() {
            return self.inherited(py, device);
        }
        let handle = stream::named_handle(&named, device).filter(|&handle| {
            handle == 0 || stream::checked(handle, device).is_ok_and(|handle| handle > 0)
        });
        handle.ok_or_else(|| {
            let wanted =
                format_args!("{named}; expected the handle of a stream of {device} or None");
            nonsense(&class, "__dlx_stream__", wanted)
        })
    }
}

/// Allocates through `__dlx_empty__` of `class`, ordered for the stream that the class works on.
pub(super) fn memory_of(
    class: &Bound<'_, PyType>,
    consumer: &dyn Consumer,
    wanted: Prototype<'_>,
) -> PyResult<Snapshot> {
    let hook = intern!(class.py(), "__dlx_empty__");
    let shape = PyTuple::new(class.py(), wanted.shape)?;
    let asked = (shape, DType(wanted.dtype), Device(wanted.device));
    let made = nested(class, || class.call_method1(hook, asked))?;
    let snapshot = match export::by_protocol(&made, consumer) {
        Ok(snapshot) => snapshot,
        Err(_) if !is_accepted(&made)? => {
            let made = type_name(&made.get_type());
            let wanted = format_args!("{made}; expected an object that dlx.from_dlpack accepts");
            return Err(nonsense(class, "__dlx_empty__", wanted));
        }
        Err(error) => return Err(error),
    };
    if snapshot.prototype() != wanted || writing::refusal(&made, &snapshot)?.is_some() {
        let wanted = format_args!("{}; expected a writable {wanted}", snapshot.prototype());
        return Err(nonsense(class, "__dlx_empty__", wanted));
    }
    Ok(snapshot.writable()?)
}

/// The error of a provided table for a read-only NumPy array: NumPy's own `__dlpack__` exports one only to a consumer
/// that declares that it reads flags (R40), and a table's caller declares nothing.
#[cold]
#[inline(never)]
fn unasked(x: &Bound<'_, PyAny>) -> PyErr {
    PyBufferError::new_err(format!(
        "the {} is read-only, and the consumer of an exchange table does not promise not to write; pass a copy",
        type_name(&x.get_type())
    ))
}

/// The error for a hook that returned the wrong thing.
#[cold]
pub(super) fn nonsense(
    class: &Bound<'_, PyType>,
    hook: &str,
    found_and_wanted: std::fmt::Arguments<'_>,
) -> PyErr {
    let name = type_name(class);
    PyTypeError::new_err(format!("{name}.{hook} returned {found_and_wanted}"))
}
