use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp(Duration::from_secs(seconds))
}

fn ready() -> Vec<Condition> {
    let mut conditions = Vec::new();
    set_condition(&mut conditions, "Ready", true, "Made", "it is there", Some(3), at(10));
    set_condition(&mut conditions, "Slow", ConditionStatus::Unknown, "NotAsked", "", None, at(10));
    conditions
}

#[test]
fn conditions_are_found_checked_and_removed() {
    let mut conditions = ready();
    assert!(is_condition_true(&conditions, "Ready"));
    assert!(has_condition(&conditions, "Slow", ConditionStatus::Unknown));
    for absent in [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown] {
        assert!(!has_condition(&conditions, "Other", absent), "absence is not a status");
    }
    assert!(is_condition_current(&conditions, "Ready", 3));
    assert!(
        !is_condition_current(&conditions, "Ready", 4),
        "it was observed at an older generation"
    );
    assert_eq!(find_condition(&conditions, "Ready").unwrap().reason, "Made");
    assert!(remove_condition(&mut conditions, "Ready"));
    assert!(!remove_condition(&mut conditions, "Ready"));
    assert_eq!(conditions.len(), 1);
}

#[test]
fn duplicate_conditions_are_removed() {
    let mut conditions = [ready(), ready()].concat();
    assert!(set_condition(&mut conditions, "Slow", false, "Asked", "", None, at(20)));
    let types: Vec<_> = conditions.iter().map(|condition| &*condition.type_).collect();
    assert_eq!(types, ["Ready", "Slow", "Ready"]);
    assert!(has_condition(&conditions, "Slow", false));
    assert!(set_condition(&mut conditions, "Ready", true, "Made", "it is there", Some(3), at(20)));
    assert_eq!(conditions, {
        let mut expected = ready();
        set_condition(&mut expected, "Slow", false, "Asked", "", None, at(20));
        expected
    });
}

#[test]
fn invalid_conditions_are_reported() {
    let check = |change: &dyn Fn(&mut Condition)| {
        let mut condition = ready().swap_remove(0);
        change(&mut condition);
        check_condition(&condition).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(check(&|_| {}), "");
    assert_eq!(check(&|c| c.type_ = "example.com/Ready".into()), "");
    assert_eq!(
        check(&|c| c.type_ = "not ready".into()),
        r#""not ready" is not a valid condition type"#
    );
    assert_eq!(check(&|c| c.status = "yes".into()), r#""yes" is not a valid condition status"#);
    for reason in ["", "two words", "1st", "Ends:", &"a".repeat(1025)] {
        assert!(
            check(&|c| c.reason = reason.into()).contains("is not a valid condition reason"),
            "{reason}"
        );
    }
    assert!(check(&|c| c.message = "é".repeat(32_769)).contains("32769 characters"));
    let mut conditions = ready();
    set_condition(&mut conditions, "Ready", true, "Made", &"é".repeat(40_000), None, at(20));
    assert_eq!(check_condition(&conditions[0]), Ok(()), "cut");
    assert!(!set_condition(
        &mut conditions,
        "Ready",
        true,
        "Made",
        &"é".repeat(40_000),
        None,
        at(30)
    ));
}

proptest! {
    /// Setting the same status again changes nothing; the transition time is of the last status
    /// change.
    #[test]
    fn setting_is_idempotent_and_the_transition_time_changes_with_the_status(
        changes in prop::collection::vec((0..3_usize, any::<bool>(), 0..2_usize, 0..2_i64), 1..20),
    ) {
        let mut conditions = Vec::new();
        let mut transitions = [None; 3];
        for (now, (type_, holds, reason, generation)) in (1_u64..).zip(changes) {
            let name = ["A", "B", "C"][type_];
            let set = |conditions: &mut Vec<Condition>, now| {
                let reason = ["Good", "Bad"][reason];
                set_condition(conditions, name, holds, reason, "", Some(generation), at(now))
            };
            let before = conditions.clone();
            let has_changed = set(&mut conditions, now);
            prop_assert_eq!(has_changed, conditions != before);
            let after = conditions.clone();
            prop_assert!(!set(&mut conditions, now + 1000));
            prop_assert_eq!(&conditions, &after);
            match &mut transitions[type_] {
                Some((held, _)) if *held == holds => {}
                transition => *transition = Some((holds, now)),
            }
            let condition = find_condition(&conditions, name).unwrap();
            let seconds = transitions[type_].unwrap().1;
            prop_assert_eq!(condition.last_transition_time.0.as_second().unsigned_abs(), seconds);
        }
    }
}
