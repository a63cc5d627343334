//! The numbers of rollouts.

use super::numbers::{Fenceposts, Part, Size, fenceposts, grow, in_proportion, shrink};
use super::{comparable, hash};
use proptest::prelude::*;
use serde_json::json;

fn posts(surge: &str, unavailable: &str, replicas: i32) -> (i32, i32) {
    let text = format!(r#"{{"maxSurge": {surge}, "maxUnavailable": {unavailable}}}"#);
    let Fenceposts { surge, unavailable } =
        fenceposts(&serde_json::from_str(&text).unwrap(), replicas);
    (surge, unavailable)
}

#[test]
fn surge_is_rounded_up_and_unavailable_down() {
    assert_eq!(posts("\"25%\"", "\"25%\"", 10), (3, 2));
    assert_eq!(posts("\"25%\"", "\"25%\"", 8), (2, 2));
    assert_eq!(posts("1", "0", 3), (1, 0));
    // Both would be zero.
    assert_eq!(posts("0", "\"25%\"", 3), (0, 1));
    assert_eq!(posts("\"0%\"", "\"10%\"", 0), (0, 0));
    assert_eq!(posts("\"50%\"", "10", 3), (2, 3), "never more than there are");
}

fn size(wanted: i32, existing: i32, available: i32) -> Size {
    Size { wanted, existing, available, is_observed: true }
}

#[test]
fn new_set_grows_as_the_surge_permits() {
    assert_eq!(grow(size(0, 0, 0), &[size(10, 10, 10)], 10, 3), 3);
    // Two of the old pods have not been deleted yet.
    assert_eq!(grow(size(3, 3, 0), &[size(8, 10, 10)], 10, 3), 3);
    assert_eq!(grow(size(3, 3, 0), &[size(8, 8, 8)], 10, 3), 5);
    let unseen = Size { is_observed: false, ..size(8, 8, 8) };
    assert_eq!(grow(size(3, 3, 0), &[unseen], 10, 3), 3);
    // It is too large after a scaling down.
    assert_eq!(grow(size(7, 7, 7), &[], 5, 2), 5);
}

#[test]
fn old_sets_lose_unavailable_pods_first() {
    assert_eq!(shrink(&[size(10, 10, 10)], size(3, 3, 0), 10, 2), [8]);
    assert_eq!(shrink(&[size(8, 8, 8)], size(5, 5, 5), 10, 2), [3]);
    // Crashing pods of a rollout that was rolled back go at once.
    assert_eq!(shrink(&[size(5, 5, 0)], size(8, 8, 7), 10, 2), [1]);
    assert_eq!(shrink(&[size(4, 4, 4), size(3, 3, 1)], size(0, 0, 0), 6, 2), [3, 1]);
}

#[test]
fn scaling_is_in_proportion_and_the_first_gets_the_rest() {
    let part = |wanted, max| Part { wanted, max_replicas: Some(max) };
    assert_eq!(in_proportion(&[part(8, 13), part(5, 13)], 20, 5, 13), [15, 10]);
    assert_eq!(in_proportion(&[part(8, 13), part(5, 13)], 5, 2, 13), [4, 3]);
    assert_eq!(in_proportion(&[part(8, 13), part(5, 13)], 0, 0, 13), [0, 0]);
    assert_eq!(in_proportion(&[part(1, 3), part(1, 3), part(1, 3)], 7, 0, 3), [3, 2, 2]);
    // Any surge is valid.
    let sizes = in_proportion(&[part(2, 4), part(1, 4)], 4, i32::MAX, 3);
    assert!(sizes.iter().zip([2, 1]).all(|(size, before)| *size >= before), "{sizes:?}");
    assert_eq!(shrink(&[size(i32::MAX, 1, 1)], size(i32::MAX, 1, 1), 1, 0), [0]);
}

#[test]
fn hash_is_label_safe_and_depends_on_content_and_salt() {
    let a = json!({"metadata": {"labels": {"app": "a", "pod-template-hash": "x"}}, "spec": null});
    let b = json!({"metadata": {"labels": {"app": "a"}}});
    assert_eq!(comparable(&a), b);
    let first = hash(&comparable(&a), None);
    assert_eq!(first, hash(&b, None));
    assert_ne!(first, hash(&b, Some(1)));
    assert!(first.len() <= 10 && first.bytes().all(|c| c.is_ascii_alphanumeric()), "{first}");
}

fn any_size() -> impl Strategy<Value = Size> {
    (0..20_i32, 0..20_i32, 0..=20_i32, any::<bool>()).prop_map(
        |(wanted, existing, available, is_observed)| Size {
            wanted,
            existing,
            available: available.min(existing),
            is_observed,
        },
    )
}

proptest! {
    /// The new set never grows beyond the surge, counting every pod that may exist.
    #[test]
    fn growth_stays_below_the_surge(
        new in any_size(),
        old in prop::collection::vec(any_size(), 0..4),
        replicas in 0..20_i32,
        surge in 0..10_i32,
    ) {
        let size = grow(new, &old, replicas, surge);
        prop_assert!(size <= replicas);
        if size > new.wanted {
            let others: i32 = old.iter().map(|size| size.wanted.max(size.existing)).sum();
            prop_assert!(size.max(new.existing) + others <= replicas + surge);
        }
    }

    /// Old sets never shrink so far that fewer pods than permitted are available.
    #[test]
    fn shrinking_keeps_availability(
        new in any_size(),
        old in prop::collection::vec(any_size(), 0..4),
        replicas in 0..20_i32,
        unavailable in 0..20_i32,
    ) {
        let unavailable = unavailable.min(replicas);
        let kept = |size: &Size| size.available.min(size.wanted);
        let sizes = shrink(&old, new, replicas, unavailable);
        let before = old.iter().map(kept).sum::<i32>() + kept(&new);
        let after: i32 =
            old.iter().zip(&sizes).map(|(old, size)| kept(old).min(*size)).sum::<i32>() + kept(&new);
        prop_assert!(after >= before.min(replicas - unavailable));
        for (old, size) in old.iter().zip(&sizes) {
            prop_assert!((0..=old.wanted).contains(size));
        }
    }

    /// Scaling in proportion ends at the wanted sum, and every set moves in one direction.
    #[test]
    fn proportion_adds_up(
        wanted in prop::collection::vec(1..20_i32, 2..5),
        before in 1..60_i32,
        replicas in 0..40_i32,
        surge in 0..10_i32,
    ) {
        let mut wanted = wanted;
        wanted.sort_unstable_by(|a, b| b.cmp(a));
        let parts: Vec<Part> =
            wanted.iter().map(|n| Part { wanted: *n, max_replicas: Some(before) }).collect();
        let max = if replicas > 0 { replicas + surge } else { 0 };
        let sum: i32 = wanted.iter().sum();
        let sizes = in_proportion(&parts, replicas, surge, sum);
        prop_assert!(sizes.iter().all(|size| *size >= 0));
        if max >= sum {
            prop_assert_eq!(sizes.iter().sum::<i32>(), max);
        }
    }
}
