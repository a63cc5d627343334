//! Ownership through `/scale` (spec: patch §5.6).

use super::*;
use expect_test::{Expect, expect};

const REPLICAS: &[&str] = &["spec", "replicas"];
const PATHS: &[(&str, Option<&[&str]>)] = &[("apps/v1", Some(REPLICAS))];
const MAPPING: ScaleMapping<'static> = ScaleMapping { api_version: "apps/v1", paths: PATHS };

fn entry(
    manager: &str,
    operation: &str,
    api_version: &str,
    subresource: &str,
    fields: Value,
) -> Value {
    let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": api_version,
        "fieldsType": "FieldsV1", "fieldsV1": fields});
    if !subresource.is_empty() {
        entry["subresource"] = json!(subresource);
    }
    entry
}

fn show(entries: Option<&Value>) -> String {
    let mut text = String::new();
    for entry in entries.and_then(Value::as_array).into_iter().flatten() {
        let part = |name: &str| entry[name].as_str().unwrap_or("-");
        let _ = writeln!(
            text,
            "{} {} {} {}: {}",
            part("manager"),
            part("operation"),
            part("apiVersion"),
            part("subresource"),
            entry["fieldsV1"]
        );
    }
    text
}

fn parent() -> Value {
    json!([
        entry(
            "alice",
            "Apply",
            "apps/v1",
            "",
            json!({"f:spec": {"f:replicas": {}, "f:paused": {}}})
        ),
        entry("bob", "Update", "apps/v1", "", json!({"f:spec": {"f:replicas": {}}})),
        entry("carol", "Update", "apps/v1", "", json!({"f:spec": {"f:paused": {}}})),
        entry("old", "Update", "extensions/v1beta1", "", json!({"f:spec": {"f:replicas": {}}})),
    ])
}

#[test]
fn owners_of_replicas_are_shown_at_the_scale() {
    expect![[r#"
        alice Apply autoscaling/v1 -: {"f:spec":{"f:replicas":{}}}
        bob Update autoscaling/v1 -: {"f:spec":{"f:replicas":{}}}
    "#]]
    .assert_eq(&show(MAPPING.to_scale(Some(&parent())).as_ref()));
}

fn check(scale: Value, expect: Expect) {
    expect.assert_eq(&show(MAPPING.to_parent(Some(&parent()), Some(&scale)).as_ref()));
}

#[test]
fn who_lost_the_replicas_at_the_scale_loses_them_at_the_parent() {
    check(
        json!([entry(
            "hpa",
            "Update",
            "autoscaling/v1",
            "scale",
            json!({"f:spec": {"f:replicas": {}}})
        )]),
        expect![[r#"
            alice Apply apps/v1 -: {"f:spec":{"f:paused":{}}}
            carol Update apps/v1 -: {"f:spec":{"f:paused":{}}}
            hpa Update apps/v1 scale: {"f:spec":{"f:replicas":{}}}
        "#]],
    );
}

#[test]
fn who_kept_the_replicas_keeps_the_entry_as_it_was() {
    let scale = MAPPING.to_scale(Some(&parent())).expect("two own the replicas");
    check(
        scale,
        expect![[r#"
            alice Apply apps/v1 -: {"f:spec":{"f:paused":{},"f:replicas":{}}}
            bob Update apps/v1 -: {"f:spec":{"f:replicas":{}}}
            carol Update apps/v1 -: {"f:spec":{"f:paused":{}}}
        "#]],
    );
}
