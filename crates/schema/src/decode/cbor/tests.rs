use super::*;
use serde_json::json;

fn schema(api_version: &str, kind: &str) -> TypeSchema {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    crate::builtin::type_schema(group, version, kind).unwrap()
}

/// A body from hex, in which spaces and what stands in quotes are for readers: `'a'` is a byte
/// string, `"a"` a text string.
fn body(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        match first {
            ' ' => rest = &rest[1..],
            '\'' | '"' => {
                let end = rest[1..].find(first).unwrap() + 1;
                let length = u8::try_from(end - 1).unwrap();
                assert!(length < 24, "{rest}");
                out.push(if first == '"' { 0x60 | length } else { 0x40 | length });
                out.extend_from_slice(&rest.as_bytes()[1..end]);
                rest = &rest[end + 1..];
            }
            _ => {
                out.push(u8::from_str_radix(&rest[..2], 16).unwrap());
                rest = &rest[2..];
            }
        }
    }
    out
}

#[track_caller]
fn decodes(text: &str, expected: Value) {
    assert_eq!(object(&body(text)).unwrap(), expected, "{text}");
}

#[track_caller]
fn refuses(text: &str, expected: &str) {
    assert_eq!(object(&body(text)).unwrap_err().0, expected, "{text}");
}

#[track_caller]
fn typed_fault(api_version: &str, kind: &str, text: &str, expected: &str) {
    let error = typed(&body(text), &schema(api_version, kind)).unwrap_err();
    assert_eq!(error.0, expected, "{text}");
}

#[test]
fn strings_are_bytes_or_text_with_or_without_the_tag() {
    decodes("d9d9f7 a1 'a' 'b'", json!({"a": "b"}));
    decodes("a1 \"a\" \"b\"", json!({"a": "b"}));
    decodes("d9d9f7 d9d9f7 a1 'a' d9d9f7 'b'", json!({"a": "b"}));
    decodes("bf 'a' 5f 'b' 'c' ff 'd' 7f \"e\" ff ff", json!({"a": "bc", "d": "e"}));
    decodes("f6", Value::Null);
    decodes("a1 'a' 9f 01 ff", json!({"a": [1]}));
    decodes("a1 'a' 42fffe", json!({"a": "\u{fffd}\u{fffd}"}));
    refuses("a1 'a' 62fffe", "cbor: invalid UTF-8 string");
}

#[test]
fn numbers_are_int64_or_finite_floats() {
    decodes(
        "a1 'a' 86 1b7fffffffffffffff 3b7fffffffffffffff f93e00 fa3fc00000 fb3ff199999999999a f93c00",
        json!({"a": [i64::MAX, i64::MIN, 1.5, 1.5, 1.1, 1]}),
    );
    refuses(
        "a1 'a' 1b8000000000000000",
        "cbor: cannot unmarshal positive integer into Go value of type int64 (9223372036854775808 overflows Go's int64)",
    );
    refuses(
        "a1 'a' 3bffffffffffffffff",
        "cbor: cannot unmarshal negative integer into Go value of type int64 (-18446744073709551616 overflows Go's int64)",
    );
    let unacceptable = "cbor: data item of cbor type primitives is not accepted by protocol: ";
    refuses("a1 'a' f97e00", &format!("{unacceptable}floating-point NaN"));
    refuses("a1 'a' fbfff0000000000000", &format!("{unacceptable}floating-point infinity"));
    refuses("a1 'a' f7", &format!("{unacceptable}simple value 23 is not recognized"));
    refuses("a1 'a' f8ff", &format!("{unacceptable}simple value 255 is not recognized"));
    refuses(
        "a1 'a' c2 'b'",
        "cbor: data item of cbor type tag is not accepted by protocol: bignum",
    );
}

