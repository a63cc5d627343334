//! Checks of objects whose version is not the stored one.
use crate::conversion::{V1, V2, foo, serving};
use crate::definitions::DEFINITIONS;
use crate::server::refused;
use serde_json::{Value, json};
use setpoint_registry::{PatchType, WriteOptions};

#[tokio::test(start_paused = true)]
async fn objects_are_checked_in_the_version_of_the_request() {
    let (server, _state) = serving().await;
    let definition = format!("{DEFINITIONS}/foos.ex.io");
    let spec = "/spec/versions/1/schema/openAPIV3Schema/properties/spec";
    let rule = json!([{"rule": "self.length < 10", "message": "too long"}]);
    let patch = json!([
        {"op": "add", "path": format!("{spec}/required"), "value": ["length"]},
        {"op": "add", "path": format!("{spec}/x-kubernetes-validations"), "value": rule},
    ]);
    let json_patch = PatchType::Json;
    let write = WriteOptions::default();
    server.patch_with(&definition, json_patch, patch, &write).await.unwrap();
    // The schema is in force once it refuses an object.
    let mut nothing = foo("v2", "a", 1);
    nothing["spec"] = json!({});
    let mut catalogs = server.registry.catalog_changes();
    while server.create(V2, nothing.clone()).await.is_ok() {
        server.delete(&format!("{V2}/a")).await.unwrap();
        catalogs.changed().await.unwrap();
    }
    let invalid = |why: &str| format!("422 Foo.ex.io \"a\" is invalid: {why}");
    let unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the \
        object was invalid; correct the existing errors to complete validation";
    let required = &*format!("[spec.length: Required value, {unchecked}]");
    let long = "spec: Invalid value: too long";
    let mut text = foo("v2", "a", 1);
    text["spec"]["length"] = "x".into();
    let kind = "spec.length: Invalid value: \"string\": spec.length in body must be of type integer: \"string\"";
    assert_eq!(refused(server.create(V2, nothing).await), invalid(required));
    assert_eq!(refused(server.create(V2, foo("v2", "a", 10)).await), invalid(long));
    assert!(refused(server.create(V2, text).await).contains(kind));
    // An error of the metadata stands in the way of rules, too.
    let mut nameless = foo("v2", "", 10);
    nameless["metadata"].as_object_mut().unwrap().remove("name");
    assert_eq!(
        refused(server.create(V2, nameless).await),
        format!(
            "422 Foo.ex.io \"\" is invalid: [metadata.name: Required value: name or generateName is \
             required, {unchecked}]"
        )
    );

    let path = format!("{V2}/a");
    let created = server.create(V2, foo("v2", "a", 1)).await.unwrap();
    assert_eq!(created["metadata"]["generation"], 1);
    let length = |length: Value| json!({"spec": {"length": length}});
    assert_eq!(refused(server.patch(&path, length(Value::Null)).await), invalid(required));
    assert_eq!(refused(server.patch(&path, length(json!(10))).await), invalid(long));
    assert!(refused(server.patch(&path, length(json!("x"))).await).contains(kind));
    let patched = server.patch(&path, length(json!(2))).await.unwrap();
    assert_eq!(patched["metadata"]["generation"], 2);
    // The other version has no such rules.
    let v1 = server.patch(&format!("{V1}/a"), json!({"spec": {"size": 10}})).await.unwrap();
    assert_eq!(v1["metadata"]["generation"], 3);
    server.stop().await;
}

/// Makes a converted object wrong.
type Spoil = fn(&mut Value);

#[tokio::test(start_paused = true)]
async fn a_failure_shows_what_is_no_object_with_a_type() {
    let (server, state) = serving().await;
    server.create(V1, foo("v1", "a", 1)).await.unwrap();
    let unmarshal = |what: &str| {
        format!("500 json: cannot unmarshal {what} into Go value of type map[string]interface {{}}")
    };
    let spoils: [(Spoil, String); 7] = [
        (|object| *object = Value::Null, "500 unexpected end of JSON input".to_owned()),
        (|object| *object = "x".into(), unmarshal("string")),
        (|object| *object = 3.into(), unmarshal("number")),
        (|object| *object = true.into(), unmarshal("bool")),
        (|object| *object = json!([]), unmarshal("array")),
        (|object| *object = json!({}), "500 Object 'Kind' is missing in '{}'".to_owned()),
        (
            |object| *object = json!({"apiVersion": "a/b/c", "kind": "Foo"}),
            r#"500 Object 'Kind' is missing in '{"apiVersion":"a/b/c","kind":"Foo"}'"#.to_owned(),
        ),
    ];
    for (spoil, text) in spoils {
        state.lock().spoil = Some(spoil);
        assert_eq!(refused(server.get(&format!("{V2}/a")).await), text);
    }
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_repeats_only_the_beginning_of_a_wrong_answer() {
    let (server, state) = serving().await;
    server.create(V1, foo("v1", "a", 1)).await.unwrap();
    let spoils: [(Spoil, &str); 2] = [
        (
            |object| object["apiVersion"] = "é".repeat(1 << 20).into(),
            "returned invalid object at index 0: invalid groupVersion (expected ex.io/v2, received é",
        ),
        (
            |object| object["metadata"]["labels"] = json!({"-": "é".repeat(1 << 20)}),
            "returned invalid metadata: [metadata.labels: Invalid value: \"-\": name part must",
        ),
    ];
    for (spoil, text) in spoils {
        state.lock().spoil = Some(spoil);
        let refusal = refused(server.get(&format!("{V2}/a")).await);
        let start = format!("500 conversion webhook for ex.io/v1, Kind=Foo {text}");
        assert!(refusal.starts_with(&start), "{}", &refusal[..200]);
        assert!((60_000..70_000).contains(&refusal.len()), "{}", refusal.len());
    }
    server.stop().await;
}
