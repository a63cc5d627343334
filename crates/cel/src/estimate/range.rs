//! Ranges of costs and sizes.

/// The least and the most of a cost or a size. Sums and products end at the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

impl Range {
    /// Nothing is known.
    pub const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    /// Exactly this.
    pub const fn exactly(value: u64) -> Range {
        Range { min: value, max: value }
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    /// The product.
    #[must_use]
    pub fn times(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// The product with a factor, rounded up.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Range {
        // A float beyond the integers becomes the largest one.
        let scaled = |value: u64| (value as f64 * factor).ceil() as u64;
        Range { min: scaled(self.min), max: scaled(self.max) }
    }

    /// The smallest range that includes both.
    #[must_use]
    pub fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}
