//! The flags of a tensor inside of dlx: those of DLPack, and private ones in bits that DLPack does not use.

#![forbid(unsafe_code)]

use crate::abi::*;
use crate::types::error::Error;

/// The memory may be read-only: it came in an unversioned struct, which cannot say (R43).
///
/// A private flag in a bit that DLPack does not use; it is refused in a foreign struct, and never written to one.
pub(crate) const MAYBE_READ_ONLY: u64 = 1 << 31;

/// The flags of memory that is read-only, or not.
#[inline(always)]
pub(crate) fn read_only(yes: bool) -> u64 {
    u64::from(yes) * DLPACK_FLAG_BITMASK_READ_ONLY
}

/// The lowest of the private bits that say by how much the minor version of an export exceeds that of dlx: 0, unless
/// DLPack 1.3 does not define its device type or dtype.
const BEYOND: u32 = 32;

/// The memory is read-only or may be.
pub(crate) const PROTECTED: u64 = DLPACK_FLAG_BITMASK_READ_ONLY | MAYBE_READ_ONLY;

/// The minor version of an export with these flags.
#[inline(always)]
pub(super) fn minor_of(flags: u64) -> u32 {
    DLPACK_MINOR_VERSION + (flags >> BEYOND) as u32
}

/// `flags` with the minor version of an export of what only a later DLPack defines: at least the one after dlx's, and the
/// one that is there.
#[cold]
#[inline(never)]
pub(crate) fn beyond(flags: u64, minor: u32) -> u64 {
    let beyond = minor.saturating_sub(DLPACK_MINOR_VERSION).max(1);
    flags & ((1 << BEYOND) - 1) | u64::from(beyond).max(flags >> BEYOND) << BEYOND
}

/// Whether the export is of what only a later DLPack defines.
#[inline(always)]
pub(crate) fn is_beyond(flags: u64) -> bool {
    flags >> BEYOND != 0
}

/// The flags of DLPack 1.3. Others may change what any field means.
pub(super) const KNOWN_FLAGS: u64 = DLPACK_FLAG_BITMASK_READ_ONLY
    | DLPACK_FLAG_BITMASK_IS_COPIED
    | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;

#[cold]
#[inline(never)]
pub(super) fn unknown_flags(unknown: u64) -> Error {
    Error::refused(format!(
        "flag {unknown:#x} is not defined by DLPack 1.3 ({KNOWN_FLAGS:#x} are); if the producer can do without it, \
         pass x.__dlpack__(), an unversioned capsule, which has no flags"
    ))
}
