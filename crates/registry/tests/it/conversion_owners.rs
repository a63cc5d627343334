//! Field ownership across versions between which a webhook converts: `size` of v1 is `length` in
//! v2, which also has it as a label.
use crate::conversion::{V1, V2, foo, serving};
use crate::definitions::DEFINITIONS;
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{PatchType, WriteOptions};
use std::collections::BTreeMap;

/// What each manager owns of the spec, with its version.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().map_or(&[][..], Vec::as_slice);
    let entries = entries.iter().map(|entry| {
        let fields: Vec<_> = entry["fieldsV1"]["f:spec"].as_object().unwrap().keys().collect();
        format!("{} {} {fields:?}", entry["manager"].as_str().unwrap(), entry["apiVersion"])
    });
    entries.collect()
}
fn at(collection: &str) -> String {
    format!("{collection}/a")
}
async fn force(server: &Server, manager: &str, config: Value) -> Value {
    let (field_manager, force) = (manager.to_owned(), Some(true));
    let options = WriteOptions { field_manager, force, ..WriteOptions::default() };
    server.patch_with(&at(V2), PatchType::Apply, config, &options).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_apply_conflicts_with_what_another_version_calls_otherwise() {
    let (server, state) = serving().await;
    server.apply(&at(V1), "one", foo("v1", "a", 1)).await.unwrap();
    assert_eq!(
        refused(server.apply(&at(V2), "two", foo("v2", "a", 2)).await),
        r#"409 Apply failed with 1 conflict: conflict with "one": .spec.size"#
    );
    let same = server.apply(&at(V2), "two", foo("v2", "a", 1)).await.unwrap();
    let both = [r#"two "ex.io/v2" ["f:length"]"#, r#"one "ex.io/v1" ["f:size"]"#];
    assert_eq!(owners(&same), both);

    let forced = force(&server, "two", foo("v2", "a", 2)).await;
    assert_eq!(owners(&forced), both[..1]);
    assert_eq!(server.get(&at(V1)).await.unwrap()["spec"], json!({"size": 2}));
    // An apply that changes nothing asks only for the object in the versions of request and store.
    let n_calls = state.lock().n_calls();
    force(&server, "two", foo("v2", "a", 2)).await;
    assert!(state.lock().n_calls() - n_calls <= 2);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_applier_that_moves_to_another_version_gives_up_what_it_owned_in_the_old_one() {
    let (server, _) = serving().await;
    server.apply(&at(V1), "one", foo("v1", "a", 1)).await.unwrap();
    let mut config = foo("v2", "a", 1);
    config["spec"] = json!({});
    let moved = server.apply(&at(V2), "one", config.clone()).await.unwrap();
    assert_eq!(moved["spec"].get("length").filter(|length| !length.is_null()), None, "{moved}");

    // What another manager owns stays, in whatever version it has written.
    server.apply(&at(V1), "one", foo("v1", "a", 3)).await.unwrap();
    server.apply(&at(V2), "two", foo("v2", "a", 3)).await.unwrap();
    let moved = server.apply(&at(V2), "one", config).await.unwrap();
    assert_eq!(moved["spec"], json!({"length": 3}));
    assert_eq!(owners(&moved), [r#"two "ex.io/v2" ["f:length"]"#, r#"one "ex.io/v2" []"#]);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn updates_take_fields_from_managers_of_other_versions() {
    let (server, state) = serving().await;
    server.apply(&at(V1), "one", foo("v1", "a", 1)).await.unwrap();
    server.apply(&at(V2), "two", foo("v2", "a", 1)).await.unwrap();
    let mut object = server.get(&at(V2)).await.unwrap();
    object["spec"]["length"] = 2.into();
    let updated = server.update(&at(V2), object).await.unwrap();
    assert_eq!(owners(&updated), [r#"test "ex.io/v2" ["f:length"]"#]);
    // The object of the storage version is compared in that of the entry, too.
    let patched = server.patch(&at(V1), json!({"spec": {"size": 3}})).await.unwrap();
    assert_eq!(owners(&patched), [r#"test "ex.io/v1" ["f:size"]"#]);
    // A change of something else leaves owners as they are.
    server.apply(&at(V2), "two", foo("v2", "a", 3)).await.unwrap();
    let n_calls = state.lock().n_calls();
    let annotation = json!({"metadata": {"annotations": {"a": "b"}}});
    let patched = server.patch(&at(V1), annotation.clone()).await.unwrap();
    assert_eq!(state.lock().n_calls() - n_calls, 1, "one call for both objects");
    let others = [r#"two "ex.io/v2" ["f:length"]"#, r#"test "ex.io/v1" ["f:size"]"#];
    assert_eq!(owners(&patched), others);
    // The first of two may begin with what the cache has still.
    server.patch(&at(V1), annotation.clone()).await.unwrap();
    let n_calls = state.lock().n_calls();
    server.patch(&at(V1), annotation).await.unwrap();
    assert_eq!(state.lock().n_calls(), n_calls, "nothing changes");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_an_apply_is_refused_and_an_update_keeps_owners() {
    let (server, state) = serving().await;
    server.apply(&at(V2), "two", foo("v2", "a", 1)).await.unwrap();
    state.lock().failure = Some("out of order");
    assert_eq!(
        refused(server.apply(&at(V1), "one", foo("v1", "a", 2)).await),
        "500 conversion webhook for ex.io/v1, Kind=Foo failed: out of order"
    );
    let patched = server.patch(&at(V1), json!({"spec": {"size": 3}})).await.unwrap();
    let both = [r#"two "ex.io/v2" ["f:length"]"#, r#"test "ex.io/v1" ["f:size"]"#];
    assert_eq!(owners(&patched), both);
    server.stop().await;
}

/// Without a webhook, what another version does not declare would be lost on the way there and
/// back.
#[tokio::test(start_paused = true)]
async fn an_apply_whose_fields_another_owner_s_version_does_not_have_is_refused() {
    let server = Server::start().await;
    let version = |name: &str, fields: &[&str], is_storage: bool| {
        let fields = fields.iter().map(|field| (*field, json!({"type": "integer"})));
        let spec = json!({"type": "object", "properties": fields.collect::<BTreeMap<_, _>>()});
        json!({
            "name": name, "served": true, "storage": is_storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [version("v1", &["a", "b"], true), version("v2", &["a"], false)],
        },
    });
    server.create(DEFINITIONS, definition).await.unwrap();
    let mut catalogs = server.registry.catalog_changes();
    catalogs.wait_for(|catalog| catalog.get("ex.io", "v2", "foos").is_some()).await.unwrap();
    let config = |version: &str, spec: Value| {
        json!({"apiVersion": format!("ex.io/{version}"), "kind": "Foo",
            "metadata": {"name": "a"}, "spec": spec})
    };
    server.apply(&at(V2), "one", config("v2", json!({"a": 1}))).await.unwrap();
    assert_eq!(
        refused(server.apply(&at(V1), "one", config("v1", json!({"a": 1, "b": 2}))).await),
        "500 failed to prune fields: failed to convert merged object to last applied version: \
         .spec.b: field not declared in schema"
    );
    // An update ends the tracking of owners, and loses nothing.
    let patched = server.patch(&at(V1), json!({"spec": {"b": 2}})).await.unwrap();
    assert_eq!(patched["spec"], json!({"a": 1, "b": 2}));
    assert_eq!(owners(&patched), [""; 0]);
    // The next apply begins anew.
    let moved = server.apply(&at(V1), "one", config("v1", json!({"a": 1}))).await.unwrap();
    assert_eq!(moved["spec"], json!({"a": 1, "b": 2}));
    server.stop().await;
}
