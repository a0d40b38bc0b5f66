//! The `repr` of a tensor.

#![forbid(unsafe_code)]

use std::sync::atomic::Ordering;

use crate::abi::*;
use crate::tensor::checked::Meta;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::object::Tensor;
use crate::types::{device, dtype};

/// One line, which mentions only what differs from the defaults.
pub(crate) fn of(tensor: &Tensor) -> String {
    let Meta { dtype, device, .. } = tensor.snapshot.meta();
    let shape: Vec<String> = tensor.snapshot.shape().iter().map(i64::to_string).collect();
    let mut text = format!(
        "dlx.Tensor({}[{}], {}",
        dtype::name(dtype),
        shape.join(", "),
        device::name(device)
    );
    if !tensor.snapshot.is_row_major() {
        text += &format!(", strides={:?}", tensor.snapshot.strides());
    }
    for (flag, name) in [
        (DLPACK_FLAG_BITMASK_READ_ONLY, ", readonly"),
        (MAYBE_READ_ONLY, ", maybe readonly"),
        (DLPACK_FLAG_BITMASK_IS_COPIED, ", copied"),
        (DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, ", padded"),
    ] {
        if tensor.snapshot.has(flag) {
            text += name;
        }
    }
    if tensor.ended.load(Ordering::Relaxed) {
        text += ", ended";
    }
    text + ")"
}
