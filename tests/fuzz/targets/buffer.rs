//! Python buffers of any format, shape, strides and suboffsets.

use std::ffi::{CString, c_int};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use arbitrary::{Result, Unstructured};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::memory::{address, look};
use super::numbers::{beside, number, numbers};
use super::{imported, with_python};

const FORMATS: [&str; 26] = [
    "B", "b", "?", "c", "f", "d", "e", "Zf", "Zd", "<f", ">f", "=l", "@l", "l", "q", "!q", "2f",
    "T{f:a:}", "", "<", "Z", "fz", "n", "=n", "s", "w",
];

static BUFFERS: AtomicUsize = AtomicUsize::new(0);

/// An exporter of one buffer.
#[pyclass]
struct Exporter {
    format: Option<CString>,
    shape: Option<Vec<isize>>,
    strides: Option<Vec<isize>>,
    suboffsets: Option<Vec<isize>>,
    buf: usize,
    len: isize,
    itemsize: isize,
    readonly: c_int,
    ndim: c_int,
    fails: bool,
}

#[pymethods]
impl Exporter {
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        _flags: c_int,
    ) -> PyResult<()> {
        let exporter = slf.clone().into_any();
        let mut slf = slf.borrow_mut();
        if slf.fails {
            return Err(PyBufferError::new_err("fuzzed"));
        }
        BUFFERS.fetch_add(1, Ordering::SeqCst);
        let pointer =
            |all: &mut Option<Vec<isize>>| all.as_mut().map_or(null_mut(), Vec::as_mut_ptr);
        let filled = ffi::Py_buffer {
            buf: with_exposed_provenance_mut(slf.buf),
            obj: null_mut(),
            len: slf.len,
            itemsize: slf.itemsize,
            readonly: slf.readonly,
            ndim: slf.ndim,
            format: slf
                .format
                .as_ref()
                .map_or(null_mut(), |format| format.as_ptr().cast_mut()),
            shape: pointer(&mut slf.shape),
            strides: pointer(&mut slf.strides),
            suboffsets: pointer(&mut slf.suboffsets),
            internal: null_mut(),
        };
        // SAFETY: the struct of the consumer.
        unsafe { view.write(filled) };
        // SAFETY: as above; the buffer holds its exporter.
        unsafe { (*view).obj = exporter.into_ptr() };
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        BUFFERS.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(super) fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let shape = numbers(u)?;
    let itemsize = *u.choose(&[1, 2, 4, 8, 16, 3, 0, -4, isize::MAX])?;
    let strides = beside(u, &shape)?;
    let scaled = |all: &Vec<i64>| {
        all.iter()
            .map(|&n| (n as isize).wrapping_mul(itemsize))
            .collect()
    };
    let suboffsets = if u.ratio(1, 8)? {
        beside(u, &shape)?
    } else {
        None
    };
    let product = shape
        .iter()
        .fold(itemsize, |all, &n| all.wrapping_mul(n as isize));
    let exporter = Exporter {
        format: if u.ratio(1, 12)? {
            None
        } else if u.ratio(1, 8)? {
            CString::new(u.arbitrary::<Vec<u8>>()?).ok()
        } else {
            CString::new(*u.choose(&FORMATS)?).ok()
        },
        ndim: if u.ratio(1, 10)? {
            *u.choose(&[-1, 65, 1 << 20, c_int::MIN])?
        } else {
            shape.len() as c_int
        },
        strides: strides.as_ref().map(scaled),
        suboffsets: suboffsets.map(|all| all.iter().map(|&n| n as isize).collect()),
        shape: if u.ratio(1, 10)? {
            None
        } else {
            Some(shape.iter().map(|&n| n as isize).collect())
        },
        buf: address(u)?,
        len: if u.ratio(1, 6)? {
            number(u)? as isize
        } else {
            product
        },
        itemsize,
        readonly: c_int::from(u.arbitrary::<bool>()?),
        fails: u.ratio(1, 16)?,
    };
    with_python(|module| {
        let x = Bound::new(module.py(), exporter)
            .expect("an exporter")
            .into_any();
        if let Some(made) = imported(module, &x) {
            look(module, &made);
        }
        assert_eq!(
            BUFFERS.load(Ordering::SeqCst),
            0,
            "buffers that were not released"
        );
    });
    Ok(())
}
