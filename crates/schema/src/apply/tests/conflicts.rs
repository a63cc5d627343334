//! Who may change what, and what a refusal says (spec: patch §5.4, §5.5).

use super::*;
use expect_test::expect;

fn message(error: &ApiError) -> String {
    let mut text = format!("{} {} {}\n", error.code(), error.0.reason, error.0.message);
    for cause in error.0.details.iter().flat_map(|details| &details.causes) {
        let _ = writeln!(text, "{} | {} | {}", cause.reason, cause.message, cause.field);
    }
    text
}

#[test]
fn one_conflict_is_one_sentence() {
    let mut story =
        Story::deployment().update("kubectl-client-side-apply", json!({"spec": {"replicas": 1}}));
    let error = story.refused("bob", json!({"spec": {"replicas": 2}}));
    expect![[r#"
        409 Conflict Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using apps/v1: .spec.replicas
        FieldManagerConflict | conflict with "kubectl-client-side-apply" using apps/v1 | .spec.replicas
    "#]]
    .assert_eq(&message(&error));
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let mut story = Story::config_map()
        .apply("zed", json!({"data": {"a": "1", "b": "1"}}))
        .apply("alpha", json!({"data": {"a": "1"}}))
        .update("upd", json!({"data": {"a": "1", "b": "1", "u": "1"}}));
    let error = story.refused("me", json!({"data": {"a": "2", "b": "2", "u": "2"}}));
    expect![[r#"
        409 Conflict Apply failed with 4 conflicts: conflicts with "alpha":
        - .data.a
        conflicts with "upd" using v1:
        - .data.u
        conflicts with "zed":
        - .data.a
        - .data.b
        FieldManagerConflict | conflict with "alpha" | .data.a
        FieldManagerConflict | conflict with "upd" using v1 | .data.u
        FieldManagerConflict | conflict with "zed" | .data.a
        FieldManagerConflict | conflict with "zed" | .data.b
    "#]]
    .assert_eq(&message(&error));
}

#[test]
fn paths_name_keys_and_leaves_come_before_what_is_below() {
    let mut story = Story::deployment().apply(
        "alice",
        json!({"spec": {"paused": true, "template": {"spec": {"containers": [{"name": "nginx", "image": "1",
            "ports": [{"containerPort": 80, "name": "web"}]}]}}}, "metadata": {"labels": {"x.y/z": "1"}}}),
    );
    let error = story.refused(
        "bob",
        json!({"spec": {"paused": false, "template": {"spec": {"containers": [{"name": "nginx", "image": "2",
            "ports": [{"containerPort": 80, "name": "dns"}]}]}}}, "metadata": {"labels": {"x.y/z": "2"}}}),
    );
    expect![[r#"
        Apply failed with 4 conflicts: conflicts with "alice":
        - .metadata.labels.x.y/z
        - .spec.paused
        - .spec.template.spec.containers[name="nginx"].image
        - .spec.template.spec.containers[name="nginx"].ports[containerPort=80,protocol="TCP"].name"#]]
    .assert_eq(&error.0.message);
}

#[test]
fn subresources_are_named() {
    let mut story = Story::custom().update("kcm/status", json!({"status": {"ready": true}}));
    let error = story.refused("bob/status", json!({"status": {"ready": false}}));
    expect![[
        r#"Apply failed with 1 conflict: conflict with "kcm" with subresource "status" using ex.io/v1: .status.ready"#
    ]]
    .assert_eq(&error.0.message);
}

#[test]
fn the_same_value_is_shared_and_force_takes_it_over() {
    let story = Story::config_map()
        .apply("alice", json!({"data": {"a": "1"}}))
        .apply("bob", json!({"data": {"a": "1"}}));
    expect![[r#"
        bob Apply -: {"f:data":{"f:a":{}}}
        alice Apply 01: {"f:data":{"f:a":{}}}
    "#]]
    .assert_eq(&story.owners());
    let story = story.force("bob", json!({"data": {"a": "2"}}));
    expect![[r#"
        bob Apply 03: {"f:data":{"f:a":{}}}
    "#]]
    .assert_eq(&story.owners());
    assert_eq!(story.get("/data"), r#"{"a":"2"}"#);
}

#[test]
fn dropping_a_field_removes_it_only_when_nobody_else_owns_it() {
    let story = Story::config_map()
        .apply("alice", json!({"data": {"a": "1", "b": "1"}}))
        .apply("bob", json!({"data": {"a": "1"}}))
        .apply("alice", json!({"data": {}}));
    assert_eq!(story.get("/data"), r#"{"a":"1"}"#);
    let story = story.apply("bob", json!({}));
    assert_eq!(story.get("/data"), "absent");
    expect![[r#"
        alice Apply 03: {"f:data":{}}
    "#]]
    .assert_eq(&story.owners());
    let story = story.apply("alice", json!({}));
    assert_eq!(story.owners(), "untracked");
}

#[test]
fn removing_never_conflicts() {
    let story = Story::custom()
        .apply("alice", json!({"spec": {"list": [{"k": "a", "v": 1}]}}))
        .apply("bob", json!({"spec": {"list": [{"k": "a"}]}}))
        .apply("alice", json!({"spec": {}}));
    assert_eq!(story.get("/spec/list"), r#"[{"k":"a"}]"#);
}

#[test]
fn a_removed_element_takes_its_unowned_fields_along() {
    let story = Story::custom().apply("alice", json!({"spec": {"list": [{"k": "a"}, {"k": "b"}]}}));
    // A default nobody owns.
    let mut story = story;
    let live = story.live.as_mut().expect("it was created");
    live["spec"]["list"][1]["v"] = json!(7);
    let story = story.apply("alice", json!({"spec": {"list": [{"k": "a"}]}}));
    assert_eq!(story.get("/spec/list"), r#"[{"k":"a"}]"#);
}

#[test]
fn what_nobody_claims_stays() {
    let mut story = Story::config_map().apply("alice", json!({"data": {"a": "1"}}));
    let live = story.live.as_mut().expect("it was created");
    live["data"]["unowned"] = json!("1");
    let story = story.apply("alice", json!({"data": {"b": "1"}}));
    assert_eq!(story.get("/data"), r#"{"b":"1","unowned":"1"}"#);
}

#[test]
fn a_repeated_apply_changes_nothing_not_even_times() {
    let config = json!({"data": {"a": "1"}, "metadata": {"labels": {"a": "1"}}});
    let story = Story::config_map().apply("alice", config.clone());
    let before = story.live().clone();
    assert_eq!(story.apply("alice", config).live(), &before);
}

#[test]
fn an_entry_keeps_its_time_when_only_ownership_changes() {
    let story = Story::config_map()
        .apply("alice", json!({"data": {"a": "1", "b": "1"}}))
        .apply("bob", json!({"data": {"c": "1"}}))
        .apply("bob", json!({"data": {"c": "1", "a": "1"}}));
    expect![[r#"
        alice Apply 01: {"f:data":{"f:a":{},"f:b":{}}}
        bob Apply 02: {"f:data":{"f:a":{},"f:c":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn settling_keeps_old_times_when_nothing_else_changed() {
    let story = Story::config_map().apply("alice", json!({"data": {"a": "1"}}));
    let old = story.live().clone();
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("2030-01-01T00:00:00Z");
    settle_times(Some(&old), &mut new);
    assert_eq!(new, old);
    new["metadata"]["managedFields"][0]["time"] = json!("2030-01-01T00:00:00Z");
    new["data"]["a"] = json!("2");
    let changed = new.clone();
    settle_times(Some(&old), &mut new);
    assert_eq!(new, changed);
}

#[test]
fn settling_finds_entries_whose_order_changed_with_their_times() {
    let story = Story::config_map()
        .apply("alice", json!({"data": {"a": "1"}}))
        .apply("bob", json!({"data": {"b": "1"}}));
    let old = story.live().clone();
    let mut new = old.clone();
    new["metadata"]["managedFields"].as_array_mut().unwrap().reverse();
    new["metadata"]["managedFields"][1]["time"] = json!("2030-01-01T00:00:00Z");
    let reversed = new.clone();
    settle_times(Some(&old), &mut new);
    assert_eq!(new, old);
    new = reversed;
    new["metadata"]["managedFields"][0]["manager"] = json!("carol");
    let changed = new.clone();
    settle_times(Some(&old), &mut new);
    assert_eq!(new, changed);
}
