//! The array interfaces: the dicts of NumPy and CUDA, and the struct.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};

use arbitrary::{Result, Unstructured};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyTuple};

use super::managed::capsule;
use super::memory::{SIZE, address, look};
use super::numbers::{beside, number, numbers};
use super::{imported, said, with_attribute, with_python};

const TYPES: [&str; 16] = [
    "<f4", "<f8", "<f2", "|u1", "|b1", "<i8", "<c16", ">f4", "<f3", "|V2", "", "<", "<f04", "é4",
    "<m8", "<i1",
];

/// `PyArrayInterface`, as NumPy documents it.
#[repr(C)]
struct Struct {
    two: c_int,
    nd: c_int,
    typekind: c_char,
    itemsize: c_int,
    flags: c_int,
    shape: *mut isize,
    strides: *mut isize,
    data: *mut c_void,
    descr: *mut c_void,
}

pub(super) fn run(u: &mut Unstructured<'_>) -> Result<()> {
    match u.int_in_range(0..=3)? {
        0 => by_struct(u),
        1 => by_dict(u, "__cuda_array_interface__"),
        _ => by_dict(u, "__array_interface__"),
    }
}

fn check(module: &Bound<'_, PyModule>, x: &Bound<'_, PyAny>) {
    let Some(made) = imported(module, x) else {
        return;
    };
    look(module, &made);
}

fn by_struct(u: &mut Unstructured<'_>) -> Result<()> {
    let mut shape: Vec<isize> = numbers(u)?.iter().map(|&n| n as isize).collect();
    let like: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    let strides = beside(u, &like)?;
    let item = *u.choose(&[1, 2, 4, 8, 16, 3, 0, -1, c_int::MIN])?;
    let mut strides: Option<Vec<isize>> = strides.map(|all| {
        all.iter()
            .map(|&n| (n as isize).wrapping_mul(item as isize))
            .collect()
    });
    let mut made = Struct {
        two: if u.ratio(1, 16)? { u.arbitrary()? } else { 2 },
        nd: if u.ratio(1, 8)? {
            *u.choose(&[-1, 65, c_int::MAX])?
        } else {
            shape.len() as c_int
        },
        typekind: *u.choose(b"biufcVx\xff")? as c_char,
        itemsize: item,
        flags: if u.ratio(1, 4)? {
            u.arbitrary()?
        } else {
            0x600
        },
        shape: if u.ratio(1, 12)? {
            null_mut()
        } else {
            shape.as_mut_ptr()
        },
        strides: strides.as_mut().map_or(null_mut(), Vec::as_mut_ptr),
        data: with_exposed_provenance_mut(address(u)?),
        descr: null_mut(),
    };
    with_python(|module| {
        // The struct has an empty name, which NumPy's capsules have: NULL.
        let capsule = unnamed(capsule(module.py(), (&raw mut made).cast(), c""));
        let x = with_attribute(module, "__array_struct__", capsule).expect("an object");
        check(module, &x);
    });
    Ok(())
}

/// The capsule without its name.
fn unnamed(capsule: Bound<'_, PyAny>) -> Bound<'_, PyAny> {
    // SAFETY: attached, with a capsule.
    unsafe { pyo3::ffi::PyCapsule_SetName(capsule.as_ptr(), std::ptr::null()) };
    capsule
}

fn by_dict(u: &mut Unstructured<'_>, name: &str) -> Result<()> {
    let shape = numbers(u)?;
    let strides = beside(u, &shape)?;
    let item = *u.choose(&[1, 2, 4, 8, 16])?;
    let strides = strides.map(|all| {
        all.iter()
            .map(|&n| n.wrapping_mul(item))
            .collect::<Vec<_>>()
    });
    let typestr = *u.choose(&TYPES)?;
    let place = address(u)?;
    let (has_buffer, wrong) = (u.ratio(1, 3)?, u.int_in_range(0..=24)?);
    let (length, offset, read_only) = (
        u.int_in_range(0..=SIZE as usize)?,
        number(u)?,
        u.arbitrary::<bool>()?,
    );
    let stream = number(u)?;
    with_python(|module| {
        let py = module.py();
        let dict = PyDict::new(py);
        let fill = || -> PyResult<()> {
            dict.set_item("version", if wrong == 0 { stream } else { 3 })?;
            dict.set_item("typestr", typestr)?;
            dict.set_item("shape", PyTuple::new(py, &shape)?)?;
            if let Some(strides) = &strides {
                dict.set_item("strides", PyTuple::new(py, strides)?)?;
            }
            if has_buffer {
                dict.set_item("data", PyByteArray::new(py, &vec![7; length]))?;
                dict.set_item("offset", offset)?;
            } else {
                dict.set_item("data", (place, read_only))?;
            }
            match wrong {
                1 => dict.del_item("shape")?,
                2 => dict.del_item("data")?,
                3 => dict.set_item("typestr", 5)?,
                4 => dict.set_item("shape", "four")?,
                5 => dict.set_item("strides", (stream,))?,
                6 => dict.set_item("mask", (1, 2))?,
                7 => dict.set_item("descr", vec![("", "<f8")])?,
                8 => dict.set_item("stream", stream)?,
                9 => dict.set_item("data", (stream, stream, stream))?,
                10 => dict.set_item("data", (stream, read_only))?,
                _ => {}
            }
            Ok(())
        };
        fill().expect("a dict");
        let x = with_attribute(module, name, dict.into_any()).expect("an object");
        if has_buffer && wrong != 9 && wrong != 10 {
            // Its memory is not in the arena, so it is read as a whole: what dlx accepts lies inside.
            // Repeated elements may be any number.
            if let Some(made) = imported(module, &x)
                && said::<i64>(&made, "size") <= SIZE
            {
                super::accepted(super::call(module, "from_dlpack", &made, true));
            }
        } else {
            check(module, &x);
        }
    });
    Ok(())
}
