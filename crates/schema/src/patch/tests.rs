//! One test per row of spec: patch §2–4.

mod laws;
mod unchecked;
mod webhooks;

use super::*;
use crate::builtin;
use crate::node::TypeSchema;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

fn shown(target: &Value, problems: &[String], result: Result<(), ApiError>) -> String {
    match result {
        Ok(()) if problems.is_empty() => target.to_string(),
        Ok(()) => format!("{target} {}", problems.join("; ")),
        Err(error) => format!("{} {} {}", error.code(), error.0.reason, error.0.message),
    }
}

fn check_json(target: Value, patch: &str, expect: Expect) {
    let (mut target, mut problems) = (target, Vec::new());
    let result = json_patch(&mut target, patch.as_bytes(), &mut problems);
    expect.assert_eq(&shown(&target, &problems, result));
}

fn check_merge(target: Value, patch: &str, expect: Expect) {
    let (mut target, mut problems) = (target, Vec::new());
    let result = merge_patch(&mut target, patch.as_bytes(), &mut problems);
    expect.assert_eq(&shown(&target, &problems, result));
}

fn pod() -> TypeSchema {
    builtin::type_schema("", "v1", "Pod").expect("Pod is in the facts table")
}

fn check_strategic(target: Value, patch: &str, expect: Expect) {
    let (mut target, mut problems) = (target, Vec::new());
    let result = strategic_merge_patch(&pod(), &mut target, patch.as_bytes(), &mut problems);
    expect.assert_eq(&shown(&target, &problems, result));
}

/// Containers by name in, names out: `live`, the patch's `containers` member, the order directive.
fn check_order(live: &str, patch: Value, order: Option<&str>, expect: Expect) {
    let named = |names: &str| -> Vec<Value> {
        names.split_whitespace().map(|name| json!({ "name": name })).collect()
    };
    let mut target = json!({"spec": {"containers": named(live)}});
    let mut spec = serde_json::Map::new();
    if !patch.is_null() {
        spec.insert("containers".to_owned(), patch);
    }
    if let Some(order) = order {
        spec.insert("$setElementOrder/containers".to_owned(), Value::from(named(order)));
    }
    let body = json!({ "spec": spec }).to_string();
    let text = match strategic_merge_patch(&pod(), &mut target, body.as_bytes(), &mut Vec::new()) {
        Err(error) => format!("{} {}", error.code(), error.0.message),
        Ok(()) => {
            let containers = target["spec"]["containers"].as_array().cloned().unwrap_or_default();
            let names: Vec<&str> = containers.iter().filter_map(|c| c["name"].as_str()).collect();
            names.join(" ")
        }
    };
    expect.assert_eq(&text);
}

fn names(names: &str) -> Value {
    names.split_whitespace().map(|name| json!({ "name": name })).collect()
}

