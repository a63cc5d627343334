//! Responses of a watch in parts, and invalid ones.

use super::*;
use crate::proto::ResponseHeader;

fn assembler(after: u64) -> Assembler {
    Assembler::new(
        Namespace { prefix: "ns".into(), ..Namespace::default() },
        "ns/".into(),
        Revision(after),
    )
}

fn wire(key: &str, created: i64, modified: i64) -> WireKeyValue {
    WireKeyValue {
        key: key.into(),
        create_revision: created,
        mod_revision: modified,
        version: 1,
        value: b"v".to_vec(),
    }
}

fn put(key: &str, modified: i64) -> Event {
    Event { kind: Event::PUT, kv: Some(wire(key, modified, modified)), prev_kv: None }
}

fn answer(events: Vec<Event>, fragment: bool) -> WatchAnswer {
    let header = Some(ResponseHeader { revision: 100, ..ResponseHeader::default() });
    WatchAnswer { header, events, fragment, ..WatchAnswer::default() }
}

fn describe(assembled: Assembled) -> String {
    match assembled {
        Assembled::Batch(batch) => {
            let changes = batch.changes.iter().map(|change| {
                format!("{}@{} ", String::from_utf8_lossy(&change.key), change.revision)
            });
            format!("{}to {}", changes.collect::<String>(), batch.revision)
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn a_response_in_one_part_is_a_batch() {
    let mut a = assembler(4);
    let events = vec![put("ns/a", 5), put("ns/b", 5), put("ns/c", 7)];
    assert_eq!(describe(a.take(answer(events, false), true)), "/a@5 /b@5 /c@7 to 7");
}

#[test]
fn changes_delivered_before_are_dropped() {
    let mut a = assembler(5);
    assert_eq!(describe(a.take(answer(vec![put("ns/a", 5)], false), true)), "Nothing");
    assert_eq!(
        describe(a.take(answer(vec![put("ns/a", 5), put("ns/b", 6)], false), true)),
        "/b@6 to 6"
    );
}

#[test]
fn a_revision_in_parts_is_delivered_whole() {
    let mut a = assembler(4);
    let first = vec![put("ns/a", 5), put("ns/b", 6)];
    assert_eq!(describe(a.take(answer(first, true), true)), "/a@5 to 5");
    assert_eq!(describe(a.take(answer(vec![put("ns/c", 6)], true), true)), "Nothing");
    assert_eq!(describe(a.take(answer(vec![put("ns/d", 6)], false), true)), "/b@6 /c@6 /d@6 to 6");
}

#[test]
fn the_last_part_may_be_empty() {
    let mut a = assembler(4);
    assert_eq!(describe(a.take(answer(vec![put("ns/a", 5)], true), true)), "Nothing");
    assert_eq!(describe(a.take(answer(vec![], false), true)), "/a@5 to 5");
}

#[test]
fn a_partial_response_of_a_lost_watch_is_dropped() {
    let mut a = assembler(4);
    assert_eq!(describe(a.take(answer(vec![put("ns/a", 5)], true), true)), "Nothing");
    a.begin();
    assert_eq!(
        describe(a.take(answer(vec![put("ns/a", 5), put("ns/b", 5)], false), true)),
        "/a@5 /b@5 to 5"
    );
}

#[test]
fn progress_of_the_stream_counts_if_reliable() {
    let of_stream = || WatchAnswer { watch_id: -1, ..answer(vec![], false) };
    assert_eq!(describe(assembler(4).take(of_stream(), true)), "to 100");
    assert_eq!(describe(assembler(4).take(of_stream(), false)), "Nothing");
    assert_eq!(
        describe(assembler(4).take(answer(vec![], false), false)),
        "to 100",
        "the watch's own"
    );
    assert_eq!(describe(assembler(100).take(of_stream(), true)), "Nothing");
    let created = WatchAnswer { created: true, ..answer(vec![], false) };
    assert_eq!(
        describe(assembler(4).take(created, true)),
        "Nothing",
        "its creation is no progress"
    );
}

#[test]
fn changes_of_other_keys_are_progress() {
    let mut a = assembler(4);
    let events = vec![put("ns/a", 5), put("other", 6)];
    assert_eq!(describe(a.take(answer(events, false), false)), "/a@5 to 6");
    assert_eq!(describe(a.take(answer(vec![put("other", 7)], false), false)), "to 7");
}

#[test]
fn an_update_has_its_previous_value() {
    let mut a = assembler(4);
    let update =
        Event { kind: Event::PUT, kv: Some(wire("ns/a", 2, 5)), prev_kv: Some(wire("ns/a", 2, 3)) };
    let mut gone = wire("ns/b", 0, 6);
    gone.value.clear();
    let delete = Event { kind: Event::DELETE, kv: Some(gone), prev_kv: Some(wire("ns/b", 4, 4)) };
    let Assembled::Batch(batch) = a.take(answer(vec![update, delete], false), true) else {
        panic!("no batch")
    };
    let previous = batch.changes[0].previous.as_ref().unwrap();
    assert_eq!((previous.created, previous.modified), (Revision(2), Revision(3)));
    assert_eq!(batch.changes[1].value, None);
    assert_eq!(batch.changes[1].key, "/b");
    assert_eq!(batch.changes[1].previous.as_ref().unwrap().modified, Revision(4));
}

#[test]
fn a_missing_previous_value_means_compacted() {
    let update = Event { kind: Event::PUT, kv: Some(wire("ns/a", 2, 5)), prev_kv: None };
    assert_eq!(assembler(4).take(answer(vec![update], false), true), Assembled::PreviousCompacted);
    let delete = Event { kind: Event::DELETE, kv: Some(wire("ns/a", 0, 5)), prev_kv: None };
    assert_eq!(assembler(4).take(answer(vec![delete], false), true), Assembled::PreviousCompacted);
    let others = Event { kind: Event::DELETE, kv: Some(wire("x", 0, 5)), prev_kv: None };
    assert_eq!(describe(assembler(4).take(answer(vec![others], false), true)), "to 5");
}

#[test]
fn invalid_responses_are_broken_without_a_panic() {
    let broken = |event: Event| {
        matches!(assembler(4).take(answer(vec![event], false), true), Assembled::Broken(_))
    };
    assert!(broken(Event { kind: 0, kv: None, prev_kv: None }));
    assert!(broken(put("ns/a", 0)));
    assert!(broken(put("ns/a", -3)));
    assert!(broken(Event { kind: 9, ..put("ns/a", 5) }));
    assert!(broken(Event { prev_kv: Some(wire("elsewhere", 1, 1)), ..put("ns/a", 5) }));
    assert!(broken(Event {
        kv: Some(wire("ns/a", 0, 5)),
        prev_kv: Some(wire("ns/a", 1, 1)),
        kind: 0
    }));
    let back = vec![put("ns/a", 6), put("ns/a", 5)];
    assert!(matches!(assembler(4).take(answer(back, false), true), Assembled::Broken(_)));
    let headless = WatchAnswer::default();
    assert!(matches!(assembler(4).take(headless, true), Assembled::Broken(_)));
}
