//! Strided copies against the definition: one element at a time.

use super::*;

/// A small generator of numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A source of random layout, and loops that copy it to a compact destination, outermost first.
struct Case {
    source: Vec<u8>,
    start: i64,
    loops: Vec<Dimension>,
    item: i64,
}

impl Case {
    /// Extents up to `longest`; strides that are permuted, reversed, repeated and spaced.
    fn random(numbers: &mut Numbers, item: i64, longest: u64) -> Self {
        let ndim = numbers.below(5) as usize;
        // As many elements as two long dimensions have.
        let longest = if ndim > 2 { 9 } else { longest };
        let extents: Vec<i64> = (0..ndim)
            .map(|_| 1 + numbers.below(longest) as i64)
            .collect();
        let mut order: Vec<usize> = (0..ndim).collect();
        for index in (1..ndim).rev() {
            order.swap(index, numbers.below(index as u64 + 1) as usize);
        }
        let (mut from, mut span, mut start) = (vec![0; ndim], item, 0);
        for &index in order.iter().rev() {
            let stride = span + item * numbers.below(2) as i64;
            match numbers.below(6) {
                0 => from[index] = 0,
                1 => {
                    from[index] = -stride;
                    start += stride * (extents[index] - 1);
                    span = stride * extents[index];
                }
                _ => {
                    from[index] = stride;
                    span = stride * extents[index];
                }
            }
        }
        let mut loops = vec![];
        let mut to = item;
        for index in (0..ndim).rev() {
            loops.insert(0, Dimension::new(extents[index], from[index], to));
            to *= extents[index];
        }
        let source = (0..span + item).map(|_| numbers.below(256) as u8).collect();
        Self {
            source,
            start,
            loops,
            item,
        }
    }

    /// The bytes of the destination, by the definition.
    fn expected(&self) -> Vec<u8> {
        let mut offsets = vec![self.start];
        for each in &self.loops {
            let inner = |&start: &i64| (0..each.extent).map(move |i| start + i * each.from);
            offsets = offsets.iter().flat_map(inner).collect();
        }
        let element = |start: i64| &self.source[start as usize..(start + self.item) as usize];
        offsets.into_iter().flat_map(element).copied().collect()
    }

    /// Where the first element is read.
    fn from(&self) -> *const u8 {
        self.source.as_ptr().wrapping_offset(self.start as isize)
    }
}

#[test]
fn loops_copy_what_their_definition_says() {
    let mut numbers = Numbers(1);
    for round in 0..600 {
        let item = [1, 2, 4, 8, 16, 3, 12][round % 7];
        let case = Case::random(&mut numbers, item, if round % 5 == 0 { 150 } else { 9 });
        let expected = case.expected();
        let loops = reduced(case.loops.clone());
        // The destination begins at and off a cache line.
        for skip in [0, 1, 64] {
            let mut made = vec![0xAA; expected.len() + 128];
            // SAFETY: the loops read within `source`, and write `expected.len()` bytes behind `skip`.
            unsafe {
                copy(
                    &loops,
                    item,
                    case.from(),
                    made.as_mut_ptr().wrapping_add(skip),
                )
            };
            assert!(made[skip..][..expected.len()] == expected, "{loops:?}");
            assert!(made[..skip].iter().all(|&byte| byte == 0xAA), "{loops:?}");
            assert!(
                made[skip + expected.len()..]
                    .iter()
                    .all(|&byte| byte == 0xAA)
            );
        }
    }
}
