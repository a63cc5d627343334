use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::events::event::EventType;

fn emitted(name: &str, message: &str, at: u64) -> Emitted {
    Emitted {
        regarding: ObjectReference {
            kind: "Pod".into(),
            name: name.into(),
            ..ObjectReference::default()
        },
        related: None,
        event_type: EventType::Normal,
        reason: "Synced".into(),
        action: "Reconcile".into(),
        note: message.into(),
        source: Source { component: "test".into(), api: None, field_manager: None },
        at: Timestamp::from_secs(at),
    }
}

fn say(write: &Write) -> String {
    let (verb, Record { name, note, count, .. }) = match write {
        Write::Create(record) => ("create", record),
        Write::More(record) => ("more", record),
    };
    format!("{verb} {name} {count} {note:?}")
}

impl Correlator {
    fn one(&mut self, emitted: Emitted) -> Option<Write> {
        let [write, forgotten] = self.take(emitted);
        assert_eq!(forgotten, None);
        write
    }
}

/// Emits each `object message` at its second; returns the writes.
#[track_caller]
fn check<'a>(
    api: EventApi,
    emitted_at: impl IntoIterator<Item = (&'a str, String, u64)>,
    expect: Expect,
) {
    let mut correlator = Correlator::new(api);
    let mut output = Vec::new();
    for (name, message, at) in emitted_at {
        let write = correlator.one(emitted(name, &message, at));
        output.push(write.as_ref().map_or("nothing".to_owned(), say));
    }
    expect.assert_eq(&output.join("\n"));
}

