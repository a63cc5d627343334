use super::*;

fn key(n: usize) -> Request {
    Request::new("default", n.to_string())
}

fn version(text: &str) -> Option<OwnWrite> {
    Some(OwnWrite::Version(text.into()))
}

#[test]
fn last_write_of_each_object_is_recorded() {
    let (own, pods) = (OwnWrites::default(), Arc::from("pods"));
    assert_eq!(own.of(&pods, &key(0)), None);
    own.note_answer(&pods, &key(0), br#"{"metadata":{"resourceVersion":"7"}}"#, true);
    assert_eq!(own.of(&pods, &key(0)), version("7"));
    own.note_answer(&pods, &key(0), br#"{"kind":"Status","metadata":{}}"#, true);
    own.note_answer(&pods, &key(0), br#"{"metadata":{"resourceVersion":"opaque"}}"#, true);
    own.note_answer(&pods, &key(0), b"nonsense", true);
    assert_eq!(own.of(&pods, &key(0)), version("7"), "an answer without a version changes nothing");
    own.note_gone(&pods, &key(0), "u");
    let gone = OwnWrite::Gone { uid: "u".into(), after: Some("7".into()) };
    assert_eq!(own.of(&pods, &key(0)), Some(gone.clone()));
    let newest = BTreeMap::from([(Some("default".into()), "7".into())]);
    assert_eq!(own.newest(&pods), newest);
    own.forget(&pods, &key(0), &OwnWrite::Version("7".into()));
    assert_eq!(own.of(&pods, &key(0)), Some(gone.clone()), "not that one");
    own.forget(&pods, &key(0), &gone);
    assert_eq!(own.of(&pods, &key(0)), None);
}

#[test]
fn answers_in_another_order_than_the_writes_do_not_go_back() {
    let (own, pods) = (OwnWrites::default(), Arc::from("pods"));
    let note = |uid: &str, version: u64, is_gone: bool| {
        let mark = if is_gone { r#","deletionTimestamp":"2026-01-01T00:00:00Z""# } else { "" };
        let object =
            format!(r#"{{"metadata":{{"uid":"{uid}","resourceVersion":"{version}"{mark}}}}}"#);
        own.note_answer(&pods, &key(0), object.as_bytes(), true);
        own.of(&pods, &key(0))
    };
    let gone = |uid: &str, after: &str| {
        Some(OwnWrite::Gone { uid: uid.into(), after: Some(after.into()) })
    };
    assert_eq!(note("u", 7, false), version("7"));
    assert_eq!(note("u", 6, false), version("7"), "an older version");
    assert_eq!(note("u", 6, true), version("7"), "gone before that version");
    assert_eq!(note("u", 9, true), gone("u", "9"));
    assert_eq!(note("u", 8, false), gone("u", "9"), "it is gone since");
    assert_eq!(note("old", 8, false), gone("u", "9"), "another object before it");
    assert_eq!(note("new", 10, false), version("10"), "an object in its place");

    // The answer to a delete has no version.
    own.note_gone(&pods, &key(0), "new");
    assert_eq!(note("new", 12, false), gone("new", "12"), "written before it was deleted");
    assert_eq!(note("newer", 13, false), version("13"));
    assert_eq!(own.deleted(&pods), []);
}

#[test]
fn object_without_finalizers_is_gone_with_the_write() {
    let object = |meta: &str| is_gone(format!(r#"{{"metadata":{{{meta}}}}}"#).as_bytes());
    assert!(!object(r#""resourceVersion":"7""#));
    assert!(object(r#""deletionTimestamp":"2026-01-01T00:00:00Z""#));
    assert!(object(r#""deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0"#));
    assert!(!object(
        r#""deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":30"#
    ));
    assert!(!object(r#""deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a.b/c"]"#));
}

#[test]
fn newest_version_stands_for_evicted_writes() {
    let (own, pods) = (OwnWrites::default(), Arc::from("pods"));
    for n in 0..OWN_WRITES_MAX + 2 {
        let object = format!(r#"{{"metadata":{{"resourceVersion":"{}"}}}}"#, n + 10);
        own.note_answer(&pods, &key(n), object.as_bytes(), true);
    }
    let state = own.0.lock();
    assert_eq!((state.by_key.len(), state.by_age.len()), (OWN_WRITES_MAX, OWN_WRITES_MAX));
    drop(state);
    assert_eq!(own.of(&pods, &key(0)), version("11"));
    assert_eq!(own.of(&pods, &key(2)), version("12"));
    assert_eq!(own.of(&Arc::from("nodes"), &key(0)), None);
    assert_eq!(own.of(&pods, &Request::new("other", "0")), None, "nothing was written there");
    let newest = format!("{}", OWN_WRITES_MAX + 11);
    assert_eq!(own.newest(&pods), BTreeMap::from([(Some("default".into()), newest.into())]));
}

#[test]
fn beyond_the_namespace_limit_one_version_stands_for_the_rest() {
    let (own, pods) = (OwnWrites::default(), Arc::from("pods"));
    let key = |n: usize| Request::new(n.to_string(), "a");
    for n in 0..2 * OWN_WRITES_MAX + 2 {
        let object = format!(r#"{{"metadata":{{"resourceVersion":"{}"}}}}"#, n + 10);
        own.note_answer(&pods, &key(n), object.as_bytes(), true);
    }
    assert_eq!(own.0.lock().evicted.len(), OWN_WRITES_MAX + 1);
    let last_forgotten = (OWN_WRITES_MAX + 11).to_string();
    assert_eq!(own.of(&pods, &key(OWN_WRITES_MAX)), version(&last_forgotten));
    assert_eq!(own.of(&pods, &key(0)), version(&last_forgotten), "perhaps too much");
}

#[test]
fn deleted_objects_are_listed_until_they_are_shown_or_created_again() {
    let (own, pods) = (OwnWrites::default(), Arc::from("pods"));
    let deleted = || -> Vec<(Request, Arc<str>)> {
        own.deleted(&pods).into_iter().map(|(key, uid, _)| (key, uid)).collect()
    };
    own.note_gone(&pods, &key(2), "b");
    own.note_gone(&pods, &key(1), "a");
    own.note_gone(&Arc::from("nodes"), &key(3), "c");
    assert_eq!(deleted(), [(key(1), "a".into()), (key(2), "b".into())]);
    own.note_answer(&pods, &key(1), br#"{"metadata":{"resourceVersion":"7"}}"#, true);
    assert_eq!(deleted(), [(key(2), "b".into())]);
    own.forget(&pods, &key(2), &OwnWrite::Gone { uid: "b".into(), after: None });
    assert_eq!(deleted(), []);
    own.note_gone(&pods, &key(0), "a");
    for n in 1..=OWN_WRITES_MAX {
        own.note_answer(&pods, &key(n), br#"{"metadata":{"resourceVersion":"8"}}"#, true);
    }
    assert_eq!(deleted(), [], "it was evicted");
}

#[test]
fn successor_of_a_version_is_the_next_number() {
    for (before, after) in [
        ("0", "1"),
        ("9", "10"),
        ("199", "200"),
        ("18446744073709551615", "18446744073709551616"),
        ("x", "x"),
    ] {
        assert_eq!(successor(before), after);
    }
}

#[test]
fn errors_of_lists_name_no_object() {
    let resource = Arc::<str>::from("pods");
    let behind = |object: &str, wanted: &str| ClientError::Behind {
        resource: resource.clone(),
        object: object.to_owned(),
        wanted: wanted.to_owned(),
        waited: OWN_WRITE_WAIT_MAX,
    };
    assert_eq!(
        behind("", "as it was written").to_string(),
        "read pods from the cache: after 5s it does not show this client's writes"
    );
    assert_eq!(
        behind("default/a", "gone").to_string(),
        "read pods default/a from the cache: the object is not gone after 5s"
    );
}

#[test]
fn write_of_an_object_that_the_cache_does_not_select_is_recorded_after_an_unseen_one_only() {
    let (own, pods) = (OwnWrites::default(), Arc::from("pods"));
    let object = |version: &str| format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#);
    own.note_answer(&pods, &key(0), object("7").as_bytes(), false);
    assert_eq!((own.of(&pods, &key(0)), own.newest(&pods)), (None, BTreeMap::new()));
    own.note_answer(&pods, &key(0), object("8").as_bytes(), true);
    own.note_answer(&pods, &key(0), object("9").as_bytes(), false);
    assert_eq!(own.of(&pods, &key(0)), version("9"), "it leaves the cache at 9, not before");
}
