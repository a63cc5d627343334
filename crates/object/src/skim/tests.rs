use super::*;
use crate::{encode, json_strategy};
use proptest::prelude::*;
use serde_json::{Value, json};

fn texts<'a>(value: &'a Value, name: &str) -> Cow<'a, str> {
    Cow::Borrowed(value.get(name).and_then(Value::as_str).unwrap_or(""))
}
fn pairs(value: &Value, name: &str) -> Vec<(Cow<'static, str>, Cow<'static, str>)> {
    let members = value.get(name).and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(k, v)| Some((k.clone().into(), v.as_str()?.to_owned().into()))).collect()
}
fn elements<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}
/// The expected skim, read from a tree.
fn model<'a>(tree: &'a Value, bytes: &[u8]) -> Skim<'a> {
    let empty = Value::Null;
    let metadata: &'a Value = tree.get("metadata").unwrap_or(Box::leak(Box::new(empty)));
    let managed_fields = metadata.get("managedFields").map(|fields| {
        let text = encode::to_bytes(fields);
        let member = [br#""managedFields":"#, &*text].concat();
        let at = memchr::memmem::rfind(bytes, &member).unwrap() + br#""managedFields":"#.len();
        at..at + text.len()
    });
    Skim {
        api_version: texts(tree, "apiVersion"),
        kind: texts(tree, "kind"),
        name: texts(metadata, "name"),
        namespace: texts(metadata, "namespace"),
        uid: texts(metadata, "uid"),
        resource_version: texts(metadata, "resourceVersion"),
        generation: metadata.get("generation").and_then(Value::as_i64).unwrap_or(0),
        creation_timestamp: texts(metadata, "creationTimestamp"),
        deletion_timestamp: texts(metadata, "deletionTimestamp"),
        labels: pairs(metadata, "labels"),
        annotations: pairs(metadata, "annotations"),
        owner_references: elements(metadata, "ownerReferences")
            .filter(|owner| owner.is_object())
            .map(|owner| OwnerReference {
                api_version: texts(owner, "apiVersion"),
                kind: texts(owner, "kind"),
                name: texts(owner, "name"),
                uid: texts(owner, "uid"),
                controller: owner.get("controller") == Some(&Value::Bool(true)),
                block_owner_deletion: owner.get("blockOwnerDeletion") == Some(&Value::Bool(true)),
            })
            .collect(),
        finalizers: elements(metadata, "finalizers")
            .filter_map(|f| f.as_str().map(Cow::Borrowed))
            .collect(),
        managed_fields,
    }
}

#[test]
fn metadata_may_be_anywhere_and_the_last_of_repeated_members_counts() {
    let text = r#" { "status" : [ {"metadata":{"name":"no"}} ], "metadata" : {"name":"first","uid":"u"},
        "kind":"A", "metadata":{"n\u0061me":"a\"\u00e9", "labels":{"k":"1","a":"2","k":"3","k2":4}} } "#;
    let skim = Skim::of(text.as_bytes()).unwrap();
    assert_eq!((&*skim.name, &*skim.uid, &*skim.kind), ("a\"é", "", "A"));
    assert_eq!((skim.label("k"), skim.label("k2"), skim.labels.len()), (Some("3"), None, 2));
    assert_eq!(labels(&text.as_bytes()[labels_range(text.as_bytes())]), skim.labels);
}

