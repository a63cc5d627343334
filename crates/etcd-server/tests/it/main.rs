//! The server through the engine that is tested against real etcd.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

use setpoint_etcd_server::{EtcdServer, Options};
use setpoint_store::conformance;
use setpoint_store_etcd::{EtcdOptions, EtcdStore};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

async fn with_server(story: impl AsyncFnOnce(String)) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let server = EtcdServer::new(Options::default());
    let stop = CancellationToken::new();
    tokio::select! {
        () = server.run(socket, stop.clone()) => panic!("the server ended"),
        () = story(url) => {}
    }
}

#[tokio::test]
async fn the_engine_conforms_on_it() {
    with_server(async |url| {
        let n = AtomicU32::new(0);
        let engine = conformance::Options::default().ttl_shortest(Duration::from_secs(2));
        conformance::check_with(engine, async || {
            let mut options = EtcdOptions::new([url.clone()]);
            options.namespace = format!("case-{}", n.fetch_add(1, Ordering::Relaxed)).into();
            EtcdStore::connect(options).await.unwrap()
        })
        .await;
    })
    .await;
}
