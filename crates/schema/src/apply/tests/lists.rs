//! The order of merged lists, keys with defaults, repeated elements (spec: patch §5.4, §5.6).

use super::*;
use expect_test::{Expect, expect};

/// Element names: the live list, the applied one, the result.
fn check(live: &str, config: &str, expect: Expect) {
    let list = |names: &str| -> Value {
        names.split_whitespace().map(|name| json!({ "k": name })).collect()
    };
    let keys = |story: &Story| {
        let items = story.live()["spec"]["list"].as_array().cloned().unwrap_or_default();
        let keys: Vec<String> =
            items.iter().map(|i| i["k"].as_str().unwrap_or_default().to_owned()).collect();
        keys.join(" ")
    };
    let story = Story::custom()
        .update("alice", json!({"spec": {"list": list(live)}}))
        .apply("bob", json!({"spec": {"list": list(config)}}));
    expect.assert_eq(&keys(&story));
}

#[test]
fn merged_lists_keep_the_configurations_order_among_live_neighbours() {
    check("a b c", "a b c", expect!["a b c"]);
    check("a b c", "c a", expect!["b c a"]);
    check("a b c", "x", expect!["a b c x"]);
    check("a b c", "x b", expect!["a x b c"]);
    check("a b c", "b x", expect!["a b c x"]);
    check("a b c", "a x c", expect!["a b x c"]);
    check("a b c d", "d x a", expect!["b c d x a"]);
    check("", "b a", expect!["b a"]);
}

#[test]
fn sets_are_united_in_the_same_order() {
    let story = Story::custom()
        .update("alice", json!({"spec": {"set": ["a", "b", "c"]}}))
        .apply("bob", json!({"spec": {"set": ["c", "x", "a"]}}));
    assert_eq!(story.get("/spec/set"), r#"["b","c","x","a"]"#);
}

#[test]
fn a_key_with_a_default_may_be_left_out() {
    let story = Story::custom()
        .update(
            "alice",
            json!({"spec": {"defaulted": [{"k": "a", "d": "x"}, {"k": "a", "d": "y"}]}}),
        )
        .apply("bob", json!({"spec": {"defaulted": [{"k": "a"}]}}));
    assert_eq!(story.get("/spec/defaulted"), r#"[{"d":"x","k":"a"},{"d":"y","k":"a"}]"#);
    let owners = story.owners();
    expect![[r#"bob Apply -: {"f:spec":{"f:defaulted":{"k:{\"d\":\"x\",\"k\":\"a\"}":{".":{},"f:k":{}}}}}"#]]
        .assert_eq(owners.lines().next().unwrap_or_default());
}

#[test]
fn repeated_live_elements_are_tolerated_and_the_applied_one_takes_their_place() {
    let story = Story::custom()
        .update(
            "alice",
            json!({"spec": {"list": [{"k": "a", "v": 1}, {"k": "b"}, {"k": "a", "v": 2}]}}),
        )
        .force("bob", json!({"spec": {"list": [{"k": "a", "v": 3}]}}));
    assert_eq!(story.get("/spec/list"), r#"[{"k":"a","v":3},{"k":"b"}]"#);
}

#[test]
fn atomic_lists_and_maps_are_replaced() {
    let story = Story::custom()
        .apply("alice", json!({"spec": {"plain": ["a", "b"], "whole": {"a": "1"}}}))
        .force("bob", json!({"spec": {"plain": ["c"], "whole": {"b": "1"}}}));
    assert_eq!(story.get("/spec"), r#"{"plain":["c"],"whole":{"b":"1"}}"#);
}

#[test]
fn untyped_maps_are_granular_and_lists_in_them_atomic() {
    let story = Story::custom()
        .apply("alice", json!({"spec": {"free": {"m": {"a": 1}, "l": [1]}}}))
        .force("bob", json!({"spec": {"free": {"m": {"b": {"c": 2}}, "l": [2]}}}));
    assert_eq!(story.get("/spec/free"), r#"{"l":[2],"m":{"a":1,"b":{"c":2}}}"#);
}

#[test]
fn null_resets_a_scalar() {
    let story = Story::deployment()
        .apply("alice", json!({"spec": {"replicas": 3, "paused": true}}))
        .apply("alice", json!({"spec": {"replicas": null, "paused": true}}));
    assert_eq!(story.get("/spec/replicas"), "absent");
    expect![[r#"
        alice Apply 02: {"f:spec":{"f:paused":{},"f:replicas":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn a_map_or_a_list_that_is_emptied_below_what_is_still_owned_stays_empty() {
    let story = Story::custom()
        .apply("ann", json!({"spec": {"map": {"a": "1"}, "set": ["a"]}}))
        .apply("ann", json!({"spec": {"map": {}, "set": ["a"]}}));
    assert_eq!(story.get("/spec"), r#"{"map":{},"set":["a"]}"#);
}

#[test]
fn pull_secrets_without_a_name_have_the_empty_one() {
    let story = Story::builtin("", "v1", "Pod")
        .apply("ann", json!({"spec": {"imagePullSecrets": [{}, {"name": "a"}]}}));
    assert_eq!(story.get("/spec/imagePullSecrets"), r#"[{},{"name":"a"}]"#);
}

#[test]
fn an_owner_without_a_uid_has_the_empty_one_in_custom_resources_too() {
    let story = Story::custom().apply("ann", json!({"metadata": {"ownerReferences": [{}]}}));
    assert!(story.owners().contains(r#"k:{\"uid\":\"\"}"#), "{}", story.owners());
}
