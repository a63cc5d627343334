use super::*;
use expect_test::{Expect, expect};

fn told(name: &str, message: &str, at: u64) -> Told {
    Told {
        regarding: ObjectReference {
            kind: "Pod".into(),
            name: name.into(),
            ..ObjectReference::default()
        },
        event_type: EventType::Normal,
        reason: "Synced".into(),
        message: message.into(),
        component: "test".into(),
        at: Timestamp(Duration::from_secs(at)),
    }
}

/// Tells each `object message` at its second; says what is written.
#[track_caller]
fn check<'a>(told_at: impl IntoIterator<Item = (&'a str, String, u64)>, expect: Expect) {
    let mut correlator = Correlator::new();
    let mut said = Vec::new();
    for (name, message, at) in told_at {
        said.push(match correlator.take(told(name, &message, at)) {
            Some(Write::Create(record)) => format!("create {} {:?}", record.name, record.message),
            Some(Write::Count(record)) => {
                format!("count {} {} {:?}", record.name, record.count, record.message)
            }
            None => "nothing".to_owned(),
        });
    }
    expect.assert_eq(&said.join("\n"));
}

#[test]
fn repeated_message_counts_up_the_same_event() {
    check(
        [("a", "x".into(), 1), ("a", "x".into(), 2), ("b", "x".into(), 2), ("a", "y".into(), 3)],
        expect![[r#"
        create a.3b9aca00 "x"
        count a.3b9aca00 2 "x"
        create b.77359400 "x"
        create a.b2d05e00 "y""#]],
    );
}

#[test]
fn events_of_one_instant_have_different_names() {
    check(
        [("a", "x".into(), 1), ("a", "y".into(), 1)],
        expect![[r#"
        create a.3b9aca00 "x"
        create a.3b9aca01 "y""#]],
    );
}

#[test]
fn tenth_message_in_a_row_and_those_after_it_are_combined() {
    check(
        (0..12).map(|n| ("a", format!("m{n:02}"), 1)),
        expect![[r#"
        create a.3b9aca00 "m00"
        create a.3b9aca01 "m01"
        create a.3b9aca02 "m02"
        create a.3b9aca03 "m03"
        create a.3b9aca04 "m04"
        create a.3b9aca05 "m05"
        create a.3b9aca06 "m06"
        create a.3b9aca07 "m07"
        create a.3b9aca08 "m08"
        create a.3b9aca09 "(combined from similar events): m09"
        count a.3b9aca09 2 "(combined from similar events): m10"
        count a.3b9aca09 3 "(combined from similar events): m11""#]],
    );
}

#[test]
fn silence_of_more_than_ten_minutes_starts_a_group_anew() {
    let first = (0..9).map(|n| ("a", format!("m{n}"), 1));
    let mut correlator = Correlator::new();
    for (name, message, at) in first {
        correlator.take(told(name, &message, at));
    }
    let Some(Write::Create(record)) = correlator.take(told("a", "late", 602)) else {
        panic!("not written")
    };
    assert_eq!(record.message, "late");
}

#[test]
fn flood_about_one_object_is_held_back_but_counted() {
    let mut correlator = Correlator::new();
    let written = (0..1000).filter(|_| correlator.take(told("a", "x", 1)).is_some()).count();
    assert_eq!(written, 25);
    assert!(correlator.take(told("b", "x", 1)).is_some(), "another object has its own allowance");
    assert!(correlator.take(told("a", "x", 300)).is_none());
    let Some(Write::Count(record)) = correlator.take(told("a", "x", 302)) else {
        panic!("not written")
    };
    assert_eq!(record.count, 1002);
}
