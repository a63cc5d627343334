use super::*;
use crate::json_strategy;
use crate::meta::ObjectExt as _;
use proptest::prelude::*;
use serde_json::json;

fn text(bytes: Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn members_are_sorted_on_every_level() {
    let tree = json!({"b": [{"z": 1, "a": "\"\u{1}é"}], "a": {}, "c": 1.5});
    assert_eq!(text(to_bytes(&tree)), r#"{"a":{},"b":[{"a":"\"\u0001é","z":1}],"c":1.5}"#);
}

#[test]
fn revision_is_inserted_into_the_top_level_metadata() {
    for (stored, served) in [
        (
            r#"{"data":{"metadata":{"x":1}},"metadata":{"name":"a","uid":"u"}}"#,
            r#"{"data":{"metadata":{"x":1}},"metadata":{"name":"a","resourceVersion":"7","uid":"u"}}"#,
        ),
        (r#"{"metadata":{}}"#, r#"{"metadata":{"resourceVersion":"7"}}"#),
        (r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#),
        (r#"{"metadata":{"uid":"a"}}"#, r#"{"metadata":{"resourceVersion":"7","uid":"a"}}"#),
        (r#"{"metadata":{"resourceVersion":"1"}}"#, r#"{"metadata":{"resourceVersion":"7"}}"#),
        (
            r#"{ "metadata" : { "name" : "a" , "uid" : "u" } }"#,
            r#"{ "metadata" : { "name" : "a" , "resourceVersion":"7","uid" : "u" } }"#,
        ),
        (r#"{}"#, r#"{"metadata":{"resourceVersion":"7"}}"#),
        (r#"{"kind":"A","spec":1}"#, r#"{"kind":"A","metadata":{"resourceVersion":"7"},"spec":1}"#),
        (r#"{"a":1}"#, r#"{"a":1,"metadata":{"resourceVersion":"7"}}"#),
        // In the declared order of built-in types.
        (
            r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","labels":{}},"data":{}}"#,
            r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{}},"data":{}}"#,
        ),
        (
            r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a"}}"#,
            r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"}}"#,
        ),
        (
            r#"{"kind":"A","apiVersion":"v1","metadata":{"creationTimestamp":null},"a":1}"#,
            r#"{"kind":"A","apiVersion":"v1","metadata":{"resourceVersion":"7","creationTimestamp":null},"a":1}"#,
        ),
        (
            r#"{"kind":"A","apiVersion":"v1","a":1}"#,
            r#"{"kind":"A","apiVersion":"v1","metadata":{"resourceVersion":"7"},"a":1}"#,
        ),
        ("[]", "[]"),
        ("{\"metadata\":{", "{\"metadata\":{"),
    ] {
        assert_eq!(text(with_resource_version(stored.as_bytes(), 7)), served);
    }
}

#[test]
fn list_items_have_their_revision_and_no_type() {
    for (stored, item) in [
        (
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"u"},"spec":{"kind":"x"}}"#,
            r#"{"metadata":{"name":"a","resourceVersion":"7","uid":"u"},"spec":{"kind":"x"}}"#,
        ),
        (
            r#"{"apiVersion":"v1","data":{"kind":"x"},"kind":"ConfigMap","metadata":{"name":"a"}}"#,
            r#"{"data":{"kind":"x"},"metadata":{"name":"a","resourceVersion":"7"}}"#,
        ),
        (
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"1"}}"#,
            r#"{"metadata":{"resourceVersion":"7"}}"#,
        ),
        // In the declared order of built-in types.
        (
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"u","labels":{}},"data":{"kind":"x"}}"#,
            r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7","labels":{}},"data":{"kind":"x"}}"#,
        ),
        // In no order.
        (
            r#"{"kind":"Pod", "apiVersion":"v1", "metadata":{"name":"a"}}"#,
            r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#,
        ),
        (
            r#"{"metadata":{"name":"a"},"kind":"Pod"}"#,
            r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#,
        ),
        (r#"{"apiVersion":"v1","kind":"Pod"}"#, r#"{"metadata":{"resourceVersion":"7"}}"#),
        ("[]", "[]"),
    ] {
        let mut out = Vec::new();
        push_list_item(&mut out, stored.as_bytes(), 7);
        assert_eq!(String::from_utf8(out).unwrap(), item, "{stored}");
        if let Some(places) = Places::of(stored.as_bytes()) {
            let mut whole = Vec::new();
            places.push_with_resource_version(&mut whole, stored.as_bytes(), 7);
            assert_eq!(Bytes::from(whole), with_resource_version(stored.as_bytes(), 7), "{stored}");
        }
    }
}

#[test]
fn api_version_is_replaced_in_place() {
    let encoded = br#"{"apiVersion":"ex.io/v1","spec":{"apiVersion":"x"}}"#;
    assert_eq!(
        text(with_api_version(encoded, "ex.io/v2")),
        r#"{"apiVersion":"ex.io/v2","spec":{"apiVersion":"x"}}"#
    );
    assert_eq!(
        text(with_api_version(br#"{"kind":"A"}"#, "v1")),
        r#"{"apiVersion":"v1","kind":"A"}"#
    );
}

proptest! {
    #[test]
    fn list_items_equal_their_objects_without_type(tree in json_strategy::value()) {
        let mut tree = tree;
        if let Some(members) = tree.as_object_mut() {
            members.insert("apiVersion".into(), "v1".into());
            members.insert("kind".into(), "Pod".into());
            members.insert("metadata".into(), json!({"name": "a", "uid": "u"}));
            let stored = to_bytes(&tree);
            let mut item = Vec::new();
            push_list_item(&mut item, &stored, 7);
            if let Some(places) = Places::of(&stored) {
                let mut whole = Vec::new();
                places.push_with_resource_version(&mut whole, &stored, 7);
                prop_assert_eq!(Bytes::from(whole), with_resource_version(&stored, 7));
            }
            tree.set_meta("resourceVersion", "7".into());
            if let Some(members) = tree.as_object_mut() {
                members.remove("apiVersion");
                members.remove("kind");
            }
            prop_assert_eq!(Bytes::from(item), to_bytes(&tree));
        }
    }

    #[test]
    fn encoding_is_read_back_by_serde_json(tree in json_strategy::value()) {
        prop_assert_eq!(serde_json::from_slice::<Value>(&to_bytes(&tree)).unwrap(), tree);
    }

    #[test]
    fn spliced_encoding_equals_the_encoding_of_the_tree_with_the_revision(
        mut tree in json_strategy::object(),
        revision: u64,
    ) {
        prop_assume!(tree["metadata"].is_object());
        let spliced = with_resource_version(&to_bytes(&tree), revision);
        tree.set_meta("resourceVersion", revision.to_string().into());
        prop_assert_eq!(spliced, to_bytes(&tree));
    }

    #[test]
    fn splices_of_any_bytes_do_not_panic(tree in json_strategy::object(), cut: prop::sample::Index) {
        let bytes = to_bytes(&tree);
        let cut = &bytes[..cut.index(bytes.len())];
        with_resource_version(cut, 1);
        with_api_version(cut, "v1");
    }
}

#[test]
fn texts_are_escaped_as_go_escapes_them() {
    let object =
        json!({"a<b": "x > y && \"z\"\\", "line": "\u{2028}\u{2029}", "other": "é€\u{7f}\n\u{1}"});
    let expected = concat!(
        r#"{"a\u003cb":"x \u003e y \u0026\u0026 \"z\"\\","#,
        r#""line":"\u2028\u2029","other":"é€"#,
        "\u{7f}",
        r#"\n\u0001"}"#,
    );
    assert_eq!(text(to_bytes(&object)), expected);
    assert_eq!(serde_json::from_slice::<Value>(expected.as_bytes()).unwrap(), object);
    let mut status = Vec::new();
    push_serialized(&mut status, &json!({"message": "<nil>"})).unwrap();
    assert_eq!(status, br#"{"message":"\u003cnil\u003e"}"#);
}

#[test]
fn floats_have_the_form_of_gos_encoder() {
    for (number, text) in [
        (1.0, "1"),
        (0.0, "0"),
        (-0.0, "-0"),
        (1.5, "1.5"),
        (9_007_199_254_740_992.0, "9007199254740992"),
        (1e18, "1000000000000000000"),
        (12_345_678_901_234_567_890.0, "12345678901234567000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (-1.5e300, "-1.5e+300"),
        (0.000_001, "0.000001"),
        (1e-7, "1e-7"),
        (-1.25e-9, "-1.25e-9"),
    ] {
        assert_eq!(self::text(to_bytes(&json!(number))), text);
    }
}

#[test]
fn every_byte_that_may_need_an_escape_is_found_wherever_it_is() {
    for byte in 0..=u8::MAX {
        let is_escaped = {
            let is_html = matches!(byte, b'<' | b'>' | b'&');
            byte < 0x20 || matches!(byte, b'"' | b'\\' | 0xe2) || is_html
        };
        for others in [b'a', b' ', 0x7f, 0xff] {
            for len in 1..40 {
                for at in 0..len {
                    let mut text = vec![others; len];
                    text[at] = byte;
                    assert_eq!(has_special(&text), is_escaped, "{byte:#x} at {at} of {len}");
                }
            }
        }
    }
    assert!(!has_special(b""));
}
