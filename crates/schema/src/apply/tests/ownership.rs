//! What entries hold after which write (spec: patch §5.2, §5.3).

use super::*;
use expect_test::expect;

#[test]
fn a_created_object_belongs_to_its_creator_with_dots_on_maps() {
    let story = Story::config_map()
        .update("alice", json!({"data": {"k": "1"}, "metadata": {"labels": {"a": "1"}}}));
    expect![[r#"
        alice Update 01: {"f:data":{".":{},"f:k":{}},"f:metadata":{"f:labels":{".":{},"f:a":{}}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn names_of_elements_are_escaped_as_in_go() {
    let finalizers = json!(["a&b/<c>", "d/\"e\""]);
    let story =
        Story::config_map().update("alice", json!({"metadata": {"finalizers": finalizers}}));
    expect![[r#"
        alice Update 01: {"f:metadata":{"f:finalizers":{".":{},"v:\"a\\u0026b/\\u003cc\\u003e\"":{},"v:\"d/\\\"e\\\"\"":{}}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn always_serialised_structs_carry_no_dot_and_optional_ones_do() {
    let story = Story::deployment().update(
        "alice",
        json!({"spec": {"selector": {"matchLabels": {"a": "1"}}, "strategy": {"rollingUpdate": {"maxSurge": 1}},
            "template": {"metadata": {"labels": {"a": "1"}}, "spec": {"securityContext": {}, "containers": [{"name": "c", "image": "i",
            "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}}}}),
    );
    expect![[r#"
        alice Update 01: {"f:spec":{"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{}}},"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{}}},"f:securityContext":{}}}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn an_applied_configuration_carries_dots_on_list_elements_only() {
    let story = Story::deployment().apply(
        "alice",
        json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["f/x"]},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}}}),
    );
    expect![[r#"
        alice Apply 01: {"f:metadata":{"f:finalizers":{"v:\"f/x\"":{}},"f:labels":{"f:a":{}}},"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:name":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn atomic_values_are_leaves() {
    let story = Story::custom().apply(
        "alice",
        json!({"spec": {"plain": ["a", "b"], "whole": {"a": "1"}, "set": ["a"], "n": 1},
            "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}]}}),
    );
    expect![[r#"
        alice Apply 01: {"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"u\"}":{}}},"f:spec":{"f:n":{},"f:plain":{},"f:set":{"v:\"a\"":{}},"f:whole":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn objects_of_custom_resources_carry_dots_when_created() {
    let story = Story::custom().update("alice", json!({"spec": {"n": 1, "map": {"a": "1"}}}));
    expect![[r#"
        alice Update 01: {"f:spec":{".":{},"f:map":{".":{},"f:a":{}},"f:n":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn maps_below_unknown_fields_carry_dots_in_applied_sets() {
    let story = Story::custom().apply(
        "alice",
        json!({"spec": {"free": {"a": {"b": {"c": 1}, "e": {}}, "l": [{"x": 1}]}}}),
    );
    expect![[r#"
        alice Apply 01: {"f:spec":{"f:free":{"f:a":{".":{},"f:b":{".":{},"f:c":{}},"f:e":{}},"f:l":{}}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn empty_maps_given_explicitly_are_leaves() {
    let story = Story::config_map().apply("alice", json!({"metadata": {"annotations": {}}}));
    expect![[r#"
        alice Apply 01: {"f:metadata":{"f:annotations":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn null_claims_a_map_and_changes_nothing_in_it() {
    let story = Story::config_map()
        .apply("alice", json!({"data": {"a": "1"}}))
        .apply("bob", json!({"data": null}));
    expect![[r#"
        bob Apply -: {"f:data":{}}
        alice Apply 01: {"f:data":{"f:a":{}}}
    "#]]
    .assert_eq(&story.owners());
    assert_eq!(story.get("/data"), r#"{"a":"1"}"#);
}

#[test]
fn identity_and_server_set_metadata_are_never_owned() {
    let story = Story::config_map().update(
        "alice",
        json!({"metadata": {"uid": "u", "generation": 3, "resourceVersion": "7", "namespace": "d",
            "generateName": "g-", "creationTimestamp": "2020-01-01T00:00:00Z"}}),
    );
    expect![[r#"
        alice Update 01: {"f:metadata":{"f:generateName":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn an_object_with_nothing_to_track_is_untracked_and_stays_so() {
    let story = Story::config_map().update("alice", json!({}));
    assert_eq!(story.owners(), "untracked");
    let story = story.update("bob", json!({"data": {"a": "1"}}));
    assert_eq!(story.owners(), "untracked");
    let story = story.apply("carol", json!({"data": {"b": "1"}}));
    expect![[r#"
        carol Apply 03: {"f:data":{"f:b":{}}}
        before-first-apply Update 03: {"f:data":{".":{},"f:a":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn an_update_takes_what_it_changes_and_nothing_else() {
    let story = Story::config_map()
        .apply("alice", json!({"data": {"a": "1", "b": "1", "c": "1"}}))
        .update("bob", json!({"data": {"a": "1", "b": "2", "d": "1"}}));
    expect![[r#"
        alice Apply 01: {"f:data":{"f:a":{}}}
        bob Update 02: {"f:data":{"f:b":{},"f:d":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn an_update_that_changes_nothing_owns_nothing() {
    let story = Story::config_map()
        .apply("alice", json!({"data": {"a": "1"}}))
        .update("bob", json!({"data": {"a": "1"}}));
    expect![[r#"
        alice Apply 01: {"f:data":{"f:a":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn entries_are_told_apart_by_operation_and_subresource() {
    let story = Story::custom()
        .apply("alice", json!({"spec": {"n": 1}}))
        .update("alice", json!({"spec": {"n": 2}}))
        .update("alice/status", json!({"spec": {"n": 3}, "status": {"ready": true}}));
    expect![[r#"
        alice Update 02: {"f:spec":{"f:n":{}}}
        alice/status Update 03: {"f:status":{".":{},"f:ready":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn a_status_apply_owns_status_only_and_the_main_endpoint_never() {
    let story = Story::custom()
        .apply("alice", json!({"spec": {"n": 1}, "status": {"ready": false}}))
        .apply(
            "bob/status",
            json!({"status": {"ready": true}, "metadata": {"labels": {"a": "1"}}}),
        );
    expect![[r#"
        alice Apply 01: {"f:spec":{"f:n":{}}}
        bob/status Apply 02: {"f:status":{"f:ready":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn entries_given_by_the_client_replace_the_stored_ones() {
    let entry = json!([{"manager": "eve", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}}}]);
    let story = Story::config_map().apply("alice", json!({"data": {"a": "1"}}));
    let story =
        story.update("bob", json!({"data": {"a": "1"}, "metadata": {"managedFields": entry}}));
    expect![[r#"
        eve Apply -: {"f:data":{"f:a":{}}}
    "#]]
    .assert_eq(&story.owners());
    // What cannot be read is ignored in favour of what is stored.
    let story = story.update(
        "bob",
        json!({"data": {"a": "1"}, "metadata": {"managedFields": [{"manager": "eve", "operation": "Own"}]}}),
    );
    expect![[r#"
        eve Apply -: {"f:data":{"f:a":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn an_empty_list_or_one_empty_entry_ends_tracking() {
    let given = |managed: Value| {
        Story::custom()
            .apply("alice", json!({"spec": {"n": 1}}))
            .update("bob", json!({"spec": {"n": 1}, "metadata": {"managedFields": managed}}))
    };
    assert_eq!(given(json!([{}])).owners(), "untracked");
    // Decoding a custom resource drops an empty list; a built-in's body keeps it.
    expect![[r#"
        alice Apply 01: {"f:spec":{"f:n":{}}}
    "#]]
    .assert_eq(&given(json!([])).owners());
    let story = Story::config_map()
        .apply("alice", json!({"data": {"a": "1"}}))
        .update("bob", json!({"data": {"a": "1"}, "metadata": {"managedFields": []}}));
    assert_eq!(story.owners(), "untracked");
    assert_eq!(story.get("/metadata/managedFields"), "absent");
    // On a subresource the request's entries do not count.
    let story = Story::custom()
        .apply("alice", json!({"spec": {"n": 1}}))
        .update("bob/status", json!({"spec": {"n": 1}, "metadata": {"managedFields": []}}));
    expect![[r#"
        alice Apply 01: {"f:spec":{"f:n":{}}}
    "#]]
    .assert_eq(&story.owners());
}

#[test]
fn the_eleventh_updater_makes_the_two_oldest_ancient() {
    let mut story = Story::config_map();
    let mut data = serde_json::Map::new();
    for at in 0..11 {
        data.insert(format!("k{at:02}"), json!("1"));
        story = story.update(&format!("m{at:02}"), json!({"data": data}));
    }
    let owners = story.owners();
    assert_eq!(owners.lines().count(), UPDATE_ENTRIES_MAX);
    expect![[r#"ancient-changes Update 02: {"f:data":{".":{},"f:k00":{},"f:k01":{}}}"#]]
        .assert_eq(owners.lines().next().unwrap_or_default());
    data.insert("k99".to_owned(), json!("1"));
    let owners = story.update("m99", json!({"data": data})).owners();
    assert_eq!(owners.lines().count(), UPDATE_ENTRIES_MAX);
    expect![[r#"ancient-changes Update 03: {"f:data":{".":{},"f:k00":{},"f:k01":{},"f:k02":{}}}"#]]
        .assert_eq(owners.lines().next().unwrap_or_default());
}

#[test]
fn entries_of_versions_that_a_built_in_kind_does_not_have_disappear() {
    let versions = ["v1".to_owned()];
    for unknown in ["v0", "apps/v1"] {
        let mut story = Story::config_map().apply("alice", json!({"data": {"n": "1"}}));
        story.set_version(unknown);
        let config = story.body(json!({"data": {"n": "2"}}));
        let result = story.write("", |typing, now| {
            let typing = Typing { versions: &versions, ..typing.clone() };
            let manager = Manager { name: "bob", api_version: "v1", subresource: "", now };
            apply(&typing, story.live.as_ref(), &config, &manager, false)
        });
        story.store(result.expect("the entry of the old version does not conflict").object);
        expect![[r#"
            bob Apply 01: {"f:data":{"f:n":{}}}
        "#]]
        .assert_eq(&story.owners());
    }
}

#[test]
fn entries_that_cannot_be_converted_fail_applies_and_end_the_tracking_at_updates() {
    for (mut story, version, versions, unknown, why) in [
        (
            Story::custom().apply("alice", json!({"spec": {"n": 1}})),
            "ex.io/v1",
            ["ex.io/v1".to_owned()],
            "ex.io/v0",
            "request to convert CR to an invalid group/version: ex.io/v0",
        ),
        (
            Story::config_map().apply("alice", json!({"data": {"n": "1"}})),
            "v1",
            ["v1".to_owned()],
            "a/b/c",
            "unexpected GroupVersion string: a/b/c",
        ),
    ] {
        story.set_version(unknown);
        let config = story.body(json!({"metadata": {"labels": {"a": "b"}}}));
        story.write("", |typing, now| {
            let typing = Typing { versions: &versions, ..typing.clone() };
            let manager = Manager { name: "bob", api_version: version, subresource: "", now };
            let live = story.live();
            let refused = apply(&typing, Some(live), &config, &manager, true).unwrap_err();
            assert_eq!((refused.0.code, &*refused.0.message), (Some(500), why));
            let mut updated = live.clone();
            update(&typing, Some(live), &mut updated, &manager);
            assert_eq!(updated["metadata"].get("managedFields"), None);
            // Those that a created object brings.
            let mut created = live.clone();
            update(&typing, None, &mut created, &manager);
            assert_eq!(created["metadata"].get("managedFields"), None);
        });
    }
}

#[test]
fn ownership_inside_what_became_atomic_is_lifted() {
    let mut story =
        Story::custom().apply("alice", json!({"spec": {"whole": {"a": "1"}, "plain": ["x"]}}));
    let live = story.live.as_mut().expect("it was created");
    live["metadata"]["managedFields"][0]["fieldsV1"] =
        json!({"f:spec": {"f:whole": {"f:a": {}}, "f:plain": {"v:\"x\"": {}}}});
    let story = story.update("bob", json!({"spec": {"whole": {"a": "1"}, "plain": ["x"], "n": 1}}));
    expect![[r#"
        alice Apply 01: {"f:spec":{"f:plain":{},"f:whole":{}}}
        bob Update 02: {"f:spec":{"f:n":{}}}
    "#]]
    .assert_eq(&story.owners());
}

/// The reference has filters for these endpoints that it does not use.
#[test]
fn pod_subresources_own_what_is_sent() {
    let pod = |image: &str, cpu: &str| {
        json!({"spec": {"containers": [
            {"name": "c", "image": image, "resources": {"limits": {"cpu": cpu}}},
        ]}})
    };
    let story = Story::builtin("", "v1", "Pod").update("alice", pod("1", "1"));
    let story = story.update("bob/resize", pod("2", "2"));
    let owners = story.owners();
    expect![[r#"bob/resize Update 02: {"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{"f:image":{},"f:resources":{"f:limits":{"f:cpu":{}}}}}}}"#]]
    .assert_eq(owners.lines().find(|line| line.starts_with("bob")).unwrap_or_default());
}

#[test]
fn labels_of_deployments_are_not_owned_through_their_status() {
    let mut story = Story::deployment().apply("ann", json!({"spec": {"replicas": 1}}));
    let config = story.body(json!({"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}}}));
    let typing = Typing {
        schema: &story.schema,
        kind: "Deployment",
        reset: &["spec", "metadata/labels"].into(),
        custom: false,
        versions: &[],
        others: None,
    };
    let now = Timestamp(Duration::from_secs(2));
    let manager = Manager { name: "bob", api_version: "apps/v1", subresource: "status", now };
    let applied = apply(&typing, story.live.as_ref(), &config, &manager, false);
    story.live = Some(applied.expect("no conflict").object);
    expect![[r#"
        ann Apply 01: {"f:spec":{"f:replicas":{}}}
        bob/status Apply 02: {"f:metadata":{"f:annotations":{"f:b":{}}}}
    "#]]
    .assert_eq(&story.owners());
}

/// Each write is made with entries in the object, by sets of paths, and with entries beside it,
/// whose fields are written while the object is walked.
#[test]
fn fields_of_a_new_object_are_the_same_with_and_without_a_set() {
    let container = json!({
        "name": "a", "image": "i", "args": ["x", "x"], "resources": {"limits": {"cpu": "1"}, "requests": {}},
        "env": [{"name": "B", "value": "1"}, {"name": "A"}, {"name": "B", "value": "2"}, {"name": "q\"<é"}],
        "ports": [
            {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 9}, {"containerPort": 80}, {"containerPort": 9},
        ],
        "securityContext": {}, "volumeMounts": [], "livenessProbe": {"httpGet": {"port": "http"}},
    });
    let pods = [
        json!({}),
        json!({"metadata": {"name": "x", "labels": {}}}),
        json!({"metadata": {
            "name": "x", "labels": {"b/c": "", "a": "1"}, "annotations": null, "finalizers": ["b", "a", "b"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "b", "uid": "2"}, {"uid": "1"}],
        }}),
        json!({"spec": {"containers": [container, {"name": "a"}, {}], "initContainers": [container]}}),
        json!({"spec": {
            "containers": [], "hostNetwork": false, "priority": 0, "nodeSelector": {"a": "b"}, "overhead": {"cpu": "1"},
            "imagePullSecrets": [{"name": "a"}, {}], "tolerations": [{"key": "a"}], "affinity": {"podAffinity": {}},
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "u", "projected": {"sources": [{"secret": {}}]}}],
            "topologySpreadConstraints": [
                {"topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}, {"topologyKey": "z"},
            ],
        }, "status": {"phase": "Running"}}),
    ];
    for pod in pods {
        Story::builtin("", "v1", "Pod").update("alice", pod.clone()).update("bob", json!({}));
        Story::builtin("", "v1", "Pod").update("alice/status", pod);
    }
    let list = json!([{"k": "b"}, {"k": "a\""}, {"k": "a#"}, {"v": 1}, {"k": "b", "v": 2}]);
    let customs = [
        json!({"set": ["b", "a", "b", "\"", "#"], "list": list, "defaulted": [{"k": "a"}, {"k": "a", "d": "y"}]}),
        json!({"whole": {}, "map": {}, "plain": [], "free": null, "n": 0, "more": 1}),
        json!({"whole": {"a": "b"}, "map": {"b": "1", "a": "2"}, "free": {"a": [{}], "b": {"c": {}}}}),
        json!(null),
        json!("text"),
        json!([]),
    ];
    for spec in customs {
        Story::custom().update("alice", json!({"spec": spec}));
        Story::custom().update("alice/status", json!({"spec": spec, "status": {"ready": false}}));
        Story::custom().update("alice", json!({"metadata": {"labels": spec}}));
    }
}
