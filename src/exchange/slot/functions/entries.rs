//! Functions of two instructions for each slot, which lead to those that all slots share.
//!
//! Each of the five is a block of machine code with an entry for each slot, in rows. An entry loads the offset of the
//! slot in its row and jumps to the end of the row, which makes it the offset in the pool, as one more argument, and
//! jumps on. Rows differ only in what their ends add, and nothing but code is kept of an entry, so a wheel has a few
//! bytes for a row where functions that the compiler makes take 0.1 kB for each slot.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};
use std::mem::transmute;

use super::super::{POOL, SLOTS, Slot};
use crate::abi::*;
use crate::exchange::published::allocate::allocate;
use crate::exchange::published::{
    Published, borrow_by_rules, from_py_object, to_py_object, work_stream,
};

/// Slots in a row: the first entry of a longer one would be too far from the end for a short jump.
const ROW: usize = 16;

/// The bytes of an entry, then those of the end of a row, as the code below has them.
#[cfg(target_arch = "x86_64")]
const SIZES: (usize, usize) = (7, 12);
#[cfg(target_arch = "aarch64")]
const SIZES: (usize, usize) = (8, 16);

const _: () = assert!(SLOTS.is_multiple_of(ROW) && ROW * size_of::<Slot>() < 1 << 16);

/// Defines a block of entries that call `$shared` with the offset of a slot in `$register`, that of the argument after
/// the last one of a table's function. The prefixes on x86 ask for the long form of numbers, whatever they are.
macro_rules! entries {
    ($name:ident, $shared:ident, $x86:literal, $arm:literal) => {
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        extern "C" fn $name() {
            naked_asm!(
                ".set dlx_row, 0",
                ".rept {rows}",
                ".set dlx_step, 0",
                ".rept {row}",
                "movl $dlx_step, %eax",
                "jmp 2f",
                ".set dlx_step, dlx_step + {slot}",
                ".endr",
                "2:",
                concat!("{{disp32}} leaq dlx_row(%rax), %", $x86),
                "{{disp32}} jmp {shared}",
                ".set dlx_row, dlx_row + {row} * {slot}",
                ".endr",
                rows = const SLOTS / ROW,
                row = const ROW,
                slot = const size_of::<Slot>(),
                shared = sym $shared,
                options(att_syntax),
            )
        }

        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        extern "C" fn $name() {
            naked_asm!(
                ".set dlx_row, 0",
                ".rept {rows}",
                ".set dlx_step, 0",
                ".rept {row}",
                "movz x16, #dlx_step",
                "b 2f",
                ".set dlx_step, dlx_step + {slot}",
                ".endr",
                "2:",
                "movz x17, #(dlx_row & 0xffff)",
                "movk x17, #(dlx_row >> 16), lsl #16",
                concat!("add ", $arm, ", x16, x17"),
                "b {shared}",
                ".set dlx_row, dlx_row + {row} * {slot}",
                ".endr",
                rows = const SLOTS / ROW,
                row = const ROW,
                slot = const size_of::<Slot>(),
                shared = sym $shared,
            )
        }
    };
}

entries!(allocators, managed_tensor_allocator, "r8", "x4");
entries!(exporters, managed_tensor_from_py_object, "rdx", "x2");
entries!(importers, managed_tensor_to_py_object, "rdx", "x2");
entries!(lenders, dltensor_from_py_object, "rdx", "x2");
entries!(streams, current_work_stream, "rcx", "x3");

/// The entry of the slot at `index` in a block.
fn entry(block: extern "C" fn(), index: usize) -> *const () {
    let (one, end) = SIZES;
    let offset = index * one + index / ROW * end;
    (block as *const ()).wrapping_byte_add(offset)
}

/// The table of the slot at `index`, with a borrow function if it `lends`.
pub(in crate::exchange::slot) fn table(index: usize, lends: bool) -> Published {
    assert!(index < SLOTS);
    // SAFETY: the block has an entry for each slot, which passes the arguments of this type on, and one more.
    let allocator: DLPackManagedTensorAllocator = unsafe { transmute(entry(allocators, index)) };
    // SAFETY: as above.
    let from: DLPackManagedTensorFromPyObjectNoSync = unsafe { transmute(entry(exporters, index)) };
    // SAFETY: as above.
    let to: DLPackManagedTensorToPyObjectNoSync = unsafe { transmute(entry(importers, index)) };
    // SAFETY: as above.
    let borrow: DLPackDLTensorFromPyObjectNoSync = unsafe { transmute(entry(lenders, index)) };
    // SAFETY: as above.
    let stream: DLPackCurrentWorkStream = unsafe { transmute(entry(streams, index)) };
    Published::new(allocator, from, to, lends.then_some(borrow), stream)
}

