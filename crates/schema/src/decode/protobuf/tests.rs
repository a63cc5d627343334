use super::*;
use proptest::proptest;
use serde_json::json;

/// A field of bytes: text, a message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend_from_slice(content);
    out
}

fn varint(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
}

fn tree(api_version: &str, kind: &str, raw: &[u8]) -> Value {
    parse(&envelope(api_version, kind, raw)).unwrap().value
}

#[test]
fn config_map_as_kubectl_sends_it() {
    // `kubectl create configmap x --from-literal=a=1`, version 1.36.
    let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x1b\x0a\x11\x0a\x01x\x12\0\x1a\0\"\0*\x002\x008\0B\0\x12\x06\x0a\x01a\x12\x011\x1a\0\"\0";
    let mut decoded = parse(body).unwrap();
    assert_eq!(decoded.value["metadata"]["namespace"], "", "Go writes what is not given");
    let schema = crate::builtin::type_schema("", "v1", "ConfigMap").unwrap();
    super::super::conform(&schema, "ConfigMap", &mut decoded.value, &mut decoded.problems).unwrap();
    assert_eq!(decoded.problems, Vec::<String>::new());
    assert_eq!(
        decoded.value,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1"}}),
    );
}

#[test]
fn members_of_lifted_messages_stand_where_json_has_them() {
    let host_path = field(1, &field(1, b"/tmp"));
    let volume = [field(1, b"v"), field(2, &host_path)].concat();
    let spec = field(1, &volume);
    assert_eq!(
        tree("v1", "Pod", &field(2, &spec))["spec"]["volumes"],
        json!([{"name": "v", "hostPath": {"path": "/tmp"}}]),
    );
}

#[test]
fn special_types_come_out_as_their_json() {
    let ports = |text: &[u8]| {
        let spec = field(2, &field(1, text));
        tree("v1", "Service", &spec)["spec"]["ports"][0]["targetPort"].clone()
    };
    assert_eq!(ports(&field(4, &[varint(1, 0), varint(2, 80)].concat())), 80);
    assert_eq!(ports(&field(4, &[varint(1, 1), field(3, b"http")].concat())), "http");
    let quantity = [field(1, b"cpu"), field(2, &field(1, b"100m"))].concat();
    let quota = tree("v1", "ResourceQuota", &field(2, &field(1, &quantity)));
    assert_eq!(quota["spec"]["hard"], json!({"cpu": "100m"}));
    let secret = tree("v1", "Secret", &field(2, &[field(1, b"k"), field(2, b"\xff\0")].concat()));
    assert_eq!(secret["data"], json!({"k": "/wA="}));
    let extra = [field(1, b"k"), field(2, &[field(1, b"a"), field(1, b"b")].concat())].concat();
    let review =
        tree("authorization.k8s.io/v1", "SubjectAccessReview", &field(2, &field(5, &extra)));
    assert_eq!(review["spec"]["extra"], json!({"k": ["a", "b"]}));
    let created = |time: &[u8]| {
        tree("v1", "ConfigMap", &field(1, &field(8, time)))["metadata"]["creationTimestamp"].clone()
    };
    assert_eq!(created(&[]), Value::Null);
    assert_eq!(created(&varint(1, 61)), "1970-01-01T00:01:01Z");
    // One second before 1970, and the first second of the year 1.
    let before = b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    assert_eq!(created(before), "1969-12-31T23:59:59Z");
    let zero = b"\x08\x80\x92\xb8\xc3\x98\xfe\xff\xff\xff\x01";
    assert_eq!(created(zero), Value::Null);
    let revision = |data: &[u8]| {
        tree("apps/v1", "ControllerRevision", &field(2, &field(1, data)))["data"].clone()
    };
    assert_eq!(revision(br#"{"a":1}"#), json!({"a": 1}));
    assert_eq!(revision(&envelope("v1", "Secret", &field(3, b"t")))["type"], "t");
}

#[test]
fn delete_options_belong_to_every_group() {
    for version in ["v1", "apps/v1"] {
        assert_eq!(tree(version, "DeleteOptions", &varint(1, 5))["gracePeriodSeconds"], 5);
    }
}

#[test]
fn what_cannot_be_read_is_refused() {
    let error = |body: &[u8]| parse(body).unwrap_err().to_string();
    assert!(error(b"{}").starts_with("provided data does not appear to be a protobuf message"));
    assert!(
        error(&envelope("v1", "Nothing", b"")).starts_with("no kind \"Nothing\" is registered")
    );
    assert_eq!(error(&envelope("v1", "Pod", b"\x0a\x05ab")), "unexpected EOF");
    assert_eq!(error(&envelope("v1", "Pod", &varint(1, 1))), "proto: wrong wireType = 0, not 2");
    assert_eq!(error(&envelope("v1", "Pod", b"\x0f")), "proto: illegal wireType 7");
    // An object in an object in an object …
    let mut deep = envelope("apps/v1", "ControllerRevision", b"");
    for _ in 0..1000 {
        deep = envelope("apps/v1", "ControllerRevision", &field(2, &field(1, &deep)));
    }
    assert_eq!(error(&deep), "exceeded max depth");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(raw in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = parse(&[MAGIC, &raw].concat());
        let _ = parse(&envelope("v1", "Pod", &raw));
        let _ = parse(&envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw));
    }
}

#[test]
fn messages_that_take_many_times_their_bytes_are_refused() {
    let pod = |n: usize| {
        let container = field(2, &field(2, b"x"));
        envelope("v1", "Pod", &field(2, &container.repeat(n)))
    };
    assert!(parse(&pod(20_000)).is_ok());
    let error = parse(&pod(400_000)).unwrap_err();
    assert_eq!(error.0, "document takes more than 134217728 bytes of memory");
}