#[test]
fn malformed_text_is_an_error_with_a_position() {
    for (text, at) in [
        ("", 0),
        ("[]", 0),
        ("null", 0),
        ("{", 1),
        (r#"{"a"}"#, 4),
        (r#"{"a":}"#, 5),
        (r#"{"a":1"#, 6),
        (r#"{"a":1,}"#, 7),
        (r#"{"a":1 "b":2}"#, 7),
        (r#"{"a":[1}}"#, 8),
        (r#"{"a":"x}"#, 6),
        (r#"{} x"#, 3),
        (r#"{"metadata":{"name":"\x"}}"#, 21),
    ] {
        assert_eq!(Skim::of(text.as_bytes()).unwrap_err().at, at, "{text}");
    }
    assert!(Skim::of(b"{\"kind\":\"\xff\"}").is_err());
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(Skim::of(nested(128).as_bytes()).is_ok());
    assert_eq!(Skim::of(nested(129).as_bytes()).unwrap_err().what, "nested too deep");
    assert!(Skim::of("[".repeat(1_000_000).as_bytes()).is_err());
    assert!(Skim::of(format!("{{\"a\":{}", "[".repeat(1_000_000)).as_bytes()).is_err());
}

#[test]
fn controller_is_the_owner_with_the_flag() {
    let object =
        json!({"metadata": {"ownerReferences": [{"uid": "a"}, {"uid": "b", "controller": true}]}});
    let bytes = encode::to_bytes(&object);
    assert_eq!(Skim::of(&bytes).unwrap().controller().unwrap().uid, "b");
}

#[test]
fn scalars_are_found_by_path() {
    let text = br#"{"a":{"b":"x\n","n":-1.5,"t":true,"z":null,"l":[1]},"b":"no"}"#;
    for (path, value) in [
        (&["a", "b"][..], Some("x\n")),
        (&["a", "n"], Some("-1.5")),
        (&["a", "t"], Some("true")),
        (&["a", "z"], None),
        (&["a", "l"], None),
        (&["a"], None),
        (&["a", "missing"], None),
        (&["b", "x"], None),
        (&["b"], Some("no")),
    ] {
        assert_eq!(scalar(text, path).as_deref(), value, "{path:?}");
    }
}

proptest! {
    #[test]
    fn skim_agrees_with_serde_json(tree in json_strategy::object()) {
        let bytes = encode::to_bytes(&tree);
        // The model reads members in the encoding's order, which is sorted.
        let sorted: Value = serde_json::from_slice(&bytes).unwrap();
        prop_assert_eq!(Skim::of(&bytes).unwrap(), model(&sorted, &bytes));
        prop_assert_eq!(labels(&bytes[labels_range(&bytes)]), Skim::of(&bytes).unwrap().labels);
        let pretty = serde_json::to_vec_pretty(&sorted).unwrap();
        let skim = Skim { managed_fields: None, ..Skim::of(&pretty).unwrap() };
        prop_assert_eq!(skim, Skim { managed_fields: None, ..model(&sorted, &bytes) });
    }

    #[test]
    fn scalar_agrees_with_serde_json(tree in json_strategy::object()) {
        let bytes = encode::to_bytes(&tree);
        for (name, value) in tree.as_object().unwrap() {
            let found = scalar(&bytes, &[name]);
            match value {
                Value::String(text) => prop_assert_eq!(found.as_deref(), Some(text.as_str())),
                Value::Bool(_) | Value::Number(_) => {
                    let text = serde_json::to_string(value).unwrap();
                    prop_assert_eq!(found, Some(Cow::Owned(text)));
                }
                _ => prop_assert_eq!(found, None),
            }
        }
    }

    #[test]
    fn truncated_text_is_an_error(tree in json_strategy::object(), cut: prop::sample::Index) {
        let bytes = encode::to_bytes(&tree);
        let cut = &bytes[..cut.index(bytes.len())];
        prop_assert!(Skim::of(cut).is_err());
        scalar(cut, &["metadata", "name"]);
        prop_assert_eq!(labels_range(cut), 0..0);
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(
        prop_oneof![Just(b'{'), Just(b'"'), Just(b'}'), Just(b':'), Just(b','), Just(b'['), Just(b'\\'), any::<u8>()],
        0..64,
    )) {
        _ = Skim::of(&bytes);
        scalar(&bytes, &["metadata", "name"]);
        let inside = [br#"{"metadata":"#, &*bytes].concat();
        _ = Skim::of(&inside);
        scalar(&inside, &["metadata", "name"]);
        labels(&inside[labels_range(&inside)]);
        encode::with_resource_version(&inside, 1);
    }
}

#[test]
fn value_at_a_json_pointer_is_what_serde_json_finds() {
    let text = br#"{"a":[10,{"b/c":"x","~":{"":null}},[1,2]],"m":{"n":true},"":0}"#;
    let tree: serde_json::Value = serde_json::from_slice(text).unwrap();
    for pointer in [
        "",
        "/a",
        "/a/0",
        "/a/1",
        "/a/1/b~1c",
        "/a/1/~0",
        "/a/1/~0/",
        "/a/2/1",
        "/a/3",
        "/a/00",
        "/a/+1",
        "/a/-",
        "/a/x",
        "/m/n",
        "/m/n/o",
        "/",
        "/nothing",
    ] {
        let tokens = pointer_tokens(pointer).unwrap();
        let value = value_at(text, &tokens).map(|text| serde_json::from_slice(text).unwrap());
        assert_eq!(value.as_ref(), tree.pointer(pointer), "{pointer:?}");
        let from = value_from(text, &tokens);
        assert_eq!(from.is_some(), value.is_some(), "{pointer:?}");
        if let (Some(from), Some(value)) = (from, value_at(text, &tokens)) {
            assert!(from.starts_with(value) && text.ends_with(from), "{pointer:?}");
        }
    }
    for bad in ["a", "/~", "/~2", "a/b"] {
        assert_eq!(pointer_tokens(bad), None, "{bad:?}");
    }
    assert_eq!(value_at(b"{\"a\":", &["a".to_owned()]), None);
    assert_eq!(value_at(b"", &[]), None);
}
