//! From client-side to server-side apply (spec: patch §5.6).

use super::*;
use expect_test::expect;

/// What `kubectl apply` leaves: the object, and what was applied in an annotation.
fn client_side(applied: Value) -> Story {
    let story = Story::config_map();
    let mut parts = applied.clone();
    let annotation = format!("{}\n", story.body(applied));
    merge_parts(
        &mut parts,
        json!({"metadata": {"annotations": {LAST_APPLIED_ANNOTATION: annotation}}}),
    );
    story.update("kubectl-client-side-apply", parts)
}

#[test]
fn kubectl_takes_over_what_client_side_apply_left() {
    let story = client_side(json!({"data": {"a": "1", "b": "1"}}))
        .apply("kubectl", json!({"data": {"a": "2", "b": "1"}}));
    expect![[r#"
        kubectl Apply 02: {"f:data":{"f:a":{},"f:b":{}}}
        kubectl-client-side-apply Update 01: {"f:data":{".":{},"f:b":{}},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}
    "#]]
    .assert_eq(&story.owners());
    expect![[r#"
        "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"2\",\"b\":\"1\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\"}}\n""#]]
    .assert_eq(&story.get("/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"));
}

#[test]
fn others_and_changed_fields_still_conflict() {
    let mut story = client_side(json!({"data": {"a": "1"}}));
    let error = story.refused("flux", json!({"data": {"a": "2"}}));
    assert_eq!(error.code(), 409);
    let live = story.live.as_mut().expect("it was created");
    live["data"]["a"] = json!("edited");
    let error = story.refused("kubectl", json!({"data": {"a": "2"}}));
    expect![[
        r#"Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.a"#
    ]]
    .assert_eq(&error.0.message);
}

#[test]
fn the_annotation_is_refreshed_html_safe() {
    let story =
        client_side(json!({"data": {"a": "1"}})).apply("kubectl", json!({"data": {"a": "<&>"}}));
    let text = story.get("/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration");
    assert!(text.contains(r"\\u003c\\u0026\\u003e"), "{text}");
}

#[test]
fn an_object_without_the_annotation_gets_none() {
    let story = Story::config_map().apply("kubectl", json!({"data": {"a": "1"}}));
    assert_eq!(story.get("/metadata/annotations"), "absent");
}
