//! The text formats of families.

use std::time::Duration;

use prometheus_client::{
    collector::Collector, encoding::DescriptorEncoder, metrics::counter::Counter,
};

use super::*;

#[test]
fn labels_are_escaped_and_names_of_counters_differ_by_format() {
    #[derive(Debug)]
    struct Odd;
    impl Collector for Odd {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
            let mut family = super::family::counter(&mut encoder, "odd", "Odd things")?;
            family.count(&[("what", "a\"b\\c\nd")], 2)
        }
    }
    let metrics = Metrics::new();
    metrics.update(|registry| {
        registry.register_collector(Box::new(Odd));
        registry.register("plain", "Plain things", Counter::<u64>::default());
    });
    let (prometheus, openmetrics) = (metrics.prometheus(), metrics.openmetrics());
    let sample = "odd_total{what=\"a\\\"b\\\\c\\nd\"} 2\n";
    assert!(prometheus.contains(sample), "{prometheus}");
    assert!(openmetrics.contains(sample), "{openmetrics}");
    assert!(
        prometheus.contains("# HELP odd_total Odd things\n# TYPE odd_total counter\n"),
        "{prometheus}"
    );
    assert!(openmetrics.contains("# TYPE odd counter\n") && openmetrics.ends_with("# EOF\n"));
    assert!(prometheus.contains("\nplain_total 0\n"));
}

#[test]
fn spec_11_durations_are_counted_in_the_bucket_whose_bound_they_do_not_exceed() {
    let durations = Durations::default();
    for millis in [1, 5, 6, 60_000, 60_001] {
        durations.observe(Duration::from_millis(millis));
    }
    let buckets = durations.buckets();
    let filled: Vec<_> = buckets.iter().filter(|(_, count)| *count > 0).copied().collect();
    assert_eq!(filled, [(0.005, 2), (0.01, 1), (60.0, 1), (f64::INFINITY, 1)]);
    assert!((durations.sum() - 120.013).abs() < 1e-9);
}
