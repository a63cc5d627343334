//! Options of a server that change what clients get.
use crate::server::{Server, refused};
use futures::StreamExt as _;
use serde_json::{Value, json};
use setpoint_registry::{AdmissionOptions, ListOptions, RegistryBuilder, Verb};
use setpoint_store::MemoryStore;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn server(configure: impl FnOnce(RegistryBuilder) -> RegistryBuilder) -> Server {
    let store = Arc::new(MemoryStore::default());
    Server::configured(store.clone(), store, |builder| configure(builder.seed(7))).await
}
fn container(name: &str, is_privileged: bool) -> Value {
    json!({"name": name, "image": "i", "securityContext": {"privileged": is_privileged}})
}
fn spec(is_privileged: bool) -> Value {
    json!({"containers": [container("a", is_privileged)], "restartPolicy": "Never"})
}

#[tokio::test(start_paused = true)]
async fn privileged_containers_are_refused_unless_they_are_allowed() {
    const WHY: &str = "disallowed by cluster policy";
    let open = server(|builder| builder).await;
    open.create(PODS, json!({"metadata": {"name": "a"}, "spec": spec(true)})).await.unwrap();
    open.stop().await;
    let server = server(|builder| builder.allow_privileged(false)).await;
    server.create(PODS, json!({"metadata": {"name": "a"}, "spec": spec(false)})).await.unwrap();
    let pod = json!({"metadata": {"name": "b"}, "spec": {
        "initContainers": [container("a", true)], "containers": [container("b", false)],
    }});
    assert_eq!(
        refused(server.create(PODS, pod).await),
        format!(
            "422 Pod \"b\" is invalid: spec.initContainers[0].securityContext.privileged: Forbidden: {WHY}"
        )
    );
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": spec(true)}}});
    let cron = json!({"metadata": {"name": "c"}, "spec": {
        "schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": spec(true)}}},
    }});
    let template = json!({"metadata": {"name": "t"}, "template": {"spec": spec(true)}});
    for (path, object, at) in [
        ("/apis/batch/v1/namespaces/default/jobs", job, "spec.template.spec"),
        ("/apis/batch/v1/namespaces/default/cronjobs", cron, "spec.jobTemplate.spec.template.spec"),
        ("/api/v1/namespaces/default/podtemplates", template, "template.spec"),
    ] {
        let error = refused(server.create(path, object).await);
        let expected = format!("{at}.containers[0].securityContext.privileged: Forbidden: {WHY}");
        assert!(error.contains(&expected), "{error}");
    }
    let debugged = json!({"spec": {"ephemeralContainers": [container("d", true)]}});
    let error = refused(server.patch(&format!("{PODS}/a/ephemeralcontainers"), debugged).await);
    assert!(error.contains(WHY), "{error}");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lists_of_any_version_are_new_and_have_pages_without_a_watch_cache() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    for (has_cache, n_expected) in [(true, 3), (false, 2)] {
        let server = server(|builder| builder.watch_cache(has_cache)).await;
        for name in ["a", "b", "c"] {
            server.create(MAPS, json!({"metadata": {"name": name}})).await.unwrap();
        }
        if has_cache {
            // Any version may be an earlier one.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let options =
            ListOptions { resource_version: "0".to_owned(), limit: 2, ..ListOptions::default() };
        let request = server.request(Verb::List, MAPS);
        let list = server.registry.list(&request, &options).await.unwrap();
        assert_eq!(list.items.len(), n_expected);
        assert_eq!(list.continue_token.is_empty(), has_cache);
        server.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn tolerations_of_new_pods_last_as_long_as_the_options_say() {
    let plugins = AdmissionOptions::default().toleration_seconds(5, 0).build().unwrap();
    let server = server(|builder| builder.admission_plugins(plugins)).await;
    let pod = json!({"metadata": {"name": "a"}, "spec": spec(false)});
    let pod = server.create(PODS, pod).await.unwrap();
    let seconds: Vec<_> = pod["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["key"].as_str().unwrap(), one["tolerationSeconds"].as_i64().unwrap()))
        .collect();
    assert_eq!(
        seconds,
        [("node.kubernetes.io/not-ready", 5), ("node.kubernetes.io/unreachable", 0)]
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn watch_without_a_timeout_lasts_at_least_as_long_as_the_option_says() {
    for min in [0, 10, 3600] {
        let min = Duration::from_secs(min);
        let server = server(|builder| builder.watch_timeout_min(min)).await;
        let request = server.request(Verb::Watch, PODS);
        let started = Instant::now();
        let watch = server.registry.watch(&request, &ListOptions::default()).await.unwrap();
        watch.for_each(async |_| {}).await;
        let lasted = started.elapsed();
        assert!(min <= lasted && lasted <= min * 2, "{min:?} {lasted:?}");
        server.stop().await;
    }
}
