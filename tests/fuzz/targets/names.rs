//! Names of dtypes and devices.

use arbitrary::{Result, Unstructured};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{accepted, with_python};

const PARTS: [&str; 28] = [
    "int",
    "uint",
    "float",
    "bfloat",
    "complex",
    "bool",
    "handle",
    "float8_e4m3fn",
    "float4_e2m1fn",
    "x",
    "8",
    "16",
    "32",
    "128",
    "0",
    "4",
    "65535",
    "65536",
    "torch.",
    "<dtype: '",
    "'>",
    "cpu",
    "cuda",
    "cuda_host",
    ":",
    "-1",
    "2147483648",
    "_",
];

pub(super) fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut text = String::new();
    for _ in 0..u.int_in_range(0..=6)? {
        if u.ratio(1, 5)? {
            text.push(u.arbitrary()?);
        } else {
            text.push_str(u.choose(&PARTS)?);
        }
    }
    with_python(|module| {
        let dlx = module.getattr("dlx").expect("dlx");
        for name in ["DType", "Device"] {
            let class = dlx.getattr(name).expect(name);
            let Some(made) = accepted(class.call1((&text,))) else {
                continue;
            };
            // Its own name gives it back, and is the only one that it equals.
            let own = made.str().expect("a name").into_any();
            let again = class.call1((&own,)).expect("its own name");
            assert!(again.eq(&made).expect("comparable"));
            let given = PyString::new(module.py(), &text).into_any();
            assert_eq!(
                made.eq(&given).expect("comparable"),
                own.eq(&given).expect("comparable")
            );
        }
    });
    Ok(())
}
