//! The memory that producers claim, and what its elements are.

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use pyo3::prelude::*;

use super::{accepted, call, said};
use crate::abi::{DLDataType, DLDataTypeCode};

/// Bytes of the arena.
pub(super) const SIZE: i64 = 1 << 12;

/// Bytes that nothing writes to; no two of a run of eight are alike by chance only.
static ARENA: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let scrambled = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (n << 7);
    (1..=SIZE as u64 / 8).map(scrambled).collect()
});

/// The address of the first byte.
pub(super) fn start() -> usize {
    ARENA.as_ptr().expose_provenance()
}

/// An address: in the arena, NULL, or nowhere.
pub(super) fn address(u: &mut Unstructured<'_>) -> Result<usize> {
    Ok(match u.int_in_range(0..=9)? {
        0 => 0,
        1 => u.arbitrary()?,
        2..=4 => start() + u.int_in_range(0..=SIZE as usize)?,
        _ => start() + SIZE as usize / 2,
    })
}

/// Whether the `bits` from `low` to `high` elements beside `address` are in the arena.
pub(super) fn is_inside(address: usize, low: i128, high: i128, bits: u32) -> bool {
    let bits = i128::from(bits);
    let first = address as i128 - start() as i128 + (low * bits).div_euclid(8);
    let end = address as i128 - start() as i128 + ((high + 1) * bits + 7).div_euclid(8);
    first >= 0 && end <= i128::from(SIZE)
}

/// The lowest and the highest offset of a tensor that has elements.
pub(super) fn reach(shape: &[i64], strides: &[i64]) -> (i128, i128) {
    let steps = shape
        .iter()
        .zip(strides)
        .map(|(&n, &s)| (i128::from(n) - 1) * i128::from(s));
    steps.fold((0, 0), |(low, high), step| {
        (low + step.min(0), high + step.max(0))
    })
}

/// The offsets of all elements, the last dimension fastest.
pub(super) fn offsets(shape: &[i64], strides: &[i64]) -> Vec<i64> {
    let mut all = vec![0];
    for (&extent, &stride) in shape.iter().zip(strides) {
        all = all
            .iter()
            .flat_map(|start| (0..extent).map(move |i| start + i * stride))
            .collect();
    }
    all
}

/// Asks a tensor for all that it says of itself, and reads its elements.
pub(super) fn look(module: &Bound<'_, PyModule>, tensor: &Bound<'_, PyAny>) {
    let look = module.getattr("look").expect("look");
    look.call1((tensor,)).expect("only refusals");
    let dtype = tensor.getattr("dtype").expect("a dtype");
    let dtype = DLDataType {
        code: DLDataTypeCode(said(&dtype, "code")),
        bits: said(&dtype, "bits"),
        lanes: said(&dtype, "lanes"),
    };
    check_copy(module, tensor, dtype);
}

/// Reads the elements of a tensor, where all are in the arena, and compares them with what they are.
pub(super) fn check_copy(
    module: &Bound<'_, PyModule>,
    tensor: &Bound<'_, PyAny>,
    dtype: DLDataType,
) {
    let (shape, strides): (Vec<i64>, Vec<i64>) = (said(tensor, "shape"), said(tensor, "strides"));
    let bits = u32::from(dtype.bits) * u32::from(dtype.lanes);
    let count = shape.iter().try_fold(1_i64, |all, &n| all.checked_mul(n));
    let Some(count) = count.filter(|count| (1..=SIZE).contains(count)) else {
        return;
    };
    let (address, device): (usize, String) = (
        said(tensor, "data_ptr"),
        tensor.getattr("device").expect("device").to_string(),
    );
    let (low, high) = reach(&shape, &strides);
    // Elements may be padded to whole bytes.
    let all = bits.next_multiple_of(8);
    if device != "cpu" || !is_inside(address, low, high, all) {
        return;
    }
    let Some(copied) = accepted(call(module, "from_dlpack", tensor, true)) else {
        return;
    };
    assert_eq!(said::<Vec<i64>>(&copied, "shape"), shape);
    assert!(said::<bool>(&copied, "is_contiguous"));
    if bits % 8 != 0 {
        return;
    }
    let item = (bits / 8) as usize;
    let bytes: Vec<u8> = ARENA.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let first = address - start();
    let expected: Vec<u8> = offsets(&shape, &strides)
        .iter()
        .flat_map(|&offset| {
            let at = (first as i64 + offset * item as i64) as usize;
            bytes[at..at + item].to_vec()
        })
        .collect();
    assert_eq!(expected.len() as i64, count * item as i64);
    let raw = copied
        .call_method0("raw")
        .expect("a compact tensor has bytes");
    let got: Vec<u8> = raw
        .call_method0("tobytes")
        .expect("a view")
        .extract()
        .expect("bytes");
    assert_eq!(
        got, expected,
        "shape {shape:?}, strides {strides:?}, itemsize {item}"
    );
}
