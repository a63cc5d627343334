//! Watch streams.

use crate::harness::{Server, config_map};
use serde_json::json;

crate::cases! {
    watch_follows_changes
    watch_of_the_present_ends_with_a_bookmark
    a_watch_from_a_version_replays_later_changes
    selectors_turn_changes_into_added_and_deleted_events
    too_old_start_is_an_error_event
    watch_ends_with_the_server
    deprecated_path_watches_one_name
    a_watch_ends_at_its_timeout
    tables_carry_headings_once
    bad_options_are_refused_before_the_stream
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn watch_follows_changes(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let mut watch = server.watch(&format!("{MAPS}?watch=true")).await;
    assert_eq!(watch.code, 200);
    assert_eq!(watch.headers["content-type"], "application/json");
    let first = watch.next().await.unwrap();
    assert_eq!(first["type"], "ADDED");
    assert_eq!(first["object"]["kind"], "ConfigMap");
    assert_eq!(first["object"]["metadata"]["name"], "a");
    server.post(MAPS, config_map("b", "1")).await;
    assert_eq!(watch.event().await, ("ADDED".into(), "b".into()));
    server
        .patch(&format!("{MAPS}/a"), "application/merge-patch+json", json!({"data": {"k": "2"}}))
        .await;
    assert_eq!(watch.event().await, ("MODIFIED".into(), "a".into()));
    server.delete(&format!("{MAPS}/a")).await;
    assert_eq!(watch.event().await, ("DELETED".into(), "a".into()));
}

async fn watch_of_the_present_ends_with_a_bookmark(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = server.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(watch.event().await, ("ADDED".into(), "a".into()));
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

async fn a_watch_from_a_version_replays_later_changes(server: Server) {
    let created = server.post(MAPS, config_map("a", "1")).await.json();
    server.post(MAPS, config_map("b", "1")).await;
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={version}")).await;
    assert_eq!(watch.event().await, ("ADDED".into(), "b".into()));
}

async fn selectors_turn_changes_into_added_and_deleted_events(server: Server) {
    let mut watch = server.watch(&format!("{MAPS}?watch=true&labelSelector=on")).await;
    server.post(MAPS, config_map("a", "1")).await;
    let merge = "application/merge-patch+json";
    let path = format!("{MAPS}/a");
    server.patch(&path, merge, json!({"metadata": {"labels": {"on": ""}}})).await;
    assert_eq!(watch.event().await, ("ADDED".into(), "a".into()));
    server.patch(&path, merge, json!({"metadata": {"labels": {"on": null}}})).await;
    assert_eq!(watch.event().await, ("DELETED".into(), "a".into()));
}

async fn too_old_start_is_an_error_event(server: Server) {
    // Revision 1 precedes everything; it becomes too old only after history has moved on. So use an
    // invalid one instead.
    let answer = server.get(&format!("{MAPS}?watch=true&resourceVersion=foo")).await;
    assert_eq!(answer.code, 500);
}

async fn watch_ends_with_the_server(mut server: Server) {
    let mut watch = server.watch(&format!("{MAPS}?watch=true")).await;
    server.post(MAPS, config_map("a", "1")).await;
    assert_eq!(watch.event().await, ("ADDED".into(), "a".into()));
    server.begin_stop();
    assert_eq!(watch.next().await, None, "a clean end, not a broken body");
    drop(watch);
    server.stop().await;
}

async fn deprecated_path_watches_one_name(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    server.post(MAPS, config_map("b", "1")).await;
    let mut watch = server.watch("/api/v1/watch/namespaces/default/configmaps/b").await;
    assert_eq!(watch.event().await, ("ADDED".into(), "b".into()));
}

async fn a_watch_ends_at_its_timeout(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let mut watch = server.watch(&format!("{MAPS}?watch=true&timeoutSeconds=1")).await;
    assert_eq!(watch.event().await, ("ADDED".into(), "a".into()));
    assert_eq!(watch.next().await, None);
}

async fn tables_carry_headings_once(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    server.post(MAPS, config_map("b", "1")).await;
    let mut request = crate::harness::request("GET", &format!("{MAPS}?watch=true"), "");
    request
        .headers_mut()
        .insert("accept", "application/json;as=Table;v=v1;g=meta.k8s.io".parse().unwrap());
    let mut watch = server.open(request).await;
    let first = watch.next().await.unwrap();
    assert_eq!(first["object"]["kind"], "Table");
    assert_eq!(first["object"]["columnDefinitions"][0]["name"], "Name");
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    let second = watch.next().await.unwrap();
    assert_eq!(second["object"]["columnDefinitions"], json!(null));
    assert_eq!(second["object"]["rows"][0]["object"]["metadata"]["name"], "b");
}

async fn bad_options_are_refused_before_the_stream(server: Server) {
    let answer = server.get(&format!("{MAPS}?watch=true&sendInitialEvents=true")).await;
    answer.check_status(
        422,
        "Invalid",
        r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"#,
    );
    assert_eq!(server.get(&format!("{MAPS}?watch=true&labelSelector=a%20b")).await.code, 400);
    assert_eq!(server.get(&format!("{MAPS}?watch=true&fieldSelector=spec.x%3D1")).await.code, 400);
    let yaml = server.accept(&format!("{MAPS}?watch=true"), "application/yaml").await;
    assert_eq!(yaml.code, 406);
    assert_eq!(yaml.header("content-type"), "application/yaml");
}
