//! The tables of the pool. Each slot has five functions of its own, since no argument tells whose table was called.

#![forbid(unsafe_code)]

use super::{POOL, SLOTS, Slot};
use crate::exchange::published::{self, ExchangeType, Published};

/// Identifies slot `N` to the functions of its table.
struct Numbered<const N: usize>;

impl<const N: usize> ExchangeType for Numbered<N> {
    type Exchange = Slot;

    #[inline(always)]
    fn exchange() -> Option<&'static Slot> {
        POOL[N].get()
    }
}

const ROW: usize = 16;

macro_rules! rows {
    ($($start:literal)*) => {
        [$(rows![$start: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]),*]
    };
    ($start:literal: $($step:literal)*) => {
        [$(published::table::<Numbered<{ $start + $step }>>()),*]
    };
}

static TABLES: [[Published; ROW]; SLOTS / ROW] = rows![
    0 16 32 48 64 80 96 112 128 144 160 176 192 208 224 240
    256 272 288 304 320 336 352 368 384 400 416 432 448 464 480 496
];

/// The table of the slot at `index`, with a borrow function if it `lends` (R122).
pub(super) fn table(index: usize, lends: bool) -> Published {
    TABLES[index / ROW][index % ROW].lending(lends)
}
