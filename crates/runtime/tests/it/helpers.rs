//! Conditions, owners, create-or-update, and the client's writes.

use std::time::Duration;

use expect_test::expect;
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube_core::params::{DeleteParams, Patch};
use serde_json::json;
use setpoint_object::{label::Selector, time::Timestamp};
use setpoint_runtime::{
    OwnerError, Request, UpsertError, Upserted, controller_of, create_or_update, set_condition,
    set_controller_reference,
};

use crate::{
    controller::chain,
    server::Server,
    world::{CONFIG_MAPS, EVENTS, Running, builder, config_map, settle},
};

#[test]
fn condition_moves_its_transition_time_only_with_its_status() {
    let mut conditions = Vec::new();
    let at = |seconds: u64| Timestamp(Duration::from_millis(seconds * 1000 + 7));
    assert!(set_condition(&mut conditions, "Ready", true, "Made", "it is there", Some(1), at(10)));
    assert!(
        !set_condition(&mut conditions, "Ready", true, "Made", "it is there", Some(1), at(20)),
        "no news"
    );
    assert!(
        set_condition(&mut conditions, "Ready", true, "Made", "it is there", Some(2), at(30)),
        "a newer generation"
    );
    assert_eq!(conditions[0].last_transition_time.0.as_second(), 10);
    assert_eq!(conditions[0].observed_generation, Some(2));
    assert!(set_condition(&mut conditions, "Ready", false, "Gone", "it is not", Some(2), at(40)));
    assert!(set_condition(&mut conditions, "Other", true, "Made", "", None, at(50)));
    let said: Vec<_> = conditions
        .iter()
        .map(|c| format!("{} {} {} {}", c.type_, c.status, c.reason, c.last_transition_time.0))
        .collect();
    expect!["Ready False Gone 1970-01-01T00:00:40Z · Other True Made 1970-01-01T00:00:50Z"]
        .assert_eq(&said.join(" · "));
}

fn owner(namespace: &str, name: &str) -> ConfigMap {
    let mut owner = ConfigMap::default();
    owner.metadata.name = Some(name.into());
    owner.metadata.namespace = Some(namespace.into());
    owner.metadata.uid = Some(format!("uid-of-{name}"));
    owner
}

#[test]
fn owner_reference_respects_scopes_and_other_controllers() {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("default".into());
    set_controller_reference(&owner("default", "a"), &(), &mut pod).unwrap();
    set_controller_reference(&owner("default", "a"), &(), &mut pod).unwrap();
    assert_eq!(pod.metadata.owner_references.as_ref().unwrap().len(), 1, "replaced in place");
    let reference = controller_of(&pod).unwrap();
    assert_eq!(
        (reference.kind.as_str(), reference.uid.as_str(), reference.block_owner_deletion),
        ("ConfigMap", "uid-of-a", Some(true))
    );

    let before = pod.clone();
    assert_eq!(
        set_controller_reference(&owner("default", "b"), &(), &mut pod),
        Err(OwnerError::AlreadyOwned { kind: "ConfigMap".into(), name: "a".into() })
    );
    assert_eq!(pod, before);
    let other = set_controller_reference(&owner("other", "a"), &(), &mut pod);
    assert_eq!(
        other,
        Err(OwnerError::Namespaces { owner: "other".into(), child: "default".into() })
    );
    let mut namespace = Namespace::default();
    let scope = set_controller_reference(&owner("default", "a"), &(), &mut namespace);
    assert_eq!(scope, Err(OwnerError::Scope { namespace: "default".into() }));
    let unborn = set_controller_reference(&ConfigMap::default(), &(), &mut namespace);
    assert_eq!(unborn, Err(OwnerError::NotCreated { kind: "ConfigMap".into() }));
}

#[tokio::test(start_paused = true)]
async fn create_or_update_writes_only_what_differs() {
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
    let mut said = Vec::new();
    for value in ["1", "1", "2"] {
        said.push(create_or_update(&api, &key, set(value)).await.unwrap().1);
        settle().await;
    }
    assert_eq!(said, [Upserted::Created, Upserted::Unchanged, Upserted::Updated]);
    expect![[r#"
        POST /api/v1/namespaces/default/configmaps by tester
        PATCH /api/v1/namespaces/default/configmaps/a by tester"#]]
    .assert_eq(&server.take_writes().join("\n"));

    // A write from elsewhere that the cache has not seen is not overwritten.
    let mut other = server.get("/api/v1/namespaces/default/configmaps/a").unwrap();
    other["data"]["k"] = json!("other");
    server.put("/api/v1/namespaces/default/configmaps", other);
    let Err(UpsertError::Client(error)) = create_or_update(&api, &key, set("3")).await else {
        panic!("not refused")
    };
    assert!(error.is_conflict(), "{error:?}");

    let renamed =
        create_or_update(&api, &Request::new("default", "b"), set("1")).await.unwrap_err();
    expect!["asked for default/b, made default/a"].assert_eq(&renamed.to_string());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn client_reads_live_writes_and_says_what_failed() {
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
    expect!["get configmaps default/a: reach the server: ServiceError: cut: cut"]
        .assert_eq(&chain(&error));
    let unserved = manager.client().api::<Pod>().get_live(&key).await.unwrap_err();
    expect!["get pods default/a: the server could not find the requested resource"]
        .assert_eq(&chain(&unserved));
    assert!(api.list(None, &Selector::everything()).is_err(), "not cached");
}
