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
        (".spec['a\\.b/c']", json!(["dotted"])),
        (".spec['a.b/c']", json!([])),
        (".spec['x','a\\.b/c']", json!([1, "dotted"])),
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
        ".a[\"b\"]",
        ".a['b,c']",
        ".a[?(@.x==)]",
        ".a[?(@.b[?(@.c)])]",
        ".a[?(@.b==1 && @.c==1)]",
        "{.a",
        ".a['b]",
        ".a\\",
        ".a,b",
        "..*",
        "....a",
    ] {
        assert!(JsonPath::parse(path).is_err(), "{path}");
    }
    assert!(JsonPath::parse(&".a".repeat(PATH_BYTES_MAX)).is_err());
    assert!(JsonPath::parse(&"[?(@".repeat(1000)).is_err());
    let nested = format!("{}.a{}", "[?(@".repeat(100), ")]".repeat(100));
    assert!(JsonPath::parse(&nested).is_err());
}

/// Such a path selects nothing at all, also where a part of it selects something.
#[test]
fn path_that_fails_selects_nothing() {
    let object = json!({
        "l": ["p", "q"], "n": null, "o": {"a": 1}, "s": "x", "empty": [],
        "mixed": [{"x": 1}, {"x": "b", "y": [1, 2]}, {"z": null}],
        "floats": [{"x": 1}, {"x": 1.5}],
        "lists": [[1], [2, 3]],
        "bools": [{"b": true, "i": 1}, {"b": false, "i": 2}],
    });
    for (path, found) in [
        // Outside the list, and not a list.
        (".l[0:5]", json!([])),
        (".l[0:2]", json!(["p", "q"])),
        (".l[0,9]", json!([])),
        (".l[0,1]", json!(["p", "q"])),
        (".l[1:0]", json!([])),
        (".l[-3:]", json!([])),
        (".l[0:2:0]", json!([])),
        (".l[2:2]", json!([])),
        (".lists[*][1]", json!([])),
        (".lists[*][0]", json!([1, 2])),
        (".empty[*]", json!([])),
        (".o[*]", json!([])),
        (".o.*", json!([1])),
        (".n[0]", json!([])),
        (".n", json!([null])),
        ("..[0]", json!([])),
        // Compared values of two types; several; none.
        (r#".mixed[?(@.x=="b")].x"#, json!([])),
        (".mixed[?(@.x==1)].x", json!([])),
        (".mixed[?(@.y[*]==1)].x", json!([])),
        (".mixed[?(@.y[0]==1)].x", json!(["b"])),
        (".mixed[?(@.z==1)]", json!([])),
        (".mixed[?(@.z)]", json!([{"z": null}])),
        (".mixed[?(@.y[9])].x", json!(["b"])),
        (".floats[?(@.x==1)].x", json!([])),
        (".bools[?(@.b==true)].i", json!([1])),
        (".bools[?(@.b!=true)].i", json!([2])),
        (".bools[?(@.b<true)].i", json!([])),
        (".bools[?(@.i=1)].i", json!([])),
        (".bools[?(@.i==x)].i", json!([])),
        (".bools[?(@.missing==x)].i", json!([])),
        (".bools[?(1==@.i)].i", json!([1])),
        (".o[?(@.a)]", json!([])),
        // Words and literals outside a comparison.
        (".l b", json!([])),
        (".l .b", json!([])),
        (".o .a", json!([1])),
        (".o 5", json!([])),
    ] {
        let path = JsonPath::parse(path).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(json!(path.find(&object)), found, "{path:?}");
    }
}

#[test]
fn work_of_a_path_is_bounded() {
    let object = json!({"a": [[1, 2], {"b": [{"c": {"d": [3, 4]}}]}]});
    for path in ["['.','.']".repeat(400), format!(".a[?(@{}==1)]", "['.','.']".repeat(400))] {
        let path = JsonPath::parse(&path).unwrap();
        assert_eq!(path.find(&object), Vec::<&Value>::new());
    }
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(text in "([.a@$*?()'\"=<\\[\\]\\\\:,0-9é-]|\\[\\?\\(@|\\)\\]){0,16}") {
        if let Ok(path) = JsonPath::parse(&text) {
            path.find(&serde_json::json!({"a": [1, {"a": "é"}]}));
        }
    }
}
