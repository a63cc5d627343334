use super::*;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn paths_select_the_same_as_in_kubectl() {
    let object = json!({
        "spec": {"x": 1, "a.b/c": "dotted", "l": ["p", "q", "r", "s"]},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "n": 3},
            {"type": "Synced", "status": "False", "n": 5, "reason": "No"},
        ]},
    });
    for (path, found) in [
        (".spec.x", json!([1])),
        ("{.spec.x}", json!([1])),
        ("{ $.spec.x }", json!([1])),
        ("spec.x", json!([1])),
        (".spec.a\\.b/c", json!(["dotted"])),
        (".spec['a.b/c']", json!(["dotted"])),
        (".spec[\"x\",'a.b/c']", json!([1, "dotted"])),
        (".spec.l[0]", json!(["p"])),
        (".spec.l[-1]", json!(["s"])),
        (".spec.l[9]", json!([])),
        (".spec.l[-9]", json!([])),
        (".spec.l[1:3]", json!(["q", "r"])),
        (".spec.l[::2]", json!(["p", "r"])),
        (".spec.l[-2:]", json!(["r", "s"])),
        (".spec.l[3:1]", json!([])),
        (".spec.l[0,2]", json!(["p", "r"])),
        (".spec.l[*]", json!(["p", "q", "r", "s"])),
        (".status.conditions[*].type", json!(["Ready", "Synced"])),
        (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
        (".status.conditions[?(@.type == 'Synced')].status", json!(["False"])),
        (".status.conditions[?(@.type!='Ready')].n", json!([5])),
        (".status.conditions[?(@.n>3)].type", json!(["Synced"])),
        (".status.conditions[?(@.n<=3)].type", json!(["Ready"])),
        (".status.conditions[?(@.reason)].type", json!(["Synced"])),
        (".status.conditions[?(@.missing==1)].type", json!([])),
        ("..type", json!(["Ready", "Synced"])),
        (".missing.x", json!([])),
        (".spec.x.y", json!([])),
        (".spec.x[0]", json!([])),
    ] {
        let path = JsonPath::parse(path).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(json!(path.find(&object)), found, "{path:?}");
    }
}

#[test]
fn invalid_path_is_an_error() {
    for path in [
        ".spec[",
        ".a[x]",
        ".a[1:2:0]",
        ".a[?(@.x==)]",
        "{.a",
        ".a[?(@.x==y)]",
        ".a['b]",
        ".a\\",
        ".a b",
    ] {
        assert!(JsonPath::parse(path).is_err(), "{path}");
    }
    assert!(JsonPath::parse(&".a".repeat(PATH_BYTES_MAX)).is_err());
    assert!(JsonPath::parse(&"[?(@".repeat(1000)).is_err());
    let nested = format!("{}.a{}", "[?(@".repeat(100), ")]".repeat(100));
    assert!(JsonPath::parse(&nested).is_err());
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(text in "([.a@$*?()'\"=<\\[\\]\\\\:,0-9é-]|\\[\\?\\(@|\\)\\]){0,16}") {
        if let Ok(path) = JsonPath::parse(&text) {
            path.find(&serde_json::json!({"a": [1, {"a": "é"}]}));
        }
    }
}