#[test]
fn ev_repeated_message_counts_up_the_same_event() {
    check(
        EventApi::Core,
        [("a", "x".into(), 1), ("a", "x".into(), 2), ("b", "x".into(), 2), ("a", "y".into(), 3)],
        expect![[r#"
            create a.3b9aca00 1 "x"
            more a.3b9aca00 2 "x"
            create b.77359400 1 "x"
            create a.b2d05e00 1 "y""#]],
    );
}

#[test]
fn ev_second_of_a_series_is_patched_and_later_ones_are_counted_here() {
    check(
        EventApi::New,
        [("a", "x".into(), 1), ("a", "x".into(), 2), ("a", "x".into(), 2), ("a", "y".into(), 3)],
        expect![[r#"
            create a.3b9aca00 1 "x"
            more a.3b9aca00 2 "x"
            nothing
            create a.b2d05e00 1 "y""#]],
    );
}

#[test]
fn ev_2_events_of_one_instant_have_different_names() {
    check(
        EventApi::Core,
        [("a", "x".into(), 1), ("a", "y".into(), 1)],
        expect![[r#"
            create a.3b9aca00 1 "x"
            create a.3b9aca01 1 "y""#]],
    );
}

#[test]
fn ev_2_event_name_is_valid_for_any_object_name() {
    assert_eq!(event_name("system:Node", 0xab), "system-node.ab");
    assert_eq!(event_name("a.-b", 0xab), "a.b.ab");
    assert_eq!(event_name(":", 0xab), "event.ab");
    let long = event_name(&"n".repeat(253), u128::from(u64::MAX));
    assert_eq!((long.len(), long.ends_with("n.ffffffffffffffff")), (253, true));
}

#[test]
fn ev_1_tenth_message_in_a_row_and_those_after_it_are_combined() {
    check(
        EventApi::New,
        (8..13).flat_map(|n| match n {
            8 => (0..9).map(|n| ("a", format!("m{n:02}"), 1)).collect::<Vec<_>>(),
            n => vec![("a", format!("m{n:02}"), 1)],
        }),
        expect![[r#"
            create a.3b9aca00 1 "m00"
            create a.3b9aca01 1 "m01"
            create a.3b9aca02 1 "m02"
            create a.3b9aca03 1 "m03"
            create a.3b9aca04 1 "m04"
            create a.3b9aca05 1 "m05"
            create a.3b9aca06 1 "m06"
            create a.3b9aca07 1 "m07"
            create a.3b9aca08 1 "m08"
            create a.3b9aca09 1 "(combined from similar events): m09"
            more a.3b9aca09 2 "(combined from similar events): m09"
            nothing
            nothing"#]],
    );
}

/// API servers refuse a longer one.
#[test]
fn ev_1_a_combined_message_is_not_longer_than_another() {
    let mut correlator = Correlator::new(EventApi::New);
    let note = |n: usize| format!("{n:0width$}", width = NOTE_BYTES_MAX);
    for n in 0..9 {
        correlator.take(emitted("a", &note(n), 1));
    }
    let write = correlator.one(emitted("a", &note(9), 1)).unwrap();
    let combined = &*write.record().note;
    assert!(combined.starts_with("(combined"), "{combined}");
    assert_eq!(combined.len(), NOTE_BYTES_MAX);
}

#[test]
fn ev_1_silence_of_more_than_ten_minutes_starts_a_group_again() {
    for (at, expected) in [(601, "(combined from similar events): late"), (602, "late")] {
        let mut correlator = Correlator::new(EventApi::Core);
        for n in 0..9 {
            correlator.take(emitted("a", &format!("m{n}"), 1));
        }
        let write = correlator.one(emitted("a", "late", at)).unwrap();
        assert_eq!(&*write.record().note, expected);
    }
}

#[test]
fn ev_1_flood_about_one_object_and_type_is_held_back_but_counted() {
    let mut correlator = Correlator::new(EventApi::Core);
    let written = (0..1000).filter(|_| correlator.one(emitted("a", "x", 1)).is_some()).count();
    assert_eq!((written, correlator.take_held_back()), (25, 975));
    assert!(correlator.one(emitted("b", "x", 1)).is_some(), "another object has its own allowance");
    let warning = Emitted { event_type: EventType::Warning, ..emitted("a", "x", 1) };
    assert!(correlator.one(warning).is_some(), "and so has another type");
    assert!(correlator.one(emitted("a", "x", 300)).is_none());
    let write = correlator.one(emitted("a", "x", 302)).unwrap();
    assert_eq!(write.record().count, 1002);
}

#[test]
fn events_that_differ_in_related_object_or_action_are_different() {
    let mut correlator = Correlator::new(EventApi::New);
    let other = ObjectReference { name: "n".into(), ..ObjectReference::default() };
    for event in [
        emitted("a", "x", 1),
        Emitted { related: Some(other), ..emitted("a", "x", 1) },
        Emitted { action: "Attach".into(), ..emitted("a", "x", 1) },
    ] {
        assert!(matches!(correlator.one(event), Some(Write::Create(_))));
    }
    let mut newer = emitted("a", "x", 2);
    newer.regarding.resource_version = "8".into();
    let write = correlator.one(newer).unwrap();
    assert!(matches!(write, Write::More(_)), "another version of the object is the same object");
}

#[test]
fn ev_series_is_written_every_half_hour_and_after_six_minutes_of_silence() {
    let mut correlator = Correlator::new(EventApi::New);
    let mut output = Vec::new();
    let mut emitted_at = vec![0, 1];
    emitted_at.extend((1..=8).map(|n| n * 300));
    let mut emitted_at = emitted_at.into_iter().peekable();
    for now in 0..4000 {
        while emitted_at.next_if(|at| *at == now).is_some() {
            let write = correlator.one(emitted("a", "x", now));
            output.extend(write.map(|write| format!("{now} {}", say(&write))));
        }
        let due = correlator.due(Timestamp::from_secs(now));
        output.extend(due.iter().map(|write| format!("{now} {}", say(write))));
    }
    expect![[r#"
        0 create a.1 1 "x"
        1 more a.1 2 "x"
        1801 more a.1 8 "x"
        2760 more a.1 10 "x""#]]
    .assert_eq(&output.join("\n"));
    assert_eq!(correlator.next_due(), None, "the series is over");
    let write = correlator.one(emitted("a", "x", 4000)).unwrap();
    assert!(matches!(write, Write::Create(_)), "the next is a new event");
}

#[test]
fn last_count_of_a_series_is_written_at_the_end_and_at_its_eviction() {
    let at_end = |n_emitted: usize| {
        let mut correlator = Correlator::new(EventApi::New);
        (0..n_emitted).for_each(|_| _ = correlator.take(emitted("a", "x", 1)));
        correlator.end(Timestamp::from_secs(2)).iter().map(say).collect::<Vec<_>>()
    };
    assert!(at_end(1).is_empty() && at_end(2).is_empty());
    assert_eq!(at_end(5), [r#"more a.3b9aca00 5 "x""#]);

    let mut correlator = Correlator::new(EventApi::New);
    (0..5).for_each(|_| _ = correlator.take(emitted("a", "x", 1)));
    let mut forgotten = Vec::new();
    for n in 0..REMEMBERED_MAX {
        let [_, write] = correlator.take(emitted(&format!("b{n}"), "x", 1));
        forgotten.extend(write);
    }
    assert_eq!(forgotten.iter().map(say).collect::<Vec<_>>(), [r#"more a.3b9aca00 5 "x""#]);
}

/// A model of EV-1, computed from the whole history: the fate of the last event.
///
/// Returns the message under which the event is counted, its count, and whether it may be written.
fn model(history: &[Emitted]) -> (String, u32, bool) {
    let alike = |event: &&Emitted, last: &Emitted| {
        (&event.regarding, event.event_type, &event.reason)
            == (&last.regarding, last.event_type, &last.reason)
    };
    // (a): the message under which each was counted.
    let counted_as = |n: usize| {
        let last = &history[n];
        let mut recent: Vec<&str> = Vec::new();
        let mut before = None;
        let mut is_combined = false;
        for event in history[..=n].iter().filter(|event| alike(event, last)) {
            if before.is_some_and(|before| event.at.since(before) > Duration::from_secs(600)) {
                recent.clear();
            }
            before = Some(event.at);
            recent.push(&event.note);
            recent.sort();
            recent.dedup();
            is_combined = recent.len() >= 10;
            if is_combined {
                recent.remove(0);
            }
        }
        if is_combined { "combined".to_owned() } else { last.note.clone() }
    };
    let n = history.len() - 1;
    let last = &history[n];
    let message = counted_as(n);
    // (b)
    let same = (0..=n).filter(|n| alike(&&history[*n], last) && counted_as(*n) == message);
    let count = same.count() as u32;
    // (c): in units of a three-hundredth of a token, to avoid rounding.
    let (mut tokens, mut at, mut is_admitted) = (25 * 300, None, false);
    for event in history {
        if (&event.regarding, event.event_type) == (&last.regarding, last.event_type) {
            let passed = at.map_or(0, |at| event.at.since(at).as_secs());
            tokens = (tokens + passed).min(25 * 300);
            at = Some(event.at);
            is_admitted = tokens >= 300;
            tokens -= if is_admitted { 300 } else { 0 };
        }
    }
    (message, count, is_admitted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ev_1_correlator_agrees_with_the_model(
        steps in proptest::collection::vec(
            (0..2usize, 0..14u32, any::<bool>(), prop_oneof![6 => 0..3u64, 1 => 590..620u64]),
            1..90,
        ),
    ) {
        let mut correlator = Correlator::new(EventApi::Core);
        let mut history = Vec::new();
        let mut now = 0;
        for (object, message, is_warning, passed) in steps {
            now += passed;
            let mut event = emitted(["a", "b"][object], &format!("m{message:02}"), now);
            event.event_type = if is_warning { EventType::Warning } else { EventType::Normal };
            history.push(event.clone());
            let (counted_as, count, is_admitted) = model(&history);
            let write = correlator.one(event.clone());
            prop_assert_eq!(write.is_some(), is_admitted);
            if let Some(write) = write {
                let record = write.record();
                prop_assert_eq!(record.count, count);
                let expected = match &*counted_as {
                    "combined" => format!("(combined from similar events): {}", event.note),
                    message => message.to_owned(),
                };
                prop_assert_eq!(&*record.note, &*expected);
            }
        }
    }

    /// Property 8: identical events cause at most a burst of writes, and in the end the server has
    /// the full count.
    #[test]
    fn property_8_identical_calls_lead_to_few_writes(
        passed in proptest::collection::vec(0..400u64, 1..60),
        is_new in any::<bool>(),
    ) {
        let api = if is_new { EventApi::New } else { EventApi::Core };
        let mut correlator = Correlator::new(api);
        let mut now = 0;
        let mut counts: std::collections::BTreeMap<Arc<str>, u32> = Default::default();
        let mut n_writes = 0;
        let mut write = |write: &Write| {
            let record = write.record();
            let before = counts.insert(record.name.clone(), record.count).unwrap_or(0);
            assert!(before < record.count, "every write has a higher count");
            n_writes += 1;
        };
        for passed in &passed {
            now += passed;
            correlator.due(Timestamp::from_secs(now)).iter().for_each(&mut write);
            for _ in 0..3 {
                correlator.take(emitted("a", "x", now)).iter().flatten().for_each(&mut write);
            }
        }
        correlator.end(Timestamp::from_secs(now)).iter().for_each(&mut write);
        let n_emitted = 3 * passed.len() as u32;
        if is_new {
            prop_assert_eq!(counts.values().sum::<u32>(), n_emitted);
        }
        // The burst, its refill, and the last write of each series.
        prop_assert!(n_writes <= 25 + now / 300 + counts.len() as u64 + now / 360);
    }
}
