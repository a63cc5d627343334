//! Writes and live reads of the client, and create-or-update.

use expect_test::expect;
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube_core::params::{DeleteParams, Patch};
use serde_json::json;
use setpoint_object::label::Selector;
use setpoint_runtime::{
    Apply, Request, create_or_patch, create_or_update,
    owner::OwnerError,
    upsert::{UpsertError, Upserted},
};

use crate::{
    controller::chain,
    server::Server,
    world::{CONFIG_MAPS, EVENTS, Running, builder, config_map, settle},
};

#[tokio::test(start_paused = true)]
async fn create_or_update_and_patch_see_their_own_last_write() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    server.delay_watches(std::time::Duration::from_millis(20));
    let manager = builder(&server).build();
    let api = manager.client().api::<ConfigMap>();
    manager.cache().informer::<ConfigMap>();
    let running = Running::start(manager);
    settle().await;
    let set = |name: &'static str, value: &'static str| {
        move |existing: Option<ConfigMap>| {
            let mut object = existing.unwrap_or_default();
            object.metadata.name = Some(name.into());
            object.metadata.namespace = Some("default".into());
            object.data.get_or_insert_default().insert("k".into(), value.into());
            object
        }
    };
    let (a, b) = (Request::new("default", "a"), Request::new("default", "b"));
    let mut done = Vec::new();
    for value in ["1", "2", "1"] {
        done.push(create_or_update(&api, &a, set("a", value)).await.unwrap().1);
        done.push(create_or_patch(&api, &b, set("b", value)).await.unwrap().1);
    }
    let [created, updated] = [Upserted::Created, Upserted::Updated];
    assert_eq!(done, [created, created, updated, updated, updated, updated]);
    for name in ["a", "b"] {
        let stored = server.get(&format!("/api/v1/namespaces/default/configmaps/{name}")).unwrap();
        assert_eq!(stored["data"]["k"], "1");
    }
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn create_or_update_writes_only_differences() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    let manager = builder(&server).field_manager("tester").build();
    let api = manager.client().api::<ConfigMap>();
    manager.cache().informer::<ConfigMap>();
    let running = Running::start(manager);
    settle().await;
    let key = Request::new("default", "a");
    let set = |value: &'static str| {
        move |existing: Option<ConfigMap>| {
            let mut object = existing.unwrap_or_default();
            object.metadata.name = Some("a".into());
            object.metadata.namespace = Some("default".into());
            object.data.get_or_insert_default().insert("k".into(), value.into());
            object
        }
    };
    let mut text = Vec::new();
    for value in ["1", "1", "2"] {
        text.push(create_or_update(&api, &key, set(value)).await.unwrap().1);
        settle().await;
    }
    assert_eq!(text, [Upserted::Created, Upserted::Unchanged, Upserted::Updated]);
    expect![[r#"
        POST /api/v1/namespaces/default/configmaps by tester
        PATCH /api/v1/namespaces/default/configmaps/a by tester"#]]
    .assert_eq(&server.take_writes().join("\n"));

    // A concurrent write that the cache has not seen is not overwritten.
    let mut other = server.get("/api/v1/namespaces/default/configmaps/a").unwrap();
    other["data"]["k"] = json!("other");
    server.put("/api/v1/namespaces/default/configmaps", other);
    let Err(UpsertError::Client(error)) = create_or_update(&api, &key, set("3")).await else {
        panic!("not refused")
    };
    assert!(error.is_conflict(), "{error:?}");

    let renamed =
        create_or_update(&api, &Request::new("default", "b"), set("1")).await.unwrap_err();
    expect!["expected default/b, made default/a"].assert_eq(&renamed.to_string());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn client_reads_live_writes_and_reports_failures() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    let manager = builder(&server).build();
    let api = manager.client().api::<ConfigMap>();
    let key = Request::new("default", "a");
    assert!(api.get_live(&key).await.unwrap().is_none());
    let mut object: ConfigMap = serde_json::from_value(config_map("a")).unwrap();
    object.metadata.namespace = Some("default".into());
    let created = api.create(&object).await.unwrap();
    assert!(created.metadata.uid.is_some());
    assert!(api.create(&object).await.unwrap_err().is_already_exists());

    let patched = api.patch(&key, &Patch::Merge(json!({"data": {"k": "v"}}))).await.unwrap();
    assert_eq!(patched.data.as_ref().unwrap()["k"], "v");
    assert!(api.replace(&created).await.unwrap_err().is_conflict(), "an old version");
    api.replace(&patched).await.unwrap();
    api.patch_status(&key, &Patch::Merge(json!({"status": "s", "data": {"k": "ignored"}})))
        .await
        .unwrap();
    let stored = server.get("/api/v1/namespaces/default/configmaps/a").unwrap();
    assert_eq!((&stored["status"], &stored["data"]["k"]), (&json!("s"), &json!("v")));
    assert_eq!(api.list_live(Some("default"), &Default::default()).await.unwrap().len(), 1);

    api.delete(&key, &DeleteParams::default()).await.unwrap();
    api.delete(&key, &DeleteParams::default()).await.unwrap();
    server.fail_next(Method::GET, "configmaps", 500);
    let error = api.get_live(&key).await.unwrap_err();
    expect!["get configmaps default/a: as the test wants it"].assert_eq(&chain(&error));
    server.fail_next(Method::GET, "configmaps", 0);
    let error = api.get_live(&key).await.unwrap_err();
    expect!["get configmaps default/a: reach the server: cut"].assert_eq(&chain(&error));
    let unserved = manager.client().api::<Pod>().get_live(&key).await.unwrap_err();
    expect!["get pods default/a: the server could not find the requested resource"]
        .assert_eq(&chain(&unserved));
    assert!(api.list(None, &Selector::everything()).is_err(), "not cached");
}

#[test]
fn applied_object_is_not_controlled_from_another_namespace() {
    let owner: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "owner", "namespace": "default", "uid": "1"},
    }))
    .unwrap();
    let child = Apply::<Pod>::new(&Request::new("default", "p")).controlled_by(&owner, &());
    let references = &child.unwrap().body().unwrap()["metadata"]["ownerReferences"];
    expect![[r#"[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"ConfigMap","name":"owner","uid":"1"}]"#]]
        .assert_eq(&references.to_string());
    let abroad = Apply::<Pod>::new(&Request::new("other", "p")).controlled_by(&owner, &());
    assert!(matches!(abroad, Err(OwnerError::Namespaces { .. })), "{abroad:?}");
    let above = Apply::<Node>::new(&Request::cluster("n")).controlled_by(&owner, &());
    assert!(matches!(above, Err(OwnerError::Scope { .. })), "{above:?}");
}
