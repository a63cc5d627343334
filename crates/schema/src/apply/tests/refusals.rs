//! What an apply is refused with before anything is merged (spec: patch §5.1).

use super::*;
use expect_test::{Expect, expect};

fn check(mut story: Story, parts: Value, expect: Expect) {
    let error = story.refused("alice", parts);
    expect.assert_eq(&format!("{} {} {}", error.code(), error.0.reason, error.0.message));
}

#[test]
fn another_type_or_managed_fields() {
    check(
        Story::config_map(),
        json!({"kind": "Pod"}),
        expect!["400 BadRequest invalid object type: /v1, Kind=Pod"],
    );
    check(
        Story::deployment(),
        json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler"}),
        expect!["400 BadRequest invalid object type: autoscaling/v1, Kind=HorizontalPodAutoscaler"],
    );
    check(
        Story::config_map(),
        json!({"apiVersion": null, "kind": null}),
        expect!["400 BadRequest invalid object type: /, Kind="],
    );
    check(
        Story::config_map(),
        json!({"metadata": {"managedFields": []}}),
        expect!["400 BadRequest metadata.managedFields must be nil"],
    );
    let story = Story::config_map().apply("alice", json!({"metadata": {"managedFields": null}}));
    assert_eq!(story.owners(), "untracked");
}

#[test]
fn fields_and_types_that_are_not_declared() {
    check(
        Story::deployment(),
        json!({"spec": {"foo": 1}}),
        expect![
            "500  failed to create typed patch object (/x; apps/v1, Kind=Deployment): .spec.foo: field not declared in schema"
        ],
    );
    check(
        Story::deployment(),
        json!({"metadata": {"namespace": "ns"}, "spec": {"replicas": "x"}}),
        expect![
            "500  failed to create typed patch object (ns/x; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got string"
        ],
    );
    check(
        Story::deployment(),
        json!({"spec": {"strategy": []}}),
        expect![
            "500  failed to create typed patch object (/x; apps/v1, Kind=Deployment): .spec.strategy: expected map, got &{[]}"
        ],
    );
    check(
        Story::deployment(),
        json!({"spec": {"template": {"spec": {"containers": {"name": "c"}}}}}),
        expect![
            "500  failed to create typed patch object (/x; apps/v1, Kind=Deployment): .spec.template.spec.containers: expected list, got &{map[name:c]}"
        ],
    );
    check(
        Story::config_map(),
        json!({"data": {"a": 1}}),
        expect![
            "500  failed to create typed patch object (/x; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:1}"
        ],
    );
    check(
        Story::deployment(),
        json!({"spec": {"paused": "yes"}}),
        expect![
            "500  failed to create typed patch object (/x; apps/v1, Kind=Deployment): .spec.paused: expected boolean, got &{yes}"
        ],
    );
    check(
        Story::custom(),
        json!({"spec": {"n": "x", "map": 1}}),
        expect![[r#"
            500  failed to create typed patch object (/x; ex.io/v1, Kind=Foo): errors:
              .spec.map: expected map, got &{1}
              .spec.n: expected numeric (int or float), got string"#]],
    );
}

#[test]
fn elements_that_cannot_be_told_apart() {
    let containers =
        |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    check(
        Story::deployment(),
        containers(json!([{"name": "c"}, {"name": "c"}])),
        expect![[
            r#"500  failed to create typed patch object (/x; apps/v1, Kind=Deployment): .spec.template.spec.containers: duplicate entries for key [name="c"]"#
        ]],
    );
    check(
        Story::deployment(),
        containers(
            json!([{"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]}]),
        ),
        expect![[
            r#"500  failed to create typed patch object (/x; apps/v1, Kind=Deployment): .spec.template.spec.containers[name="c"].ports: duplicate entries for key [containerPort=80,protocol="TCP"]"#
        ]],
    );
    check(
        Story::config_map(),
        json!({"metadata": {"finalizers": ["a.b/c", "a.b/c"]}}),
        expect![[
            r#"500  failed to create typed patch object (/x; /v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [="a.b/c"]"#
        ]],
    );
    check(
        Story::deployment(),
        containers(json!([null])),
        expect![
            "500  failed to create typed patch object (/x; apps/v1, Kind=Deployment): .spec.template.spec.containers: element 0: associative list with keys may not have a null element"
        ],
    );
    check(
        Story::custom(),
        json!({"spec": {"list": [{"k": "a"}, {"v": 1}]}}),
        expect![[
            r#"500  failed to create typed patch object (/x; ex.io/v1, Kind=Foo): .spec.list: element 1: associative list with keys has an element that omits all key fields ["k"] (and doesn't have default values for any key fields)"#
        ]],
    );
    check(
        Story::custom(),
        json!({"spec": {"set": [[]]}}),
        expect![
            "500  failed to create typed patch object (/x; ex.io/v1, Kind=Foo): .spec.set: element 0: not supported: associative list with lists as elements"
        ],
    );
}

#[test]
fn a_required_key_of_a_built_in_counts_as_empty() {
    let story = Story::deployment()
        .apply("alice", json!({"spec": {"template": {"spec": {"containers": [{"image": "i"}]}}}}));
    assert!(story.owners().contains(r#""k:{\"name\":\"\"}""#), "{}", story.owners());
}

#[test]
fn values_a_built_in_type_cannot_hold() {
    check(
        Story::deployment(),
        json!({"spec": {"replicas": 1.5}}),
        expect![
            "500  failed to convert new object (/x; apps/v1, Kind=Deployment) to proper version: unable to convert unstructured object to apps/v1, Kind=Deployment: cannot convert float64 to int32"
        ],
    );
}

#[test]
fn entries_that_cannot_be_read_end_an_apply_but_not_an_update() {
    let mut story = Story::config_map().apply("alice", json!({"data": {"a": "1"}}));
    let live = story.live.as_mut().expect("it was created");
    live["metadata"]["managedFields"][0]["fieldsType"] = json!("FieldsV2");
    let updated = Story { live: story.live.clone(), ..Story::config_map() }
        .update("bob", json!({"data": {"a": "2"}}));
    assert_eq!(updated.owners(), "untracked");
    check(
        story,
        json!({"data": {"a": "1"}}),
        expect![[
            r#"500  failed to decode managed fields: invalid fieldsType "FieldsV2" in managed fields entry 0"#
        ]],
    );
}
