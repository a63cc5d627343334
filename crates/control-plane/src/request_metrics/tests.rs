use super::*;

fn labels(resource: &str, verb: &'static str) -> Labels {
    Labels {
        verb,
        group: LabelValue::OfRow("example.com".into()),
        version: LabelValue::OfRow("v1".into()),
        resource: LabelValue::OfRow(resource.into()),
        subresource: NONE,
        scope: "cluster",
        component: COMPONENT,
    }
}

#[test]
fn definitions_that_come_and_go_share_a_series_in_the_end() {
    let mut open: HashMap<Labels, i64> = HashMap::new();
    let n_over = 3;
    for n in 0..SERIES_MAX + n_over {
        *entry(&mut open, labels(&format!("r{n}"), "WATCH"), Labels::of_other).or_default() += 1;
    }
    *entry(&mut open, labels("late", "LIST"), Labels::of_other).or_default() += 1;
    assert_eq!(open.len(), SERIES_MAX + 2);
    assert_eq!(open[&labels("", "WATCH").of_other()], n_over as i64);
    assert_eq!(open[&labels("", "LIST").of_other()], 1);
    // What began is counted where it ends.
    for n in 0..SERIES_MAX + n_over {
        *entry(&mut open, labels(&format!("r{n}"), "WATCH"), Labels::of_other).or_default() -= 1;
    }
    assert_eq!(open.values().filter(|n| **n != 0).count(), 1);
}
