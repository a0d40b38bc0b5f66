//! Numbers, shapes and dtypes that are likely to be wrong in an interesting way.

use arbitrary::{Result, Unstructured};

use crate::abi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType};

const EDGES: [i64; 14] = [
    i64::MIN,
    i64::MIN + 1,
    i64::MAX,
    i64::MAX - 1,
    i64::MAX / 2,
    i64::MAX / 8,
    i64::MAX / 8 + 1,
    1 << 62,
    1 << 32,
    1 << 31,
    -(1 << 31),
    -1,
    u32::MAX as i64,
    64,
];

/// A number, mostly small.
pub(super) fn number(u: &mut Unstructured<'_>) -> Result<i64> {
    match u.int_in_range(0..=9)? {
        0 => u.arbitrary(),
        1 => u.choose(&EDGES).copied(),
        2..=3 => u.int_in_range(-9..=9),
        _ => u.int_in_range(0..=5),
    }
}

/// Some numbers, rarely more than a tensor has dimensions.
pub(super) fn numbers(u: &mut Unstructured<'_>) -> Result<Vec<i64>> {
    let count = match u.int_in_range(0..=15)? {
        0 => u.int_in_range(0..=66)?,
        _ => u.int_in_range(0..=4)?,
    };
    (0..count).map(|_| number(u)).collect()
}

/// As many numbers as `like` has, or none.
pub(super) fn beside(u: &mut Unstructured<'_>, like: &[i64]) -> Result<Option<Vec<i64>>> {
    if u.ratio(1, 4)? {
        return Ok(None);
    }
    if u.ratio(1, 3)? {
        let compact = |at: usize| {
            like[at + 1..]
                .iter()
                .fold(1_i64, |all, &n| all.wrapping_mul(n.max(1)))
        };
        return Ok(Some((0..like.len()).map(compact).collect()));
    }
    like.iter()
        .map(|_| number(u))
        .collect::<Result<_>>()
        .map(Some)
}

/// A dtype, mostly one of DLPack's.
pub(super) fn dtype(u: &mut Unstructured<'_>) -> Result<DLDataType> {
    const KNOWN: [(u8, u8); 12] = [
        (0, 8),
        (0, 64),
        (1, 4),
        (1, 1),
        (2, 16),
        (2, 32),
        (4, 16),
        (5, 128),
        (6, 8),
        (10, 8),
        (15, 6),
        (17, 4),
    ];
    if u.ratio(1, 6)? {
        let (code, bits, lanes) = u.arbitrary()?;
        let code = DLDataTypeCode(code);
        return Ok(DLDataType { code, bits, lanes });
    }
    let (code, bits) = *u.choose(&KNOWN)?;
    let lanes = if u.ratio(1, 8)? {
        u.int_in_range(0..=4)?
    } else {
        1
    };
    let code = DLDataTypeCode(code);
    Ok(DLDataType { code, bits, lanes })
}

/// A device, mostly the CPU: there is no driver here.
pub(super) fn device(u: &mut Unstructured<'_>) -> Result<DLDevice> {
    let (device_type, device_id) = if u.ratio(1, 4)? {
        u.arbitrary()?
    } else {
        (1, 0)
    };
    let device_type = DLDeviceType(if u.ratio(1, 2)? {
        device_type % 24
    } else {
        device_type
    });
    Ok(DLDevice {
        device_type,
        device_id,
    })
}
