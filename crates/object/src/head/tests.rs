use super::*;
use crate::{Skim, encode, json_strategy};
use proptest::prelude::*;

/// The fields of a head, in the order of a skim's.
fn fields(head: &Head, bytes: &[u8]) -> [String; 6] {
    [
        head.api_version(bytes),
        head.kind(bytes),
        head.name(bytes),
        head.namespace(bytes),
        head.uid(bytes),
        head.resource_version(bytes),
    ]
    .map(Cow::into_owned)
}
fn skimmed(skim: Skim<'_>) -> [String; 6] {
    let Skim { api_version, kind, name, namespace, uid, resource_version, .. } = skim;
    [api_version, kind, name, namespace, uid, resource_version].map(Cow::into_owned)
}
/// Head and skim agree on any bytes: the head accepts what the skim accepts, and reads the same
/// values.
fn check_agrees(bytes: &[u8]) {
    let head = Head::of(bytes);
    match Skim::of(bytes) {
        Ok(skim) if std::str::from_utf8(bytes).is_ok() => {
            let head = head.unwrap();
            let value = skim.managed_fields.clone();
            assert_eq!(fields(&head, bytes), skimmed(skim));
            let member = head.managed_fields();
            assert_eq!(member.is_some(), value.is_some());
            if let (Some(member), Some(value)) = (member, value) {
                assert!(member.start < value.start && value.end <= member.end);
            }
        }
        // The skim reads labels and refuses invalid ones. It does not check UTF-8 in text that it
        // does not read.
        Ok(_) => _ = head.unwrap_err(),
        Err(_) => {}
    }
}

#[test]
fn head_is_one_cache_line() {
    assert_eq!(size_of::<Head>(), 64);
}

#[test]
fn metadata_may_be_anywhere_and_the_last_of_repeated_members_counts() {
    let text = r#" { "status" : [ {"metadata":{"name":"no"}} ], "metadata" : {"name":"first","uid":"u"},
        "kind":"A", "metadata":{"n\u0061me":"a\"\u00e9", "namespace":"n", "namespace": 7}, "apiVersion":"v1"} "#;
    let head = Head::of(text.as_bytes()).unwrap();
    assert_eq!(fields(&head, text.as_bytes()), ["v1", "A", "a\"é", "", "", ""].map(str::to_owned));
    check_agrees(text.as_bytes());
}

#[test]
fn managed_fields_can_be_removed_from_any_position() {
    let fields = r#""managedFields":[{"manager":"a,b","x":{"managedFields":1}}]"#;
    for (members, left) in [
        (fields.to_owned(), ""),
        (format!(r#""name":"n" , {fields} "#), r#""name":"n" "#),
        (format!(r#" {fields} , "name":"n""#), r#" "name":"n""#),
        (format!(r#""a":1,{fields},"b":2"#), r#""a":1,"b":2"#),
        (r#""a":1,"m\u0061nagedFields" : null,"b":2"#.to_owned(), r#""a":1,"b":2"#),
    ] {
        let text = format!(r#"{{"metadata":{{{members}}},"x":1}}"#);
        let head = Head::of(text.as_bytes()).unwrap();
        let range = head.managed_fields().unwrap();
        let cut = [&text[..range.start], &text[range.end..]].concat();
        assert_eq!(cut, format!(r#"{{"metadata":{{{left}}},"x":1}}"#));
        assert!(!head.has_repeated_managed_fields());
    }
    let text = br#"{"metadata":{"managedFields":[],"managedFields":[]}}"#;
    assert!(Head::of(text).unwrap().has_repeated_managed_fields());
    let text = br#"{"metadata":{"managedFields":[]},"metadata":{"managedFields":[]}}"#;
    assert!(!Head::of(text).unwrap().has_repeated_managed_fields());
    let text = br#"{"managedFields":[],"metadata":{"managedFields":[]},"metadata":{}}"#;
    assert_eq!(Head::of(text).unwrap().managed_fields(), None);
}

#[test]
fn malformed_text_is_an_early_error() {
    for text in [
        &b"[]"[..],
        b"null",
        br#"{"a"}"#,
        br#"{"a":}"#,
        br#"{"a":1,}"#,
        br#"{"a":1 "b":2"#,
        br#"{"a":[1}"#,
        br#"{"a":[1,"\"}"]}}"#,
        br#"{"metadata":{"name":"\x""#,
        br#"{"metadata":{"\x":"#,
        b"{\"a\":\"\xff\"}",
        b"{\"metadata\":{\"labels\":{\"\xc3\":1}}}",
    ] {
        assert!(Head::scan(text).is_err() || Head::of(text).is_err(), "{text:?}");
        if text != br#"{"a":[1,"\"}"]}}"# {
            assert!(Head::scan(text).is_err(), "{text:?}");
        }
    }
    assert_eq!(Head::of(b"{} x").unwrap_err().at, 3);
    assert_eq!(Head::of(b"{").unwrap_err().at, 1);
    assert!(Head::scan(format!("{{\"a\":{}", "[".repeat(129)).as_bytes()).is_err());
}

#[test]
fn foreign_bytes_cause_no_panic() {
    let text = br#"{"metadata":{"name":"some\u0020name","uid":"0123456789"}}"#;
    let head = Head::of(text).unwrap();
    for foreign in [&b""[..], b"\\", &[0xff; 80], &[b'\\'; 80]] {
        fields(&head, foreign);
    }
}

proptest! {
    #[test]
    fn head_agrees_with_the_skim(tree in json_strategy::object()) {
        check_agrees(&encode::to_bytes(&tree));
        check_agrees(&serde_json::to_vec_pretty(&tree).unwrap());
    }

    #[test]
    fn head_agrees_with_the_skim_on_broken_text(
        tree in json_strategy::object(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), proptest::sample::select(b"{}[]\",:\\ax1 \xc3".to_vec())), 1..4),
    ) {
        let mut bytes = encode::to_bytes(&tree).to_vec();
        for (idx, byte) in changes {
            let idx = idx.index(bytes.len());
            bytes[idx] = byte;
        }
        check_agrees(&bytes);
    }

    #[test]
    fn object_is_incomplete_before_its_last_byte(tree in json_strategy::object(), cut: prop::sample::Index) {
        let bytes = encode::to_bytes(&tree);
        prop_assert_eq!(Head::scan(&bytes[..cut.index(bytes.len())]), Ok(None));
        let more = [&bytes[..], b"}]\"x"].concat();
        let head = Head::scan(&more).unwrap().unwrap();
        prop_assert_eq!(head.end(), bytes.len());
        prop_assert_eq!(Head::of(&bytes), Ok(head));
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(
        prop_oneof![Just(b'{'), Just(b'"'), Just(b'}'), Just(b':'), Just(b','), Just(b'['), Just(b'\\'), any::<u8>()],
        0..64,
    )) {
        check_agrees(&bytes);
        check_agrees(&[br#"{"metadata":"#, &*bytes].concat());
        check_agrees(&[br#"{"metadata":{"managedFields":"#, &*bytes].concat());
    }
}
