//! etcd becomes unreachable while servers run.

use crate::raw;
use crate::two::{ask, client, eventually, serve, text};
use serde_json::json;
use setpoint_store_etcd::testing::Cluster;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_reports_an_unreachable_etcd_and_recovers() {
    let mut cluster = Cluster::start(1).await;
    let mut server = serve(&cluster);
    let client = client(&server);
    let map = |name: &str| json!({"metadata": {"name": name}});
    ask(&client, "POST", MAPS, Some(&map("before"))).await.unwrap();
    cluster.kill(0);
    // Raw requests, because the client would retry.
    let (get, post) = tokio::task::block_in_place(|| {
        let path = format!("{MAPS}/before");
        let during = map("during").to_string();
        std::thread::scope(|scope| {
            let get = scope.spawn(|| raw::get(&server, &path));
            let json = "application/json";
            let post = raw::send(&server, "POST", MAPS, json, during.as_bytes());
            (get.join().unwrap(), post)
        })
    });
    assert!(matches!(get.code, 503 | 504) && matches!(post.code, 503 | 504), "{get:?} {post:?}");
    assert!(get.body.contains(r#""kind":"Status""#), "{get:?}");
    let (code, body) = text(&client, "/livez?verbose").await;
    assert_eq!(code, 500, "{body}");
    assert!(body.contains("[-]etcd failed: reason withheld\n"), "{body}");
    assert_eq!(text(&client, "/livez?exclude=etcd").await.0, 200);

    cluster.restart(0);
    cluster.wait_healthy().await;
    let create = async || ask(&client, "POST", MAPS, Some(&map("after"))).await.ok();
    eventually("writes are taken again", create).await;
    let list = ask(&client, "GET", MAPS, None).await.unwrap();
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|map| map["metadata"]["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"after") && names.contains(&"before"), "{names:?}");
    assert_eq!(text(&client, "/livez").await.0, 200);
    assert!(server.stop("TERM").success());
}
