//! `setpoint up --egress-selector-config-file`: etcd behind a proxy.

use crate::server::Server;
use crate::two::{ask, client};
use serde_json::json;
use setpoint_store_etcd::testing::Cluster;
use std::ffi::OsStr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener};
use tokio::task::JoinSet;

/// Serves `CONNECT` to one name.
async fn serve(listener: UnixListener, name: &'static str, target: String) {
    let mut connections = JoinSet::new();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let target = target.clone();
        connections.spawn(async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            assert!(head.starts_with(format!("CONNECT {name} HTTP/1.1\r\n").as_bytes()));
            let mut server = TcpStream::connect(target).await.unwrap();
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            drop(copy_bidirectional(&mut client, &mut server).await);
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_reached_by_a_name_that_only_a_proxy_knows() {
    let cluster = Cluster::start(1).await;
    let target = cluster.endpoints()[0].trim_start_matches("http://").to_owned();
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("proxy");
    let mut proxy = JoinSet::new();
    let listener = UnixListener::bind(&socket).unwrap();
    proxy.spawn(serve(listener, "etcd.internal:2379", target));
    let config = json!({
        "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "etcd", "connection": {
            "proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": socket}},
        }}],
    });
    let file = dir.path().join("egress.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    let options =
        ["--etcd-endpoints", "http://etcd.internal:2379", "--egress-selector-config-file"];
    let options = options.map(OsStr::new).into_iter().chain([file.as_os_str()]);
    let options: Vec<&OsStr> = options.collect();
    let server = tokio::task::block_in_place(|| Server::start_with(&options));
    let client = client(&server);
    let path = "/api/v1/namespaces/default/configmaps";
    ask(&client, "POST", path, Some(&json!({"metadata": {"name": "x"}}))).await.unwrap();
    let page = client.request_text(http::Request::get("/metrics").body(Vec::new()).unwrap());
    let page = page.await.unwrap();
    let counted =
        r#"apiserver_egress_dialer_dial_start_total{protocol="http_connect",transport="uds"} "#;
    assert!(page.contains(counted), "{page}");
    assert!(!proxy.is_empty() && proxy.try_join_next().is_none());
}
