//! The innermost loops of a strided copy: a run of elements, and tiles that are transposed.

use std::ptr::copy_nonoverlapping;

use super::dimension::{Dimension, step, step_mut};

/// Bytes of a cache line, and those that the caches may hold.
const CACHE_LINE: usize = 64;
const CACHED: i64 = 32 << 20;

/// Whether `to` is aligned to a cache line.
fn begins_line(to: *mut u8) -> bool {
    to.addr().is_multiple_of(CACHE_LINE)
}

/// Copies a run of elements of type `T`.
///
/// # Safety
///
/// Every element that the loop reaches from `from` is readable, every one that it reaches from `to` is writable, and
/// the two do not overlap.
pub(super) unsafe fn run<T: Copy>(run: Dimension, from: *const u8, to: *mut u8) {
    let size = size_of::<T>() as i64;
    if run.from == size && run.to == size {
        // SAFETY: `extent` contiguous elements on either side.
        unsafe { copy_nonoverlapping(from, to, (run.extent * size) as usize) };
    } else if run.from == 0 && run.to == size {
        // SAFETY: the element that every step reads.
        let element = unsafe { from.cast::<T>().read_unaligned() };
        for index in 0..run.extent as usize {
            // SAFETY: one step of the loop.
            unsafe { to.cast::<T>().wrapping_add(index).write_unaligned(element) };
        }
    } else {
        for index in 0..run.extent {
            let (from, to) = (step(from, run.from, index), step_mut(to, run.to, index));
            // SAFETY: one step of the loop.
            let element = unsafe { from.cast::<T>().read_unaligned() };
            // SAFETY: as above.
            unsafe { to.cast::<T>().write_unaligned(element) };
        }
    }
}

/// Copies two loops, the inner one contiguous in `to`, tile by tile. `LINE` elements fill a cache line, and `PART` by
/// `PART` fit into registers.
///
/// # Safety
///
/// As for [`run`], of both loops.
pub(super) unsafe fn tiles<T: Copy + Default, const LINE: usize, const PART: usize>(
    rows: Dimension,
    columns: Dimension,
    from: *const u8,
    to: *mut u8,
) {
    let size = size_of::<T>() as i64;
    let line = LINE as i64;
    let count = |whole: Dimension| (whole.extent as usize).div_ceil(LINE);
    let part = |whole: Dimension, index: usize| {
        let start = index as i64 * line;
        (start, line.min(whole.extent - start))
    };
    // Beyond the caches, scattered reads cost more than scattered writes of whole lines.
    let in_lines = begins_line(to) && rows.to % CACHE_LINE as i64 == 0;
    let (far, span) = (columns.from.abs(), columns.from.abs() * columns.extent);
    let by_columns = in_lines && far >= rows.to.abs() / 4 && span >= CACHED;
    for block in 0..count(rows) * count(columns) {
        let (row, column) = if by_columns {
            (block % count(rows), block / count(rows))
        } else {
            (block / count(columns), block % count(columns))
        };
        let ((row, height), (column, width)) = (part(rows, row), part(columns, column));
        let from = step(step(from, rows.from, row), columns.from, column);
        let to = step_mut(step_mut(to, rows.to, row), columns.to, column);
        if rows.from == size && height == line && width == line {
            // SAFETY: a whole tile, contiguous along the rows of `from` and the columns of `to`.
            unsafe { transpose::<T, LINE, PART>(columns.from, rows.to, from, to) };
            continue;
        }
        let part = Dimension::new(width, columns.from, columns.to);
        for row in 0..height {
            let (from, to) = (step(from, rows.from, row), step_mut(to, rows.to, row));
            // SAFETY: part of a row.
            unsafe { run::<T>(part, from, to) };
        }
    }
}

/// Transposes a tile of `LINE` lines of `LINE` elements, `from_pitch` and `to_pitch` bytes apart.
///
/// # Safety
///
/// The tile is readable at `from` and writable at `to`.
unsafe fn transpose<T: Copy + Default, const LINE: usize, const PART: usize>(
    from_pitch: i64,
    to_pitch: i64,
    from: *const u8,
    to: *mut u8,
) {
    let mut turned = [[T::default(); LINE]; LINE];
    for column in (0..LINE).step_by(PART) {
        for row in (0..LINE).step_by(PART) {
            let mut part = [[T::default(); PART]; PART];
            for (index, elements) in part.iter_mut().enumerate() {
                let line = step(from, from_pitch, (column + index) as i64).cast::<T>();
                let start = line.wrapping_add(row).cast::<[T; PART]>();
                // SAFETY: `PART` elements of one line of the tile.
                *elements = unsafe { start.read_unaligned() };
            }
            for index in 0..PART {
                let across: [T; PART] = std::array::from_fn(|column| part[column][index]);
                turned[row + index][column..column + PART].copy_from_slice(&across);
            }
        }
    }
    for (row, line) in turned.iter().enumerate() {
        // SAFETY: one line of the tile, contiguous in `to`.
        unsafe { write_line(line, step_mut(to, to_pitch, row as i64)) };
    }
}

/// Writes one cache line, past the caches if it is aligned, since it is not read soon.
///
/// # Safety
///
/// The 64 bytes of `line` can be written to `to`.
unsafe fn write_line<T: Copy, const LINE: usize>(line: &[T; LINE], to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if begins_line(to) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let from: *const __m128i = line.as_ptr().cast();
        let to: *mut __m128i = to.cast();
        for index in 0..size_of_val(line) / size_of::<__m128i>() {
            // SAFETY: 16 bytes of the line; SSE2 is part of every x86-64.
            let quarter = unsafe { _mm_loadu_si128(from.wrapping_add(index)) };
            // SAFETY: as above, and `to` is aligned.
            unsafe { _mm_stream_si128(to.wrapping_add(index), quarter) };
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { copy_nonoverlapping(line.as_ptr().cast(), to, size_of_val(line)) };
}
