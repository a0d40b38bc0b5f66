//! Shapes, strides and dtypes, compared with exact arithmetic.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;

use arbitrary::{Result, Unstructured};

use super::memory::{offsets, reach};
use super::numbers::{beside, dtype, numbers};
use crate::tensor::checked::{Checked, Meta};
use crate::types::dtype;
use crate::types::layout::{
    MAX_NDIM, byte_span, element_strides, has_no_gaps, is_column_major, is_row_major, nbytes, span,
};

/// Most elements that are looked at one by one.
const FEW: i64 = 4096;

pub(super) fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let kind = dtype(u)?;
    let shape = numbers(u)?;
    let strides = beside(u, &shape)?;
    let meta = Meta::on_cpu(without_provenance_mut::<c_void>(1 << 40), kind, 0);
    let checked = Checked::new(meta, &shape, strides.as_deref());
    assert_eq!(
        checked.is_ok(),
        is_right(kind, &shape, strides.as_deref()),
        "{shape:?} {strides:?}"
    );
    let Ok(checked) = checked else { return Ok(()) };
    let (size, bits) = (checked.size, dtype::bits(kind));
    assert!(nbytes(size, bits) <= nbytes(size, bits.next_multiple_of(8)));
    let _ = checked.addressable();
    let item = i64::from(bits.div_ceil(8));
    let Some(strides) = strides.filter(|_| size > 0) else {
        return Ok(());
    };
    let bytes: Option<Vec<i64>> = strides
        .iter()
        .map(|stride| stride.checked_mul(item))
        .collect();
    if let Some(bytes) = bytes {
        assert_eq!(
            element_strides(&shape, &bytes, item).ok().as_ref(),
            Some(&strides)
        );
    }
    let (low, high) = reach(&shape, &strides);
    let found = span(&shape, &strides).map(|(low, high)| (i128::from(low), i128::from(high)));
    assert_eq!(found.ok(), Some((low, high)));
    if size > FEW {
        return Ok(());
    }
    let all = offsets(&shape, &strides);
    assert_eq!(all.len() as i64, size);
    let distinct: BTreeSet<i64> = all.iter().copied().collect();
    assert_eq!(
        has_no_gaps(&shape, &strides),
        distinct.len() as i128 == high - low + 1
    );
    let forward: Vec<usize> = (0..shape.len()).collect();
    let backward: Vec<usize> = forward.iter().rev().copied().collect();
    let compact = |order: &[usize]| {
        let mut expected = 1;
        order.iter().all(|&at| {
            let is_it = shape[at] == 1 || strides[at] == expected;
            expected *= shape[at];
            is_it
        })
    };
    assert_eq!(is_row_major(&shape, &strides), compact(&backward));
    assert_eq!(is_column_major(&shape, &strides), compact(&forward));
    assert_eq!(
        is_row_major(&shape, &strides),
        all.iter().copied().eq(0..size)
    );
    let (start, end) = byte_span(size, &shape, Some(&strides), bits)
        .unwrap_or_else(|error| panic!("its span has been checked: {}", error.message()));
    let bits = i128::from(bits);
    assert!(start * 8 <= low * bits && low * bits < start * 8 + 8);
    assert!(end * 8 >= (high + 1) * bits && end * 8 < (high + 1) * bits + 8);
    Ok(())
}

/// Whether dlx should accept the description, in numbers that do not overflow.
fn is_right(kind: crate::abi::DLDataType, shape: &[i64], strides: Option<&[i64]>) -> bool {
    let fits = |number: i128| i64::try_from(number).is_ok();
    if shape.len() > MAX_NDIM || dtype::check(kind).is_err() || shape.iter().any(|&n| n < 0) {
        return false;
    }
    let item = i128::from(dtype::bits(kind).div_ceil(8));
    let product = shape
        .iter()
        .try_fold(1_i64, |all, &n| all.checked_mul(n.max(1)));
    let Some(product) = product else { return false };
    if shape.contains(&0) {
        return true;
    }
    let Some(strides) = strides else {
        return fits(i128::from(product) * item);
    };
    let (low, high) = reach(shape, strides);
    fits(i128::from(product) * item) && fits(low * item) && fits(high * item)
}