#[test]
fn json_patch_carries_out_operations_in_order() {
    check_json(
        json!({"a": 1, "l": [1, 2]}),
        r#"[{"op":"add","path":"/b","value":{"c":[]}},{"op":"copy","from":"/a","path":"/b/c/-"},
            {"op":"move","from":"/l/0","path":"/m"},{"op":"test","path":"/m","value":1},{"op":"remove","path":"/a"}]"#,
        expect![[r#"{"b":{"c":[1]},"l":[2],"m":1}"#]],
    );
    check_json(
        json!({"annotations": {"example.com/x": "1", "~": "2"}}),
        r#"[{"op":"replace","path":"/annotations/example.com~1x","value":"3"},{"op":"remove","path":"/annotations/~0"}]"#,
        expect![[r#"{"annotations":{"example.com/x":"3"}}"#]],
    );
    check_json(json!({"a": 1}), "[]", expect![[r#"{"a":1}"#]]);
}

#[test]
fn json_patch_takes_the_liberties_of_the_reference() {
    let target = || json!({"a": {}, "l": [1, 2]});
    check_json(
        target(),
        r#"[{"op":"replace","path":"/a/new","value":1}]"#,
        expect![[r#"{"a":{"new":1},"l":[1,2]}"#]],
    );
    check_json(
        target(),
        r#"[{"op":"test","path":"/a/none","value":null},{"op":"add","path":"/a/x"}]"#,
        expect![[r#"{"a":{"x":null},"l":[1,2]}"#]],
    );
    check_json(
        target(),
        r#"[{"op":"remove","path":"/l/-1"},{"op":"add","path":"/l/-1","value":3}]"#,
        expect![[r#"{"a":{},"l":[1,3]}"#]],
    );
}

#[test]
fn json_patch_hides_why_an_operation_failed() {
    for patch in [
        r#"[{"op":"add","path":"/no/x","value":1}]"#,
        r#"[{"op":"add","path":"/l/3","value":1}]"#,
        r#"[{"op":"remove","path":"/no"}]"#,
        r#"[{"op":"remove","path":"/l/7"}]"#,
        r#"[{"op":"replace","path":"/l/2","value":1}]"#,
        r#"[{"op":"replace","path":"/no/x","value":1}]"#,
        r#"[{"op":"test","path":"/a","value":2}]"#,
        r#"[{"op":"test","path":"/no","value":2}]"#,
        r#"[{"op":"test","path":"","value":{}}]"#,
        r#"[{"op":"remove","path":""}]"#,
        r#"[{"op":"move","from":"/no","path":"/x"}]"#,
        r#"[{"op":"copy","from":"/no/x","path":"/x"}]"#,
        r#"[{"op":"Add","path":"/x","value":1}]"#,
        r#"[{"op":"add","path":"x","value":1}]"#,
        r#"[{"path":"/x","value":1}]"#,
        "[null]",
    ] {
        let mut target = json!({"a": 1, "l": [1, 2]});
        let error = json_patch(&mut target, patch.as_bytes(), &mut Vec::new())
            .expect_err("the operation cannot be carried out");
        assert_eq!((error.code(), error.0.reason.as_str()), (422, "Invalid"), "{patch}");
        assert_eq!(
            error.0.message, "the server rejected our request due to an error in our request",
            "{patch}"
        );
        assert_eq!(error.0.details, Some(Details::default()), "{patch}");
    }
}

#[test]
fn json_patch_refuses_what_is_no_list_of_operations() {
    check_json(
        json!({}),
        "{}",
        expect![
            "400 BadRequest error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        ],
    );
    check_json(
        json!({}),
        r#"[{"op":"add""#,
        expect!["400 BadRequest error decoding patch: unexpected end of JSON input"],
    );
    check_json(
        json!({}),
        r#"[{"op":1}]"#,
        expect![
            "400 BadRequest error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"
        ],
    );
    // The first in the text, not by name.
    check_json(
        json!({}),
        r#"[{"op":"test"},{"path":true,"op":1}]"#,
        expect![
            "400 BadRequest error decoding patch: json: cannot unmarshal bool into Go struct field jsonPatchOp.path of type string"
        ],
    );
    let many = format!("[{}]", vec!["null"; OPERATIONS_MAX + 1].join(","));
    check_json(
        json!({}),
        &many,
        expect![
            "413 RequestEntityTooLarge Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        ],
    );
}

#[test]
fn json_patch_reports_members_given_in_vain_or_twice() {
    check_json(
        json!({}),
        r#"[{"op":"add","path":"/a","value":1,"value":2,"foo":3}]"#,
        expect![[
            r#"{"a":2} json patch duplicate field "[0].value"; json patch unknown field "[0].foo""#
        ]],
    );
    // In document order; an unknown member is not looked into, and is unknown only once.
    check_json(
        json!({}),
        r#"[{"no":{"x":1,"x":2},"op":"add","no":1,"path":"/a","value":{"y":1,"y":2}},
            {"op":"add","path":"/c","path":"/b","value":1,"[0]":2}]"#,
        expect![[
            r#"{"a":{"y":2},"b":1} json patch unknown field "[0].no"; json patch duplicate field "[0].value.y"; json patch duplicate field "[1].path"; json patch unknown field "[1].[0]""#
        ]],
    );
}

#[test]
fn json_patch_bounds_what_copies_add() {
    let operations = vec![json!({"op": "copy", "from": "/a", "path": "/b"}); 4];
    let mut target = json!({"a": "x".repeat(1 << 20)});
    let patch = Value::from(operations).to_string();
    let error = json_patch(&mut target, patch.as_bytes(), &mut Vec::new());
    assert_eq!(error.expect_err("four copies of 1 MiB are more than 3 MiB").code(), 422);
}

#[test]
fn json_patch_bounds_what_operations_shift() {
    let list = |n: usize| json!({"l": vec![0; n]});
    let at_front = |op: &str, n: usize| {
        Value::from(vec![json!({"op": op, "path": "/l/0", "value": 1}); n]).to_string()
    };
    for op in ["add", "remove"] {
        let mut target = list(20_000);
        json_patch(&mut target, at_front(op, 1_000).as_bytes(), &mut Vec::new()).unwrap();
        let error = json_patch(
            &mut list(300_000),
            at_front(op, OPERATIONS_MAX).as_bytes(),
            &mut Vec::new(),
        );
        let error = error.expect_err("three billion elements are too many");
        assert_eq!(error.code(), 413);
        assert!(error.0.message.contains("may shift 67108864 elements"), "{}", error.0.message);
    }
    // At the end nothing is shifted.
    let appends =
        Value::from(vec![json!({"op": "add", "path": "/l/-", "value": 1}); OPERATIONS_MAX]);
    json_patch(&mut list(300_000), appends.to_string().as_bytes(), &mut Vec::new()).unwrap();
}

#[test]
fn json_patch_nests_no_deeper_than_a_body() {
    let deep = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    let add = |levels: usize, below: usize| {
        let path = "/a".repeat(below);
        format!(r#"{{"op":"add","path":"{path}","value":{}}}"#, deep(levels))
    };
    let patch = format!("[{},{}]", add(100, 1), add(26, 101));
    let mut target = json!({});
    json_patch(&mut target, patch.as_bytes(), &mut Vec::new()).unwrap();
    for patch in [
        format!("[{},{}]", add(100, 1), add(27, 101)),
        // Doubled: a thousand operations would overflow a stack.
        format!(r#"[{},{{"op":"copy","from":"/a","path":"{}"}}]"#, add(100, 1), "/a".repeat(101)),
    ] {
        let error = json_patch(&mut json!({}), patch.as_bytes(), &mut Vec::new());
        assert_eq!(error.expect_err("too deep").code(), 422);
    }
}

#[test]
fn strategic_merge_of_long_lists_is_not_quadratic() {
    const N: usize = 20_000;
    let env = |value: &str| -> Vec<Value> {
        (0..N).map(|i| json!({"name": format!("E{i}"), "value": value})).collect()
    };
    let mut target = json!({"metadata": {"finalizers": (0..N).collect::<Vec<_>>()}, "spec": {"containers": [{"name": "a", "env": env("1")}]}});
    let mut sent = env("2");
    sent.extend((0..N / 2).map(|i| json!({"$patch": "delete", "name": format!("E{}", 2 * i)})));
    sent.drain(0..N / 2);
    let order: Vec<Value> = (0..N).rev().map(|i| json!({"name": format!("E{i}")})).collect();
    sent.retain(|element| {
        let name = element["name"].as_str().and_then(|name| name[1..].parse::<usize>().ok());
        element.get("$patch").is_some() || name.is_some_and(|name| name % 2 == 1)
    });
    sent.sort_by_key(|element| {
        std::cmp::Reverse(element["name"].as_str().and_then(|name| name[1..].parse::<usize>().ok()))
    });
    let body =
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": (0..N - 1).collect::<Vec<_>>()},
        "spec": {"containers": [{"name": "a", "env": sent, "$setElementOrder/env": order}]}})
        .to_string();
    let mut problems = Vec::new();
    // Types are checked last; numbers are no finalizers.
    let _ = strategic_merge_patch(&pod(), &mut target, body.as_bytes(), &mut problems);
    assert_eq!(target["metadata"]["finalizers"], json!([N - 1]));
    let env = target["spec"]["containers"][0]["env"].as_array().unwrap();
    assert_eq!(env.len(), N / 2);
    assert_eq!(env[0], json!({"name": format!("E{}", N - 1), "value": "2"}));
    assert_eq!(env[N / 2 - 1], json!({"name": "E1", "value": "1"}));
}

#[test]
fn merge_patch_merges_maps_and_replaces_the_rest() {
    check_merge(
        json!({"a": {"b": 1, "c": 2}, "l": [1, 2], "s": 1}),
        r#"{"a":{"b":null,"d":{"e":null,"f":1}},"l":[3],"s":{"x":null},"gone":null}"#,
        expect![[r#"{"a":{"c":2,"d":{"f":1}},"l":[3],"s":{}}"#]],
    );
    check_merge(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
        r#"{"metadata":{"labels":{"a":null}}}"#,
        expect![[r#"{"metadata":{"labels":{"b":"2"}}}"#]],
    );
    check_merge(json!({}), r#"{"a":1,"a":2}"#, expect![[r#"{"a":2} duplicate field "a""#]]);
}

#[test]
fn merge_patch_refuses_what_is_no_object() {
    check_merge(
        json!({}),
        "[]",
        expect![
            "400 BadRequest error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        ],
    );
    check_merge(json!({}), "null", expect!["400 BadRequest Invalid JSON Patch"]);
    check_merge(
        json!({}),
        "{",
        expect!["400 BadRequest error decoding patch: unexpected end of JSON input"],
    );
}

#[test]
fn strategic_lists_come_out_in_the_order_of_the_rule() {
    check_order("a b c", names("x y"), None, expect!["x y a b c"]);
    check_order("a b c", names("x c"), None, expect!["x a b c"]);
    check_order("a b c", names("b x"), None, expect!["a b x c"]);
    check_order("a b c", names("c a"), None, expect!["b c a"]);
    check_order("a b c", names("x"), Some("a x b c"), expect!["a x b c"]);
    check_order("a b c", names("x"), Some("x c"), expect!["x a b c"]);
    check_order("a b c", names("b"), Some("c b a"), expect!["c b a"]);
    check_order("a b c", Value::Null, Some("c a"), expect!["b c a"]);
    check_order(
        "a b c",
        json!([{"$patch": "delete", "name": "b"}, {"name": "q"}]),
        None,
        expect!["q a c"],
    );
}

#[test]
fn strategic_additions_take_the_places_of_deletions_under_an_order_directive() {
    // What kubectl sends to replace container b by q: the reference edits one array in place.
    check_order(
        "a b",
        json!([{"$patch": "delete", "name": "b"}, {"name": "q"}]),
        Some("a q"),
        expect!["a q"],
    );
    check_order(
        "a b c",
        json!([{"$patch": "delete", "name": "b"}, {"name": "q"}]),
        Some("q"),
        expect!["a c q"],
    );
}

#[test]
fn strategic_scalar_lists_are_united() {
    let target = || json!({"metadata": {"finalizers": ["a", "b"]}});
    check_strategic(
        target(),
        r#"{"metadata":{"finalizers":["c","a"]}}"#,
        expect![[r#"{"metadata":{"finalizers":["c","a","b"]}}"#]],
    );
    check_strategic(
        target(),
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]}}"#,
        expect![[r#"{"metadata":{"finalizers":["b"]}}"#]],
    );
    check_strategic(
        target(),
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":"a"}}"#,
        expect![[r#"{"metadata":{"finalizers":["a","b"]}}"#]],
    );
}

#[test]
fn strategic_maps_merge_and_null_deletes() {
    check_strategic(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"nodeName": "n"}}),
        r#"{"metadata":{"labels":{"a":null,"c":"3"}},"spec":{"nodeName":null,"securityContext":{"fsGroup":null}}}"#,
        expect![[r#"{"metadata":{"labels":{"b":"2","c":"3"}},"spec":{"securityContext":{}}}"#]],
    );
    check_strategic(json!({"spec": {}}), "null", expect![[r#"{"spec":{}}"#]]);
}

#[test]
fn strategic_lists_of_maps_merge_by_key_or_are_replaced() {
    check_strategic(
        json!({"spec": {"containers": [{"name": "a", "image": "1", "args": ["x"], "env": [{"name": "E", "value": "1"}]}]}}),
        r#"{"spec":{"containers":[{"name":"a","args":["y"],"env":[{"name":"F","value":"2"}]}]}}"#,
        expect![[
            r#"{"spec":{"containers":[{"args":["y"],"env":[{"name":"F","value":"2"},{"name":"E","value":"1"}],"image":"1","name":"a"}]}}"#
        ]],
    );
    check_strategic(
        json!({"spec": {"tolerations": [{"key": "a"}]}}),
        r#"{"spec":{"tolerations":[{"key":"b"}]}}"#,
        expect![[r#"{"spec":{"tolerations":[{"key":"b"}]}}"#]],
    );
}

#[test]
fn strategic_patch_directives_replace_and_delete() {
    let target = || json!({"metadata": {"labels": {"a": "1"}}});
    check_strategic(
        target(),
        r#"{"metadata":{"labels":{"$patch":"replace","b":"2"}}}"#,
        expect![[r#"{"metadata":{"labels":{"b":"2"}}}"#]],
    );
    check_strategic(
        target(),
        r#"{"metadata":{"labels":{"$patch":"delete","b":"2"}}}"#,
        expect![[r#"{"metadata":{"labels":{}}}"#]],
    );
    check_order(
        "a b",
        json!([{"name": "c"}, {"$patch": "replace"}, {"name": "d"}]),
        None,
        expect!["c d"],
    );
    check_strategic(
        target(),
        r#"{"spec":{"containers":[{"$patch":"delete","name":"a"},{"name":"b"}]}}"#,
        expect![[r#"{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[{"name":"b"}]}}"#]],
    );
}

#[test]
fn strategic_retain_keys_drops_what_it_does_not_name() {
    let target = || json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]}});
    check_strategic(
        target(),
        r#"{"spec":{"volumes":[{"name":"v","configMap":{"name":"c"},"$retainKeys":["name","configMap"]}]}}"#,
        expect![[
            r#"{"spec":{"volumes":[{"configMap":{"name":"c"},"name":"v"},{"emptyDir":{},"name":"w"}]}}"#
        ]],
    );
    for retain in [r#"["name"]"#, r#""name""#] {
        check_strategic(
            target(),
            &format!(
                r#"{{"spec":{{"volumes":[{{"name":"v","configMap":{{}},"$retainKeys":{retain}}}]}}}}"#
            ),
            expect!["400 BadRequest invalid patch format of retainKeys"],
        );
    }
}

#[test]
fn strategic_structural_errors_have_the_reference_texts() {
    check_strategic(
        json!({}),
        "[]",
        expect![
            "400 BadRequest json: cannot unmarshal array into Go value of type map[string]interface {}"
        ],
    );
    check_strategic(json!({}), "{", expect!["400 BadRequest unexpected end of JSON input"]);
    check_strategic(
        json!({"metadata": {}}),
        r#"{"metadata":{"$patch":"foo","d":3}}"#,
        expect!["500  unknown patch type: foo in map: map[$patch:foo d:3]"],
    );
    check_order(
        "a",
        json!([{"$patch": "merge", "name": "a"}]),
        None,
        expect!["500 merging lists cannot yet be specified in the patch"],
    );
    check_order(
        "a",
        json!([{"image": "q"}]),
        None,
        expect!["500 map: map[image:q] does not contain declared merge key: name"],
    );
    check_order(
        "a",
        json!([{"$patch": "delete"}]),
        None,
        expect!["500 map: map[$patch:delete] does not contain declared merge key: name"],
    );
    check_order(
        "a b c",
        json!([{"name": "c", "image": "z"}]),
        Some("d"),
        expect![[r#"
            500 The order in patch list:
            [map[image:z name:c]]
             doesn't match $setElementOrder list:
            [map[name:d]]
        "#]],
    );
    check_strategic(
        json!({"spec": {"containers": [{"name": "a"}]}}),
        r#"{"spec":{"$setElementOrder/containers":"a"}}"#,
        expect!["500  expected a []interface {}, but received a string"],
    );
    check_order(
        "a",
        json!(["x"]),
        None,
        expect!["500 list element types are not identical: [[map[name:a]] [x]]"],
    );
}

#[test]
fn strategic_results_of_a_wrong_type_show_the_patch_as_go_does() {
    let schema = builtin::type_schema("apps", "v1", "Deployment").expect("a built-in");
    let check = |patch: &str, expect: Expect| {
        let (mut target, mut problems) = (json!({"spec": {"strategy": {}}}), Vec::new());
        let result = strategic_merge_patch(&schema, &mut target, patch.as_bytes(), &mut problems);
        expect.assert_eq(&shown(&target, &problems, result));
    };
    check(
        r#"{"spec":{"replicas":"x"}}"#,
        expect![[
            r#"422 Invalid  "" is invalid: patch: Invalid value: "map[spec:map[replicas:x]]": unrecognized type: int32"#
        ]],
    );
    check(
        r#"{"spec":{"strategy":[]}}"#,
        expect![[
            r#"422 Invalid  "" is invalid: patch: Invalid value: "map[spec:map[strategy:[]]]": cannot restore struct from: slice"#
        ]],
    );
    check(
        r#"{"spec":{"template":{"spec":{"containers":{}}}}}"#,
        expect![[
            r#"422 Invalid  "" is invalid: patch: Invalid value: "map[spec:map[template:map[spec:map[containers:map[]]]]]": cannot restore slice from map"#
        ]],
    );
}

#[test]
fn json_patch_has_the_liberties_of_the_reference() {
    let target = || json!({"a": 1, "l": [1]});
    // A missing member is copied as null, but not a missing element.
    check_json(
        target(),
        r#"[{"op":"copy","from":"/no","path":"/b"}]"#,
        expect![[r#"{"a":1,"b":null,"l":[1]}"#]],
    );
    check_json(
        target(),
        r#"[{"op":"copy","from":"/l/1","path":"/b"}]"#,
        expect!["422 Invalid the server rejected our request due to an error in our request"],
    );
    // What stands before the first slash is not looked at.
    check_json(target(), r#"[{"op":"remove","path":"x/a"}]"#, expect![[r#"{"l":[1]}"#]]);
    check_json(
        target(),
        r#"[{"op":"remove","path":"a"}]"#,
        expect!["422 Invalid the server rejected our request due to an error in our request"],
    );
    check_json(
        target(),
        r#"[{"op":"replace","path":"","value":"x"}]"#,
        expect!["422 Invalid the server rejected our request due to an error in our request"],
    );
}

#[test]
fn elements_that_an_order_directive_does_not_know_are_reversed_as_in_the_reference() {
    let mut target = json!({"spec": {}});
    let body = json!({"spec": {"$setElementOrder/volumes": [], "volumes": names("a b c")}});
    let done =
        strategic_merge_patch(&pod(), &mut target, body.to_string().as_bytes(), &mut Vec::new());
    assert_eq!(done, Ok(()));
    assert_eq!(target["spec"]["volumes"], names("c b a"));
}

#[test]
fn undecodable_results_have_causes_only() {
    let error = undecodable("{}", "strict decoding error: unknown field \"spec.foo\"");
    expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":" \"\" is invalid: patch: Invalid value: \"{}\": strict decoding error: unknown field \"spec.foo\"","reason":"Invalid","details":{"causes":[{"reason":"FieldValueInvalid","message":"Invalid value: \"{}\": strict decoding error: unknown field \"spec.foo\"","field":"patch"}]},"code":422}"#]]
    .assert_eq(String::from_utf8_lossy(&error.to_json()).trim_end());
}

#[test]
fn values_print_as_go_prints_them() {
    let value = json!({
        "b": [1, 2.5, "x", null, true],
        "a": {"f": 1e21, "m": 1234567.5, "n": 999999.5, "s": 0.00001},
    });
    expect!["map[a:map[f:1e+21 m:1.2345675e+06 n:999999.5 s:1e-05] b:[1 2.5 x <nil> true]]"]
        .assert_eq(&go_value(&value));
}
