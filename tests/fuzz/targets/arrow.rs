//! Arrow's schemas and arrays, on the CPU and said to be elsewhere.

use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use arbitrary::{Result, Unstructured};
use pyo3::prelude::*;

use super::managed::capsule;
use super::memory::{SIZE, address, look, start};
use super::numbers::number;
use super::{imported, said, with_method, with_python};

#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut c_void,
    dictionary: *mut c_void,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *mut c_void,
    dictionary: *mut c_void,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct DeviceArray {
    array: Array,
    device_id: i64,
    device_type: i32,
    sync_event: *mut c_void,
    reserved: [i64; 3],
}

static RELEASED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: called with a schema of a case.
    unsafe { (*schema).release = None };
}

unsafe extern "C" fn release_array(array: *mut Array) {
    RELEASED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: called with the array of a case, or with what dlx has moved it to.
    unsafe { (*array).release = None };
}

/// The metadata of a schema: true to their lengths, as producers promise.
fn metadata(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const WORDS: [&str; 5] = [
        "ARROW:extension:name",
        "arrow.bool8",
        "arrow.opaque",
        "",
        "é",
    ];
    let count = u.int_in_range(0..=3)?;
    let mut bytes = i32::to_ne_bytes(count).to_vec();
    for _ in 0..count * 2 {
        let word = *u.choose(&WORDS)?;
        bytes.extend((word.len() as i32).to_ne_bytes());
        bytes.extend(word.bytes());
    }
    Ok(bytes)
}

pub(super) fn run(u: &mut Unstructured<'_>) -> Result<()> {
    const FORMATS: [&str; 20] = [
        "c", "C", "s", "S", "i", "I", "l", "L", "e", "f", "g", "b", "u", "+s", "+l", "w:4", "",
        "ff", "d:10,2", "n",
    ];
    let format = CString::new(*u.choose(&FORMATS)?).unwrap_or_default();
    let metadata = if u.ratio(1, 3)? {
        Some(metadata(u)?)
    } else {
        None
    };
    let mut schema = Schema {
        format: if u.ratio(1, 20)? {
            null()
        } else {
            format.as_ptr()
        },
        name: null(),
        metadata: metadata
            .as_ref()
            .map_or(null(), |bytes| bytes.as_ptr().cast()),
        flags: u.arbitrary()?,
        n_children: 0,
        children: null_mut(),
        dictionary: if u.ratio(1, 20)? {
            with_exposed_provenance_mut(start())
        } else {
            null_mut()
        },
        release: (!u.ratio(1, 20)?).then_some(release_schema),
        private_data: null_mut(),
    };
    let validity = if u.ratio(1, 4)? { start() } else { 0 };
    let data = address(u)?;
    let buffers =
        [validity, data].map(|place| with_exposed_provenance_mut::<c_void>(place).cast_const());
    let array = Array {
        length: number(u)?,
        null_count: if u.ratio(1, 3)? {
            *u.choose(&[-1, 1, i64::MIN, i64::MAX])?
        } else {
            0
        },
        offset: number(u)?,
        n_buffers: if u.ratio(1, 12)? { number(u)? } else { 2 },
        n_children: if u.ratio(1, 20)? { number(u)? } else { 0 },
        buffers: if u.ratio(1, 20)? {
            null()
        } else {
            buffers.as_ptr()
        },
        children: null_mut(),
        dictionary: null_mut(),
        release: (!u.ratio(1, 20)?).then_some(release_array),
        private_data: null_mut(),
    };
    let mut array = DeviceArray {
        array,
        device_id: number(u)?,
        device_type: if u.ratio(1, 6)? { u.arbitrary()? } else { 1 },
        sync_event: if u.ratio(1, 8)? {
            with_exposed_provenance_mut(start())
        } else {
            null_mut()
        },
        reserved: [0; 3],
    };
    let by_device: bool = u.arbitrary()?;
    // dlx reads the bits of nulls, and the bytes of bools: those have to be there.
    let end = i128::from(array.array.offset) + i128::from(array.array.length);
    let is_in_arena = data >= start() && data as i128 + end <= start() as i128 + i128::from(SIZE);
    let reads = array.array.length > 0
        && array.array.offset >= 0
        && (metadata.is_some() || array.array.null_count == -1);
    if reads && !(end < i128::from(SIZE) && (data == 0 || is_in_arena)) {
        return Ok(());
    }
    RELEASED.store(0, Ordering::SeqCst);
    let is_live = array.array.release.is_some();
    with_python(|module| {
        let py = module.py();
        let schema = capsule(py, (&raw mut schema).cast(), c"arrow_schema");
        let place = (&raw mut array).cast();
        let (method, name) = if by_device {
            ("__arrow_c_device_array__", c"arrow_device_array")
        } else {
            ("__arrow_c_array__", c"arrow_array")
        };
        let answer = (schema, capsule(py, place, name))
            .into_pyobject(py)
            .expect("a pair");
        let x = with_method(module, method, answer.into_any()).expect("an object");
        if let Some(made) = imported(module, &x) {
            assert_eq!(said::<Vec<i64>>(&made, "shape"), [array.array.length]);
            assert!(said::<bool>(&made, "readonly"));
            assert_eq!(RELEASED.load(Ordering::SeqCst), 0);
            look(module, &made);
        }
    });
    // SAFETY: a struct of this function.
    let is_taken = is_live && unsafe { (&raw const array.array.release).read_volatile() }.is_none();
    assert_eq!(
        RELEASED.load(Ordering::SeqCst),
        usize::from(is_taken),
        "calls of the release"
    );
    Ok(())
}