#[test]
fn tags_of_bytes_and_times_become_text() {
    decodes(
        "a1 'a' 85 d542fbff d642fbff d742fbff d6 82 'hi' \"x\" d5 d6 'hi'",
        json!({"a": ["-_8", "+/8=", "fbff", ["aGk=", "x"], "aGk="]}),
    );
    let time = "\"2020-01-01T00:00:00.12Z\"";
    decodes(
        &format!("a1 'a' 85 c0 {time} c1 00 c1 20 c1 fb3ff8000000000000 d863 05"),
        json!({"a": [
            "2020-01-01T00:00:00.12Z",
            "1970-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:01.5Z",
            5,
        ]}),
    );
    refuses("a1 'a' c0 'x'", "cbor: tag number 0 must be followed by text string, got byte string");
    refuses(
        "a1 'a' c1 \"x\"",
        "cbor: tag number 1 must be followed by integer or floating-point number, got UTF-8 text string",
    );
    refuses(
        "a1 'a' c0 \"nope\"",
        r#"cbor: cannot set nope for time.Time: parsing time "nope" as "2006-01-02T15:04:05Z07:00": cannot parse "nope" as "2006""#,
    );
}

#[test]
fn keys_are_strings_each_once() {
    refuses("a2 'a' 01 'a' 02", r#"cbor: found duplicate map key "a" at map element index 1"#);
    refuses("a2 'a' 01 \"a\" 02", r#"cbor: found duplicate map key "a" at map element index 1"#);
    refuses("a1 01 02", "cbor: cannot unmarshal positive integer into Go value of type string");
    decodes("a1 d863 'a' 01", json!({"a": 1}));
    refuses("81 01", "cbor: cannot unmarshal array into Go value of type map[string]interface {}");
}

#[test]
fn malformed_bodies_are_refused_before_they_are_decoded() {
    for (text, expected) in [
        ("", "EOF"),
        ("d9d9f7", "unexpected EOF"),
        ("a1", "unexpected EOF"),
        ("a1 45 6162", "unexpected EOF"),
        ("1b 0000", "unexpected EOF"),
        // What a head claims is not there.
        ("ba 00100000", "unexpected EOF"),
        ("9a 7fffffff", "unexpected EOF"),
        ("5b 7fffffffffffffff", "unexpected EOF"),
        (
            "5b ffffffffffffffff",
            "cbor: byte string length 18446744073709551615 is too large, causing integer overflow",
        ),
        (
            "bb ffffffffffffffff",
            "cbor: map length 18446744073709551615 is too large, it would cause integer overflow",
        ),
        ("9a ffffffff", "cbor: exceeded max number of elements 2147483647 for CBOR array"),
        ("ba 7fffffff", "cbor: exceeded max number of key-value pairs 2097152 for CBOR map"),
        ("1c", "cbor: invalid additional information 28 for type positive integer"),
        ("1f", "cbor: invalid additional information 31 for type positive integer"),
        ("ff", r#"cbor: unexpected "break" code"#),
        ("bf 'a' ff", r#"cbor: unexpected "break" code"#),
        ("f810", "cbor: invalid simple value 16 for type primitives"),
        ("a0 00", "cbor: 1 bytes of extraneous data starting at index 1"),
        (
            "5f \"a\" ff",
            "cbor: wrong element type UTF-8 text string for indefinite-length byte string",
        ),
        ("5f 5f 'a' ff ff", "cbor: indefinite-length byte string chunk is not definite-length"),
    ] {
        refuses(text, expected);
        assert_eq!(head(&body(text)).unwrap_err().0, expected, "{text}");
    }
    let deep = |first: u8| [vec![first; 100_000], vec![0]].concat();
    for first in [0x81, 0xa1, 0x9f, 0xbf, 0xc6, 0xd6] {
        let error = object(&deep(first)).unwrap_err();
        assert!(["cbor: exceeded max nested level 128", "unexpected EOF"].contains(&&*error.0));
    }
}

#[test]
fn an_object_is_as_deep_as_in_json() {
    let nested = |n: usize| [b"\xd9\xd9\xf7".to_vec(), b"\xa1\x41a".repeat(n), vec![0]].concat();
    assert!(object(&nested(super::super::JSON_DEPTH_MAX)).is_ok());
    assert!(object(&nested(super::super::JSON_DEPTH_MAX + 1)).is_err());
}

#[test]
fn memory_is_limited_and_repeated_keys_take_no_quadratic_time() {
    // A map of one member takes 80 times its bytes.
    let maps =
        [b"\xa1\x41a\x9a\x00\x0f\x42\x40".to_vec(), b"\xa1\x40\xf6".repeat(1_000_000)].concat();
    let error = object(&maps).unwrap_err();
    assert!(error.0.contains("bytes of memory"), "{error}");
    let mut keys = b"\xba\x00\x03\x0d\x40".to_vec();
    for at in 0..200_000_u32 {
        keys.push(0x46);
        keys.extend_from_slice(format!("{at:06}").as_bytes());
        keys.push(0xf6);
    }
    assert!(head(&keys).is_ok());
    let unknown = typed(&keys, &schema("v1", "ConfigMap")).unwrap();
    assert_eq!(unknown.value, json!({}));
}

#[test]
fn the_type_of_a_body_is_read_first() {
    let found = head(&body("d9d9f7 a3 'kind' 'Pod' 'apiVersion' \"v1\" 'metadata' 80")).unwrap();
    assert_eq!(found, Head { api_version: "v1".to_owned(), kind: "Pod".to_owned() });
    assert_eq!(head(&body("f6")).unwrap(), Head::default());
    assert_eq!(head(&body("a1 'kind' f6")).unwrap(), Head::default());
    for (text, expected) in [
        (
            "80",
            "cbor: cannot unmarshal array into Go value of type v1.TypeMeta (cannot decode CBOR array to struct without toarray option)",
        ),
        ("01", "cbor: cannot unmarshal positive integer into Go value of type v1.TypeMeta"),
        (
            "a1 'kind' 01",
            "cbor: cannot unmarshal positive integer into Go struct field v1.TypeMeta.kind of type string",
        ),
        (
            "a1 'apiVersion' f5",
            "cbor: cannot unmarshal primitives into Go struct field v1.TypeMeta.apiVersion of type string",
        ),
        (
            "a2 'kind' 'a' 'kind' 'a'",
            r#"cbor: found duplicate map key "kind" at map element index 1"#,
        ),
        ("a2 'x' 01 'x' 02", r#"cbor: found duplicate map key "x" at map element index 1"#),
        ("a2 01 01 01 02", "cbor: found duplicate map key 1 at map element index 1"),
        (
            "a1 a0 01",
            "cbor: cannot unmarshal map into Go value of type string (map key is of type map and cannot be used to match struct field name)",
        ),
    ] {
        assert_eq!(head(&body(text)).unwrap_err().0, expected, "{text}");
    }
}

#[test]
fn bytes_of_a_struct_are_base64_unless_a_tag_says_that_they_are_not() {
    let secret = |data: &str| {
        let decoded = typed(&body(&format!("a1 'data' a1 'k' {data}")), &schema("v1", "Secret"));
        decoded.map(|decoded| decoded.value["data"]["k"].clone()).map_err(|error| error.0)
    };
    assert_eq!(secret("d643 00ff21"), Ok(json!("AP8h")));
    assert_eq!(secret("d543 fbff21"), Ok(json!("+/8h")));
    assert_eq!(secret("d743 fbff21"), Ok(json!("+/8h")));
    assert_eq!(secret("'aGk='"), Ok(json!("aGk=")));
    assert_eq!(secret("82 01 02"), Ok(json!("AQI=")));
    assert_eq!(
        secret("\"aGk=\"").unwrap_err(),
        "cbor: cannot unmarshal UTF-8 text string into Go struct field v1.Secret.data of type []uint8"
    );
    assert_eq!(
        secret("'!!'").unwrap_err(),
        "cbor: failed to decode base64 from byte string: illegal base64 data at input byte 0"
    );
    // A string of another field is text.
    let text = typed(&body("a1 'stringData' a1 'k' d6 'hi'"), &schema("v1", "Secret")).unwrap();
    assert_eq!(text.value, json!({"stringData": {"k": "aGk="}}));
}

#[test]
fn values_of_wrong_types_are_named_by_the_member_of_the_object() {
    let maps = |text: &str, expected: &str| typed_fault("v1", "ConfigMap", text, expected);
    let data = |value: &str, found: &str| {
        let text = format!("a1 'data' a1 'a' {value}");
        let of = "into Go struct field v1.ConfigMap.data of type string";
        maps(&text, &format!("cbor: cannot unmarshal {found} {of}"));
    };
    data("01", "positive integer");
    data("20", "negative integer");
    data("f93e00", "primitives");
    data("f5", "primitives");
    data("a0", "map");
    data("80", "array");
    data("c1 00", "positive integer");
    maps(
        "a1 'data' 80",
        "cbor: cannot unmarshal array into Go struct field v1.ConfigMap.data of type map[string]string",
    );
    maps(
        "a1 'data' \"x\"",
        "cbor: cannot unmarshal UTF-8 text string into Go struct field v1.ConfigMap.data of type map[string]string",
    );
    maps(
        "a1 'immutable' 01",
        "cbor: cannot unmarshal positive integer into Go struct field v1.ConfigMap.immutable of type bool",
    );
    maps(
        "a1 'metadata' 80",
        "cbor: cannot unmarshal array into Go struct field v1.ConfigMap.metadata of type v1.ObjectMeta (cannot decode CBOR array to struct without toarray option)",
    );
    maps(
        "a1 'metadata' a1 'labels' a1 'a' 01",
        "cbor: cannot unmarshal positive integer into Go struct field v1.ConfigMap.metadata of type string",
    );
    maps(
        "a1 'metadata' a1 'generation' f93c00",
        "cbor: cannot unmarshal primitives into Go struct field v1.ConfigMap.metadata of type int64",
    );
    maps(
        "a1 'data' f7",
        "cbor: data item of cbor type primitives is not accepted by protocol: simple value 23 is not recognized",
    );
    let specs = |text: &str, expected: &str| {
        let text = format!("a1 'spec' a1 {text}");
        let of = "into Go struct field v1.Deployment.spec of type";
        typed_fault("apps/v1", "Deployment", &text, &expected.replace("..", of));
    };
    specs("'replicas' 'x'", "cbor: cannot unmarshal byte string .. int32");
    specs(
        "'replicas' 1b0000010000000000",
        "cbor: cannot unmarshal positive integer .. int32 (1099511627776 overflows int32)",
    );
    let pod = |text: &str, expected: &str| {
        specs(&format!("'template' a1 'spec' a1 'containers' {text}"), expected);
    };
    pod("a0", "cbor: cannot unmarshal map .. []v1.Container");
    pod("81 01", "cbor: cannot unmarshal positive integer .. v1.Container");
    pod("81 a1 'imagePullPolicy' 01", "cbor: cannot unmarshal positive integer .. v1.PullPolicy");
    pod(
        "81 a1 'resources' a1 'limits' a1 'cpu' 01",
        "cbor: cannot unmarshal positive integer .. string",
    );
    specs(
        "'strategy' a1 'rollingUpdate' a1 'maxSurge' f5",
        "cbor: cannot unmarshal primitives .. int32",
    );
}

#[test]
fn of_unknown_fields_the_first_of_the_outermost_struct_is_named() {
    let unknown = |text: &str| typed(&body(text), &schema("v1", "ConfigMap")).unwrap().unknown;
    let at = |index: u32| Some(format!("cbor: found unknown field at map element index {index}"));
    assert_eq!(unknown("a1 'data' a1 'foo' 'x'"), None);
    assert_eq!(unknown("a3 'kind' 'ConfigMap' 'foo' 01 'bar' 02"), at(1));
    assert_eq!(unknown("a1 'metadata' a3 'name' 'x' 'labels' a0 'zz' 01"), at(2));
    assert_eq!(unknown("a3 'metadata' a1 'zz' 01 'data' a0 'foo' a1 'a' f7"), at(2));
    assert_eq!(unknown("a1 01 02"), at(0));
    // Names are compared as they are.
    assert_eq!(unknown("a1 'Data' a0"), at(0));
}

#[test]
fn diagnostic_notation_shows_a_body() {
    let shown = |text: &str| diagnose(&body(text));
    assert_eq!(
        shown("d9d9f7 a2 'a' 'b' \"t\" 8a 01 20 f93e00 f93c00 f6 f5 d6 'hi' 41ff 40 f0"),
        r#"55799({'a': 'b', "t": [1, -1, 1.5, 1.0, null, true, 22('hi'), h'ff', h'', simple(16)]})"#
    );
    assert_eq!(shown("bf 'a' 9f 5f 'b' 'c' ff 7f ff ff ff"), r#"{_ 'a': [_ (_ 'b', 'c'), ""_]}"#);
    assert_eq!(shown("65 0a 22 5c c3a9"), r#""\n\"\\\u00e9""#);
    assert_eq!(shown("a1"), "");
}
