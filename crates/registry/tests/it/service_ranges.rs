//! ServiceCIDRs: the ranges that Services have their addresses from.
use crate::server::{Server, refused};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const OUTSIDE: &str = "the provided network does not match the current range";

async fn add_range(server: &Server, name: &str, networks: &[&str]) {
    let range = json!({"metadata": {"name": name}, "spec": {"cidrs": networks}});
    server.create(RANGES, range).await.unwrap();
}

async fn set_ready(server: &Server, name: &str, status: &str) {
    let now = "2026-01-01T00:00:00Z";
    let condition = json!({
        "type": "Ready", "status": status, "reason": "Test", "message": "", "lastTransitionTime": now,
    });
    let path = format!("{RANGES}/{name}/status");
    server.patch(&path, json!({"status": {"conditions": [condition]}})).await.unwrap();
}

/// A Service with an address, or with any; its address.
async fn serve(server: &Server, name: &str, address: &str) -> Result<String, String> {
    let spec = json!({"clusterIP": address, "ports": [{"port": 80}]});
    let service = json!({"metadata": {"name": name}, "spec": spec});
    let text = |made: Value| made["spec"]["clusterIP"].as_str().unwrap().to_owned();
    match server.create(SERVICES, service).await {
        Ok(made) => Ok(text(made)),
        refusal => Err(refused(refusal)),
    }
}

#[tokio::test(start_paused = true)]
async fn services_have_addresses_of_every_ready_range() {
    let server = Server::start().await;
    assert!(serve(&server, "early", "10.1.0.3").await.unwrap_err().ends_with(OUTSIDE));
    add_range(&server, "more", &["10.1.0.0/29"]).await;
    add_range(&server, "tiny", &["10.2.0.0/31"]).await;
    add_range(&server, "six", &["fd00:10::/112"]).await;
    serve(&server, "given", "10.1.0.3").await.unwrap();
    for outside in ["10.1.0.0", "10.1.0.7", "10.2.0.0", "10.2.0.1", "1.2.3.4"] {
        let error = serve(&server, "outside", outside).await.unwrap_err();
        assert!(error.ends_with(OUTSIDE), "{outside}: {error}");
    }
    let mut addresses = BTreeSet::new();
    for n in 0..40 {
        addresses.insert(serve(&server, &format!("s{n}"), "").await.unwrap());
    }
    assert_eq!(addresses.len(), 40, "each address once");
    let n_more = addresses.iter().filter(|address| address.starts_with("10.1.0.")).count();
    assert_eq!(n_more, 5, "both ranges are used, and a full one is passed over");
    // Each has its object.
    server.get("/apis/networking.k8s.io/v1/ipaddresses/10.1.0.3").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_range_that_is_not_ready_or_ends_gives_nothing() {
    let server = Server::start().await;
    add_range(&server, "more", &["10.1.0.0/30"]).await;
    set_ready(&server, "kubernetes", "False").await;
    for n in 0..2 {
        let address = serve(&server, &format!("s{n}"), "").await.unwrap();
        assert!(address.starts_with("10.1.0."), "{address}");
    }
    let error = serve(&server, "full", "").await.unwrap_err();
    let full = r#"failed to allocate a serviceIP for Service "full": range is full"#;
    assert_eq!(error, format!("500 Internal error occurred: {full}"));
    set_ready(&server, "kubernetes", "True").await;
    serve(&server, "again", "10.0.0.9").await.unwrap();

    // One that waits for a finalizer, even if another range has the same addresses.
    let same = json!({
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]},
        "spec": {"cidrs": ["10.3.0.0/24"]},
    });
    server.create(RANGES, same).await.unwrap();
    serve(&server, "before", "10.3.0.5").await.unwrap();
    server.delete(&format!("{RANGES}/held")).await.unwrap();
    assert!(serve(&server, "after", "10.3.0.6").await.unwrap_err().ends_with(OUTSIDE));
    add_range(&server, "twin", &["10.3.0.0/24"]).await;
    serve(&server, "after", "10.3.0.6").await.unwrap();
    let taken = serve(&server, "twice", "10.3.0.5").await.unwrap_err();
    assert!(taken.ends_with("provided IP is already allocated"), "{taken}");
}

#[tokio::test(start_paused = true)]
async fn a_server_gives_no_address_of_a_range_that_another_has_ended() {
    let one = Server::start().await;
    add_range(&one, "more", &["10.1.0.0/24"]).await;
    let other = Server::joining(&one, 7).await;
    // The other server knows the range now.
    serve(&other, "a", "10.1.0.1").await.unwrap();
    set_ready(&one, "more", "False").await;
    assert!(serve(&other, "b", "10.1.0.2").await.unwrap_err().ends_with(OUTSIDE));
    for n in 0..8 {
        let address = serve(&other, &format!("n{n}"), "").await.unwrap();
        assert!(address.starts_with("10.0."), "{address}");
    }
    // And one that is new to it.
    add_range(&one, "new", &["10.2.0.0/24"]).await;
    serve(&other, "c", "10.2.0.1").await.unwrap();
}
