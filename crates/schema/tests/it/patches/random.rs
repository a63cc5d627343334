//! Chance from a seed.

/// A generator of numbers (SplitMix64).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Of one case: no case depends on those before it.
    pub(super) fn of_case(seed: u64, case: usize) -> Self {
        let mut random = Self(seed.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let first = random.next();
        Self(first ^ (case as u64).wrapping_mul(0xa076_1d64_78bd_642f))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }

    /// True in so many of a thousand cases.
    pub(super) fn chance(&mut self, permille: usize) -> bool {
        self.below(1000) < permille
    }

    pub(super) fn of<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}
