//! Changes that are tried again after a conflict.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_core::PartialObjectMeta;
use serde_json::json;
use setpoint_object::Prune;
use setpoint_runtime::{
    Action, BoxError, CacheOptions, Context, Controller, Reconciler, Request, Watch, client::Retry,
};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, builder, config_map, pass, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
const POD: &str = "/api/v1/namespaces/default/pods/p";

/// Changes the object of each key by every call that retries.
struct Changer;

impl Reconciler for Changer {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        let pods = context.client().api::<Pod>();
        let label = |pod: &mut Pod, name: &str| {
            pod.metadata.labels.get_or_insert_default().insert(name.into(), "yes".into());
        };
        pods.update_with_retry(&request, |pod| label(pod, "one")).await?;
        pods.update_with_retry_as(&request, Retry::MANY_WRITERS, |pod| label(pod, "two")).await?;
        let status = pods.status();
        let phase = |pod: &mut Pod| {
            pod.status.get_or_insert_default().phase = Some("Running".into());
        };
        status.update_with_retry(&request, phase).await?;
        let reason = |pod: &mut Pod| {
            pod.status.get_or_insert_default().reason = Some("Changed".into());
        };
        status.update_with_retry_as(&request, Retry::MANY_WRITERS, reason).await?;
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn reconciler_changes_objects_with_retries() {
    let server = Server::new(&[PODS, EVENTS]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    server.put("/api/v1/namespaces/default/pods", pod);
    let mut manager = builder(&server).build();
    let controller = Controller::builder("changer").for_(Watch::<Pod>::new()).build(Changer);
    manager.add(controller.unwrap()).unwrap();
    let running = Running::start(manager);
    pass(Duration::from_secs(1)).await;
    let pod = server.get(POD).unwrap();
    assert_eq!(pod["metadata"]["labels"], json!({"one": "yes", "two": "yes"}));
    assert_eq!(pod["status"], json!({"phase": "Running", "reason": "Changed"}));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_not_read_stays_on_the_server() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    let mut object = config_map("a");
    object["data"] = json!({"large": "value"});
    server.put(MAPS, object);
    let cache = CacheOptions::new().prune(Prune::parse(["data"]).unwrap());
    let manager = builder(&server).cache(cache).build();
    manager.cache().informer::<ConfigMap>();
    let client = manager.client().clone();
    let running = Running::start(manager);
    settle().await;
    let key = Request::new("default", "a");
    let maps = client.api::<ConfigMap>();
    assert!(maps.get(&key).unwrap().unwrap().data.is_none(), "the cache lacks it");
    let annotate = |map: &mut ConfigMap| {
        map.metadata.annotations.get_or_insert_default().insert("seen".into(), "yes".into());
    };
    maps.update_with_retry(&key, annotate).await.unwrap();
    assert_eq!(server.get(MAP).unwrap()["data"], json!({"large": "value"}));
    // A type with only metadata.
    let metas = client.api::<PartialObjectMeta<ConfigMap>>();
    let label = |map: &mut PartialObjectMeta<ConfigMap>| {
        map.metadata.labels.get_or_insert_default().insert("seen".into(), "yes".into());
    };
    metas.update_with_retry(&key, label).await.unwrap();
    let stored = server.get(MAP).unwrap();
    assert_eq!(stored["data"], json!({"large": "value"}));
    assert_eq!(stored["metadata"]["annotations"], json!({"seen": "yes"}));
    assert_eq!(stored["metadata"]["labels"], json!({"seen": "yes"}));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn change_back_is_written_before_the_cache_shows_the_first_change() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    let mut object = config_map("a");
    object["data"] = json!({"n": "1"});
    server.put(MAPS, object);
    let manager = builder(&server).build();
    manager.cache().informer::<ConfigMap>();
    let maps = manager.client().api::<ConfigMap>();
    let running = Running::start(manager);
    settle().await;
    server.mute_watches();
    let key = Request::new("default", "a");
    for n in ["2", "1", "1"] {
        let mut n_tries = 0;
        let set = |map: &mut ConfigMap| {
            n_tries += 1;
            map.data.get_or_insert_default().insert("n".to_owned(), n.to_owned());
        };
        maps.update_with_retry(&key, set).await.unwrap();
        assert_eq!((n_tries, &server.get(MAP).unwrap()["data"]["n"]), (1, &json!(n)));
    }
    assert_eq!(server.take_writes().len(), 2, "the last changed nothing");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn change_of_an_outdated_object_is_made_to_the_servers() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    let mut object = config_map("a");
    object["data"] = json!({"n": "1"});
    server.put(MAPS, object.clone());
    let manager = builder(&server).build();
    manager.cache().informer::<ConfigMap>();
    let maps = manager.client().api::<ConfigMap>();
    let running = Running::start(manager);
    settle().await;
    server.mute_watches();
    object["data"] = json!({"n": "2"});
    server.put(MAPS, object);
    let mut n_tries = 0;
    let double = |map: &mut ConfigMap| {
        n_tries += 1;
        let n = map.data.as_mut().unwrap().get_mut("n").unwrap();
        *n = (n.parse::<u32>().unwrap() * 2).to_string();
    };
    maps.update_with_retry(&Request::new("default", "a"), double).await.unwrap();
    assert_eq!((n_tries, &server.get(MAP).unwrap()["data"]), (2, &json!({"n": "4"})));
    running.stop().await.unwrap();
}
