//! `TestEnv` and `#[setpoint::test]`.

use crate::copier::{Style, copier, create_map, secrets};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::DeleteParams;
use serde_json::json;
use setpoint_testenv::{TestEnv, exists, gone, matches, run_test};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic.downcast_ref::<String>().map(String::as_str).unwrap_or_default()
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn controller_runs_until_the_end_and_owned_objects_are_deleted_with_their_owner(
    env: &TestEnv,
) {
    env.run(copier(env.manager(), Style::Declarative).unwrap());
    create_map(env.client(), "a", "red").await;
    env.until(&secrets(env), "a", exists()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(env.client());
    maps.delete("a", &DeleteParams::background()).await.unwrap();
    env.until(&secrets(env), "a", gone()).await;

    let timeline = env.timeline().to_string();
    let at = |text: &str| timeline.find(text).unwrap_or_else(|| panic!("{text}\n{timeline}"));
    assert!(
        at("created  ConfigMap default/a")
            < at("created  Secret default/a  by copier  [copier default/a]")
    );
    assert!(at("deleted  ConfigMap default/a") < at("deleted  Secret default/a"));
}

#[setpoint_testenv::test(crate = setpoint_testenv, seeds = 3)]
async fn time_is_virtual_and_names_come_from_the_seed(
    env: &TestEnv,
) -> Result<(), kube_client::Error> {
    let before = env.clock().now();
    // Takes no real time.
    tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    assert_eq!(env.clock().now().since(before).as_secs(), 3 * 3600);
    let mut names = Vec::new();
    for _ in 0..2 {
        let fresh = TestEnv::builder().simulated(env.seed()).start().await.unwrap();
        names.push(fresh.create_namespace("team").await?);
    }
    assert_eq!(names[0], names[1], "the same seed, the same name");
    Ok(())
}

#[setpoint_testenv::test(crate = setpoint_testenv, real_time)]
async fn real_time_is_the_wall_clock(env: &TestEnv) {
    let namespaces: Api<Namespace> = Api::all(env.client());
    let created = namespaces.get("default").await.unwrap().metadata.creation_timestamp.unwrap();
    let now = env.clock().now().0.as_secs();
    let created = u64::try_from(created.0.as_second()).unwrap();
    assert!(now.abs_diff(created) < 3600 && now > 1_767_225_600, "{created} {now}");
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn failed_wait_reports_the_condition_and_the_object(env: &TestEnv) {
    create_map(env.client(), "a", "red").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(env.client());
    let is_blue = matches("is blue", |map| map["data"]["color"] == "blue");
    let waiting = AssertUnwindSafe(env.until(&maps, "a", is_blue)).catch_unwind();
    let panic = waiting.await.unwrap_err();
    let text = panic_text(&*panic);
    assert!(text.contains("until a is blue") && text.contains("\"red\""), "{text}");
    assert!(text.contains("env.rs"), "{text}");
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn manager_that_fails_fails_the_wait(env: &TestEnv) {
    let mut manager = env.manager().build();
    let failing = setpoint_runtime::Runnable::new(|_| async { Err("no".into()) });
    manager.add_runnable("failing", failing).unwrap();
    env.run(manager);
    let waiting = env.eventually("pigs fly", async || None::<()>);
    let panic = AssertUnwindSafe(waiting).catch_unwind().await.unwrap_err();
    let text = panic_text(&*panic);
    assert!(text.contains("a manager") && text.contains("no"), "{text}");
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn definition_is_served_once_it_is_installed(env: &TestEnv) {
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "things.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    }))
    .unwrap();
    env.install(&definition).await.unwrap();
    env.install(&definition).await.unwrap();
    let list = http::Request::get("/apis/x.io/v1/things").body(Vec::new()).unwrap();
    let list: serde_json::Value = env.client().request(list).await.unwrap();
    assert_eq!(list["kind"], "ThingList");
}

#[test]
fn first_failure_of_several_seeds_is_returned() {
    let settings = setpoint_testenv::TestSettings {
        name: "it::example",
        package: "example",
        real_time: false,
        seed: 4,
        seeds: 4,
    };
    let outcome = run_test(settings, |env| {
        async { if env.seed() < 6 { Ok(()) } else { Err(env.seed()) } }.boxed_local()
    });
    assert_eq!(outcome, Err(6));
}
