//! Sets of completion indexes, in the compressed text of a Job's status: `0-3,5,7,8`.

use std::collections::BTreeSet;
use std::fmt;

/// A set of completion indexes, as ordered ranges that do not touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads the text of a status or of a rule; ranges that cannot be read are skipped, and
    /// indexes from `completions` on do not count.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let ranges = text.split(',').filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.parse().ok()?, last.parse::<i32>().ok()?.min(completions - 1)))
        });
        Self::of_ranges(ranges.filter(|(first, last)| 0 <= *first && first <= last).collect())
    }

    pub(super) fn of(indexes: impl IntoIterator<Item = i32>) -> Self {
        Self::of_ranges(indexes.into_iter().map(|index| (index, index)).collect())
    }

    fn of_ranges(mut ranges: Vec<(i32, i32)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(i32, i32)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// The union with another set.
    pub(super) fn with(&self, other: &Self) -> Self {
        Self::of_ranges(self.0.iter().chain(&other.0).copied().collect())
    }

    pub(super) fn len(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// How many indexes of this set the other one has too.
    pub(super) fn n_common(&self, other: &Self) -> i32 {
        let common = self.0.iter().map(|(first, last)| {
            let from = other.0.partition_point(|(_, end)| end < first);
            let overlapping = other.0.iter().skip(from).take_while(|(start, _)| start <= last);
            overlapping.map(|(start, end)| end.min(last) - start.max(first) + 1).sum::<i32>()
        });
        common.sum()
    }

    /// The first `n` indexes below `completions` that are not in this set.
    pub(super) fn missing(&self, n: usize, completions: i32) -> Vec<i32> {
        let mut missing = Vec::new();
        let mut next = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            let first = first.min(completions);
            while next < first && missing.len() < n {
                missing.push(next);
                next += 1;
            }
            next = next.max(last.saturating_add(1));
        }
        missing
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (first, last)) in self.0.iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            write!(f, "{comma}{first}")?;
            // Two neighbors are listed, not a range.
            match last - first {
                0 => {}
                1 => write!(f, ",{last}")?,
                _ => write!(f, "-{last}")?,
            }
        }
        Ok(())
    }
}

impl FromIterator<i32> for Indexes {
    fn from_iter<T: IntoIterator<Item = i32>>(indexes: T) -> Self {
        Self::of(indexes.into_iter().collect::<BTreeSet<i32>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_set_agree() {
        for (text, completions, expected) in [
            ("", 5, ""),
            ("0-3,5", 9, "0-3,5"),
            ("0,1", 9, "0,1"),
            ("0,1,2", 9, "0-2"),
            ("0-8", 4, "0-3"),
            ("1,7", 4, "1"),
            ("x,2,-3,5-4", 9, "2"),
        ] {
            assert_eq!(Indexes::parse(text, completions).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn sets_agree_with_a_set_of_numbers() {
        // Every pair of subsets of seven indexes.
        for (a, b) in (0..128_u32).flat_map(|a| (0..128_u32).map(move |b| (a, b))) {
            let members = |bits: u32| (0..7).filter(move |index| bits & (1 << index) != 0);
            let (left, right) = (Indexes::of(members(a)), Indexes::of(members(b)));
            assert_eq!(left.len(), i32::try_from(a.count_ones()).unwrap());
            assert_eq!(left.with(&right), members(a | b).collect());
            assert_eq!(left.n_common(&right), i32::try_from((a & b).count_ones()).unwrap());
            assert!((0..8).all(|index| left.contains(index) == (a & (1 << index) != 0)));
            let missing: Vec<i32> = members(!a & 127).take(3).collect();
            assert_eq!(left.missing(3, 7), missing, "{left}");
            assert_eq!(Indexes::parse(&left.to_string(), 7), left);
        }
    }
}
