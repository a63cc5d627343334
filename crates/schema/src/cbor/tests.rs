use super::*;
use crate::decode::cbor as decode;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

/// In diagnostic notation.
#[track_caller]
fn check(json: &str, expected: Expect) {
    expected.assert_eq(&decode::diagnose(&object(json.as_bytes()).unwrap()));
}

#[test]
fn strings_and_keys_are_bytes_and_lengths_are_definite() {
    check(
        r#"{"apiVersion":"ex.io/v1","kind":"Foo","a":[1,-1,1.5,null,true,"\u00e9",[],{}]}"#,
        expect![[
            r#"55799({'apiVersion': 'ex.io/v1', 'kind': 'Foo', 'a': [1, -1, 1.5, null, true, '\u00e9', [], {}]})"#
        ]],
    );
    assert_eq!(object(b"{}").unwrap(), b"\xd9\xd9\xf7\xa0");
    // The shortest forms of numbers.
    let numbers = object(b"[23,24,256,65536,4294967296,-1,-9223372036854775808,1.5,0.1,1e10]");
    let expected = [
        &b"\xd9\xd9\xf7\x8a\x17\x18\x18\x19\x01\x00\x1a\x00\x01\x00\x00"[..],
        b"\x1b\x00\x00\x00\x01\x00\x00\x00\x00\x20\x3b\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\xf9\x3e\x00\xfb\x3f\xb9\x99\x99\x99\x99\x99\x9a\xfa\x50\x15\x02\xf9",
    ];
    assert_eq!(numbers.unwrap(), expected.concat());
}

#[test]
fn more_than_23_members_move_once() {
    let long =
        json!({"l": (0..300).collect::<Vec<_>>(), "m": {"a": [[(0..24).collect::<Vec<_>>()]]}});
    let bytes = object(long.to_string().as_bytes()).unwrap();
    assert_eq!(decode::object(&bytes).unwrap(), long);
}

#[test]
fn fields_of_bytes_are_bytes_and_fields_of_floats_floats() {
    check(
        r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"AP8h","e":""},"stringData":{"s":"AP8h"}}"#,
        expect![[
            r#"55799({'kind': 'Secret', 'apiVersion': 'v1', 'metadata': {'name': 'a'}, 'data': {'k': 22(h'00ff21'), 'e': 22(h'')}, 'stringData': {'s': 'AP8h'}})"#
        ]],
    );
    let schema = r#"{"minimum":1,"maxLength":1,"default":1,"items":{"maximum":2},"oneOf":[{"multipleOf":3}],"properties":{"a":{"minimum":-4}}}"#;
    check(
        &format!(
            r#"{{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#
        ),
        expect![[
            r#"55799({'kind': 'CustomResourceDefinition', 'apiVersion': 'apiextensions.k8s.io/v1', 'spec': {'versions': [{'schema': {'openAPIV3Schema': {'minimum': 1.0, 'maxLength': 1, 'default': 1, 'items': {'maximum': 2.0}, 'oneOf': [{'multipleOf': 3.0}], 'properties': {'a': {'minimum': -4.0}}}}}]}})"#
        ]],
    );
}

#[test]
fn a_list_ends_with_its_items_which_have_the_type_of_the_list() {
    let encoder = ListEncoder::new("v1", "SecretList");
    let envelope = br#"{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}"#;
    let mut list = encoder.head(envelope, 2).unwrap();
    for name in ["a", "b"] {
        let item = json!({"metadata": {"name": name}, "data": {"k": "aGk="}}).to_string();
        encoder.push_item(item.as_bytes(), &mut list).unwrap();
    }
    expect![[r#"55799({'kind': 'SecretList', 'apiVersion': 'v1', 'metadata': {}, 'items': [{'data': {'k': 22('hi')}, 'metadata': {'name': 'a'}}, {'data': {'k': 22('hi')}, 'metadata': {'name': 'b'}}]})"#]]
        .assert_eq(&decode::diagnose(&list));
}

#[test]
fn an_event_holds_the_object_with_its_tag() {
    let event = watch_event("ADDED", &object(br#"{"kind":"Foo"}"#).unwrap());
    expect![[r#"55799({'type': 'ADDED', 'object': 55799({'kind': 'Foo'})})"#]]
        .assert_eq(&decode::diagnose(&event));
}

#[test]
fn what_is_no_json_is_refused() {
    for json in ["", "{", "{}x", "\u{1}"] {
        assert!(object(json.as_bytes()).is_err(), "{json}");
    }
    let deep = "[".repeat(1000) + &"]".repeat(1000);
    assert!(object(deep.as_bytes()).is_err());
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        (-1e300..1e300).prop_map(|float: f64| Value::from(float + 0.5)),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 200, 40, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..40).prop_map(Value::from),
            prop::collection::btree_map(".{0,4}", inner, 0..40)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_was_encoded_decodes_to_the_same(members in prop::collection::btree_map("[a-z]{0,3}", value(), 0..30)) {
        // Numbers are what parsing makes of them.
        let text = Value::Object(members.into_iter().collect()).to_string();
        let tree = crate::decode::parse(text.as_bytes(), crate::decode::Format::Json).unwrap().value;
        let json = setpoint_object::encode::to_bytes(&tree);
        let bytes = object(&json).unwrap();
        prop_assert_eq!(&decode::object(&bytes).unwrap(), &tree);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let config_map = crate::builtin::type_schema("", "v1", "ConfigMap").unwrap();
        for start in [&b""[..], MAGIC, b"\xa1\x44data", b"\xa1\x48metadata"] {
            let body = [start, &bytes].concat();
            let _ = decode::head(&body);
            let _ = decode::typed(&body, &config_map);
            let _ = decode::diagnose(&body);
            if let Ok(tree) = decode::object(&body) {
                let json = setpoint_object::encode::to_bytes(&tree);
                prop_assert_eq!(decode::object(&object(&json).unwrap()).unwrap(), tree);
            }
        }
    }
}
