//! What of a type a manager's cache holds.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;
use setpoint_runtime::cache::{ByType, CacheOptions, CacheRules, Namespaces};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, builder, settle},
};

#[tokio::test(start_paused = true)]
async fn cch_1_rules_of_one_type_select_and_change_what_is_held_of_it_alone() {
    let server = Server::new(&[CONFIG_MAPS, PODS, EVENTS]);
    for namespace in ["a", "b"] {
        for (resource, kind) in [("configmaps", "ConfigMap"), ("pods", "Pod")] {
            let object = json!({
                "apiVersion": "v1", "kind": kind,
                "metadata": {"name": "x", "annotations": {"long": "text"}},
            });
            server.put(&format!("/api/v1/namespaces/{namespace}/{resource}"), object);
        }
    }
    let mut of_maps = ByType::default();
    of_maps.namespaces = Some(Namespaces::from([("a".to_owned(), CacheOptions::default())]));
    of_maps.options.transform = Some(std::sync::Arc::new(|object: bytes::Bytes| {
        let text = String::from_utf8_lossy(&object).replace("\"long\":\"text\"", "");
        Ok(text.into_bytes().into())
    }));
    let rules = CacheRules::new().of::<ConfigMap>(&(), of_maps).unwrap();
    let manager = builder(&server).cache_rules(rules).build();
    let maps = manager.cache().informer::<ConfigMap>();
    let pods = manager.cache().informer::<Pod>();
    let running = Running::start(manager);
    settle().await;
    assert_eq!((maps.lister().len(), pods.lister().len()), (1, 2));
    let map = maps.lister().get("a", "x").unwrap().unwrap();
    assert!(map.metadata.annotations.clone().unwrap_or_default().is_empty(), "{map:?}");
    let pod = pods.lister().get("b", "x").unwrap().unwrap();
    assert_eq!(pod.metadata.annotations.as_ref().unwrap()["long"], "text");
    running.stop().await.unwrap();
}
