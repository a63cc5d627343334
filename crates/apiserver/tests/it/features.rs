//! What features turn off.

use crate::harness::{Server, config_map, request};
use setpoint_registry::{Feature, FeatureGates};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server without a feature.
async fn without(feature: Feature) -> Server {
    Server::with_features(FeatureGates::default().with(feature, false)).await
}

#[tokio::test(start_paused = true)]
async fn answers_are_not_compressed() {
    let server = without(Feature::APIResponseCompression).await;
    server.post(MAPS, config_map("a", &"x".repeat(200 * 1024))).await;
    let mut get = request("GET", MAPS, "");
    get.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    let answer = server.send(get).await;
    assert_eq!((answer.code, answer.header("content-encoding")), (200, ""));
}

#[tokio::test(start_paused = true)]
async fn the_state_of_the_process_is_no_page() {
    let server = without(Feature::ComponentStatusz).await;
    assert_eq!(server.get("/statusz").await.code, 404);
    assert!(!server.get("/").await.text().contains("statusz"));
}

#[tokio::test(start_paused = true)]
async fn the_options_are_no_page() {
    for (features, code) in [
        (FeatureGates::default(), 200),
        (FeatureGates::default().with(Feature::ComponentFlagz, false), 404),
    ] {
        let server = Server::gated(features, |builder| builder.flags([].into())).await;
        assert_eq!(server.get("/flagz").await.code, code);
        assert_eq!(server.get("/").await.text().contains("flagz"), code == 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_selector_of_shards_is_ignored() {
    let server = without(Feature::ShardedListAndWatch).await;
    server.post(MAPS, config_map("a", "1")).await;
    let list = server.get(&format!("{MAPS}?shardSelector=nonsense")).await;
    assert_eq!(list.code, 200);
    assert_eq!(list.json()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_has_no_initial_events() {
    let server = without(Feature::WatchList).await;
    let watch = format!("{MAPS}?watch=1&timeoutSeconds=1");
    let answer = server
        .get(&format!("{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"))
        .await;
    assert_eq!(answer.code, 422);
    let why =
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    assert!(answer.text().contains(why), "{}", answer.text());
    assert_eq!(server.get(&watch).await.code, 200);
}
