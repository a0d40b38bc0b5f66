//! NumPy's array interface, version 3: the C struct in `__array_struct__` and the dict in `__array_interface__`.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::with_exposed_provenance_mut;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use super::interface::{Elements, Interface, dtype, refused_type, wrong_answer};
use crate::cpython::call::attribute;
use crate::cpython::interpreter::PythonOwner;
use crate::cpython::once::intern;
use crate::tensor::bytes;
use crate::tensor::capsule;
use crate::tensor::checked::{Checked, Meta, dimensions_at};
use crate::tensor::held_buffer::Buffer;
use crate::tensor::managed::read_only;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::{Snapshot, Source};
use crate::types::layout;

/// `PyArrayInterface`, as NumPy documents it.
#[repr(C)]
struct PyArrayInterface {
    two: c_int,
    nd: c_int,
    typekind: c_char,
    itemsize: c_int,
    flags: c_int,
    shape: *mut isize,
    strides: *mut isize,
    data: *mut c_void,
    descr: *mut ffi::PyObject,
}

const NOTSWAPPED: c_int = 0x200;
const WRITEABLE: c_int = 0x400;

/// Imports an object that has `__array_struct__`. The tensor holds the object and the capsule, since either may own the
/// memory. DLPack guarantees no alignment, so the ALIGNED flag is ignored.
pub(super) fn from_struct(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    let name = intern!(x.py(), "__array_struct__");
    let Some(answer) = attribute(x, name)? else {
        return Ok(None);
    };
    let Ok(capsule) = answer.cast::<PyCapsule>() else {
        return Err(wrong_answer(x, name, &answer, "a capsule"));
    };
    let interface = capsule::contents(capsule, None)?.cast::<PyArrayInterface>();
    // SAFETY: the capsule of `__array_struct__` points to this struct while the capsule lives (S11, array interfaces).
    let two = unsafe { (*interface.as_ptr()).two };
    if two != 2 {
        return Err(PyBufferError::new_err(format!(
            "__array_struct__ begins with {two}; a PyArrayInterface begins with 2"
        )));
    }
    // SAFETY: as above; the first field confirms the struct.
    let interface = unsafe { interface.as_ref() };
    // SAFETY: shape and strides have `nd` values where they are not NULL, while the capsule lives (S11).
    let (shape, strides) = unsafe {
        dimensions_at(
            interface.shape.cast(),
            interface.strides.cast(),
            interface.nd,
        )
    }?;
    let (kind, itemsize) = (interface.typekind as u8, i64::from(interface.itemsize));
    let swapped = itemsize > 1 && interface.flags & NOTSWAPPED == 0;
    let dtype = dtype(kind, itemsize).filter(|_| !swapped).ok_or_else(|| {
        let order = if swapped { "swapped" } else { "native" };
        let kind = char::from(kind);
        refused_type(&format!(
            "typekind {kind:?}, itemsize {itemsize} and {order} byte order"
        ))
    })?;
    let flags = read_only(interface.flags & WRITEABLE == 0);
    let strides = strides
        .map(|strides| layout::element_strides(shape, strides, itemsize))
        .transpose()?;
    let meta = Meta::on_cpu(interface.data, dtype, flags);
    let checked = Checked::new(meta, shape, strides.as_deref())?.addressable()?;
    let held = (
        PythonOwner::new(x.clone().unbind()),
        PythonOwner::new(answer.clone().unbind()),
    );
    Ok(Some(checked.over(Source::Held(Box::new(held)))))
}

/// Imports an object that has `__array_interface__`. The tensor holds the object, and the buffer if `data` is one.
pub(super) fn from_dict(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    let name = intern!(x.py(), "__array_interface__");
    let Some(interface) = Interface::of(x, name)? else {
        return Ok(None);
    };
    interface.check_version(3..=3, "3")?;
    let Elements {
        dtype,
        shape,
        strides,
    } = interface.elements()?;
    let owner = PythonOwner::new(x.clone().unbind());
    let offset: i64 = interface.optional("offset", "an int")?.unwrap_or(0);
    let data: Bound<'_, PyAny> = interface.required("data", "a pair or a buffer")?;
    let (meta, source) = if data.is_instance_of::<PyTuple>() {
        let (address, flag): (usize, Bound<'_, PyAny>) =
            interface.extract("data", &data, "(address, read-only)")?;
        if offset != 0 {
            return Err(PyBufferError::new_err(format!(
                "__array_interface__ has offset {offset} and an address as data; an offset requires a buffer"
            )));
        }
        let address = with_exposed_provenance_mut(address);
        let meta = Meta::on_cpu(address, dtype, read_only(flag.is_truthy()?));
        (meta, Source::Python(owner))
    } else {
        let buffer = Buffer::get(&data, ffi::PyBUF_SIMPLE)?;
        let (start, length) = (buffer.view().buf, buffer.view().len as i64);
        let start = start.wrapping_byte_offset(offset as isize);
        let meta = Meta::on_cpu(start, dtype, buffer.flags());
        let elements = (layout::size(&shape)?, &shape[..], strides.as_deref());
        if elements.0 > 0 {
            bytes::place(&meta, elements, Some(offset), length)?;
        }
        // Whoever writes to it tells the library of that tensor.
        let source = match Tensor::of(&data) {
            Some(tensor) => Source::Part(tensor.get().snapshot()?.clone()),
            None => Source::Held(Box::new((owner, buffer))),
        };
        (meta, source)
    };
    let checked = Checked::new(meta, &shape, strides.as_deref())?.addressable()?;
    Ok(Some(checked.over(source)))
}
