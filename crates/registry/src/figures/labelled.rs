//! Series by labels whose values are found out at run time.

use super::{Distribution, Histogram, Labels, NAMES_MAX};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What is counted beyond [`NAMES_MAX`] series.
const OTHER: &str = "other";
/// Between the values in a key. No label contains it.
const SEPARATOR: char = '\0';

/// The series of families with the same labels, each with the counts of one `T`. After
/// [`NAMES_MAX`] series, the values of the first `n_chosen` labels, which users may choose, are
/// `other`.
///
/// Counting takes a lock of readers.
#[derive(Debug)]
pub struct Labelled<T> {
    labels: &'static [&'static str],
    n_chosen: usize,
    make: fn() -> T,
    series: RwLock<HashMap<String, T>>,
}

impl<T> Labelled<T> {
    /// No series. `make`: the counts of a new one.
    pub fn new(labels: &'static [&'static str], n_chosen: usize, make: fn() -> T) -> Labelled<T> {
        Labelled { labels, n_chosen, make, series: RwLock::default() }
    }

    /// Counts in one series.
    fn count(&self, values: &[&str], add: impl FnOnce(&T)) {
        let mut key = key(values);
        {
            let series = self.series.read();
            if let Some(counts) = series.get(&key) {
                return add(counts);
            }
        }
        let mut series = self.series.write();
        if series.len() >= NAMES_MAX && !series.contains_key(&key) {
            let chosen = std::iter::repeat_n(OTHER, self.n_chosen.min(values.len()));
            let others = values.iter().copied().skip(self.n_chosen);
            key = self::key(&chosen.chain(others).collect::<Vec<_>>());
        }
        add(series.entry(key).or_insert_with(self.make));
    }

    /// The series in the order of their values.
    fn read<R>(&self, read: impl Fn(&T) -> R) -> Vec<(Labels, R)> {
        let series = self.series.read();
        let mut all: Vec<(&String, &T)> = series.iter().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        let labels = |key: &str| -> Labels {
            let values = key.split(SEPARATOR).map(str::to_owned);
            self.labels.iter().copied().zip(values).collect()
        };
        all.into_iter().map(|(key, counts)| (labels(key), read(counts))).collect()
    }
}

impl Labelled<AtomicU64> {
    /// Counters.
    pub fn counters(labels: &'static [&'static str], n_chosen: usize) -> Self {
        Self::new(labels, n_chosen, AtomicU64::default)
    }

    /// Shows series that have not counted anything yet.
    pub(crate) fn with_zeros(self, series: &[&[&str]]) -> Self {
        series.iter().for_each(|values| self.count(values, |_| {}));
        self
    }

    /// Adds one. `values`: of the labels.
    pub fn add(&self, values: &[&str]) {
        self.count(values, |n| _ = n.fetch_add(1, Relaxed));
    }

    /// The counters in the order of their labels' values.
    pub fn counts(&self) -> Vec<(Labels, u64)> {
        self.read(|n| n.load(Relaxed))
    }
}

impl Labelled<Histogram> {
    /// Adds a duration. `values`: of the labels.
    pub fn time(&self, values: &[&str], took: Duration) {
        self.count(values, |histogram| histogram.time(took));
    }

    /// The histograms in the order of their labels' values.
    pub fn times(&self) -> Vec<(Labels, Distribution)> {
        self.read(Histogram::times)
    }

    /// How many durations there are.
    pub fn counts(&self) -> Vec<(Labels, u64)> {
        self.read(|histogram| histogram.times().count())
    }
}

fn key(values: &[&str]) -> String {
    let mut key = String::with_capacity(values.iter().map(|value| value.len() + 1).sum());
    for (n, value) in values.iter().enumerate() {
        if n > 0 {
            key.push(SEPARATOR);
        }
        key.extend(value.chars().filter(|c| *c != SEPARATOR));
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_counted_by_their_values_and_bounded() {
        let counters = Labelled::counters(&["name", "decision"], 1);
        counters.add(&["b", "allowed"]);
        counters.add(&["a", "denied"]);
        counters.add(&["b", "allowed"]);
        let labels = |name: &str, decision: &str| {
            vec![("name", name.to_owned()), ("decision", decision.to_owned())]
        };
        assert_eq!(counters.counts(), [(labels("a", "denied"), 1), (labels("b", "allowed"), 2)]);
        for n in 0..2 * NAMES_MAX {
            counters.add(&[&format!("n{n}"), "denied"]);
        }
        counters.add(&["b", "allowed"]);
        let counts = counters.counts();
        assert_eq!(counts.len(), NAMES_MAX + 1);
        assert!(counts.contains(&(labels("b", "allowed"), 3)));
        let others = counts.iter().find(|(found, _)| *found == labels("other", "denied"));
        assert_eq!(others.unwrap().1, NAMES_MAX as u64 + 2);
        // A value with the separator is still one value.
        let odd = Labelled::counters(&["name", "decision"], 1);
        odd.add(&["a\0b", "x"]);
        assert_eq!(odd.counts(), [(labels("ab", "x"), 1)]);
    }

    #[test]
    fn durations_are_counted_by_their_values() {
        let times = Labelled::new(&["cidr"], 1, || Histogram::new(&[1.0]));
        times.time(&["10.0.0.0/8"], Duration::from_millis(500));
        times.time(&["10.0.0.0/8"], Duration::from_secs(2));
        let labels = vec![("cidr", "10.0.0.0/8".to_owned())];
        assert_eq!(times.times()[0].1.buckets, [(1.0, 1), (f64::INFINITY, 1)]);
        assert_eq!(times.counts(), [(labels, 2)]);
    }
}