/// The slot at an offset in the pool.
///
/// # Safety
///
/// An entry passes the offset.
#[inline(always)]
unsafe fn slot(offset: usize) -> &'static Slot {
    // SAFETY: each entry passes the offset of its own slot.
    let slot = unsafe { POOL.as_ptr().byte_add(offset) };
    // SAFETY: a slot of the pool, which is static.
    unsafe { &*slot }
}

unsafe extern "C" fn managed_tensor_from_py_object(
    py_object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
    offset: usize,
) -> c_int {
    // SAFETY: an entry calls this.
    let slot = unsafe { slot(offset) };
    // SAFETY: the caller of the table obeys `dlpack.h` (S2, callers).
    unsafe { from_py_object(slot, py_object, out) }
}

unsafe extern "C" fn dltensor_from_py_object(
    py_object: *mut c_void,
    out: *mut DLTensor,
    offset: usize,
) -> c_int {
    // SAFETY: an entry calls this.
    let slot = unsafe { slot(offset) };
    // SAFETY: the caller of the table obeys `dlpack.h` (S2).
    unsafe { borrow_by_rules(slot, py_object, out) }
}

unsafe extern "C" fn managed_tensor_to_py_object(
    tensor: *mut DLManagedTensorVersioned,
    out_py_object: *mut *mut c_void,
    offset: usize,
) -> c_int {
    // SAFETY: an entry calls this.
    let slot = unsafe { slot(offset) };
    // SAFETY: the caller of the table obeys `dlpack.h` (S2).
    unsafe { to_py_object(slot, tensor, out_py_object) }
}

unsafe extern "C" fn current_work_stream(
    device_type: DLDeviceType,
    device_id: i32,
    out_current_stream: *mut *mut c_void,
    offset: usize,
) -> c_int {
    let device = DLDevice {
        device_type,
        device_id,
    };
    // SAFETY: an entry calls this.
    let slot = unsafe { slot(offset) };
    // SAFETY: the caller of the table obeys `dlpack.h` (S2).
    unsafe { work_stream(slot, device, out_current_stream) }
}

unsafe extern "C" fn managed_tensor_allocator(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<SetError>,
    offset: usize,
) -> c_int {
    // SAFETY: an entry calls this.
    let slot = unsafe { slot(offset) };
    // SAFETY: the caller of the table obeys `dlpack.h` (S2).
    unsafe { allocate(slot, prototype, out, error_ctx, set_error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn third(_: usize, _: usize, offset: usize) -> usize {
        offset
    }

    extern "C" fn fourth(_: usize, _: usize, _: usize, offset: usize) -> usize {
        offset
    }

    extern "C" fn fifth(_: usize, _: usize, _: usize, _: usize, offset: usize) -> usize {
        offset
    }

    entries!(thirds, third, "rdx", "x2");
    entries!(fourths, fourth, "rcx", "x3");
    entries!(fifths, fifth, "r8", "x4");

    type Two = extern "C" fn(usize, usize) -> usize;
    type Three = extern "C" fn(usize, usize, usize) -> usize;
    type Four = extern "C" fn(usize, usize, usize, usize) -> usize;

    #[test]
    fn each_entry_passes_the_offset_of_its_slot_after_the_arguments() {
        for index in 0..SLOTS {
            // SAFETY: an entry of each slot, which passes this many arguments on, and one more.
            let two: Two = unsafe { transmute(entry(thirds, index)) };
            // SAFETY: as above.
            let three: Three = unsafe { transmute(entry(fourths, index)) };
            // SAFETY: as above.
            let four: Four = unsafe { transmute(entry(fifths, index)) };
            let offset = index * size_of::<Slot>();
            assert_eq!([two(1, 2), three(1, 2, 3), four(1, 2, 3, 4)], [offset; 3]);
        }
    }
}
