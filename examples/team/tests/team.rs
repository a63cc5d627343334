//! What the webhooks answer, and the controller beside a control plane in this process.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use setpoint::kube_client::Api;
use setpoint::kube_client::api::PostParams;
use setpoint::prelude::*;
use setpoint::runtime::endpoint::Endpoint;
use setpoint::testenv::{TestEnv, exists};
use setpoint::webhook::Webhooks;
use setpoint::webhook::certificate::Certificate;
use setpoint::webhook::server::{Listen, WebhookServerBuilder};
use std::net::SocketAddr;
use team::{Team, TeamSpec, manager};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Asks as an API server does.
async fn ask(webhooks: &Webhooks, path: &str, kind: &str, request: Value) -> Value {
    let group = if kind == "ConversionReview" { "apiextensions" } else { "admission" };
    let review =
        json!({"apiVersion": format!("{group}.k8s.io/v1"), "kind": kind, "request": request});
    let reply = webhooks.handle(path, review.to_string()).await;
    assert_eq!(reply.code, 200);
    let answer: Value = serde_json::from_slice(&reply.body).expect("the answer is JSON");
    answer["response"].clone()
}

fn create(members: Value, lead: Option<&str>) -> Value {
    let spec = json!({"members": members, "lead": lead});
    let team = json!({"apiVersion": "example.dev/v2", "kind": "Team", "metadata": {"name": "a"}, "spec": spec});
    json!({"uid": "1", "operation": "CREATE", "object": team})
}

#[setpoint::test]
async fn team_is_defaulted_judged_and_converted(env: &TestEnv) -> Result<(), BoxError> {
    let (_, served) = manager(env.manager(), |server| server.listen(Listen::Disabled)).await?;
    let (webhooks, review) = (&served.webhooks, "AdmissionReview");

    let path = "/mutate-example-dev-v2-team";
    let answer = ask(webhooks, path, review, create(json!(["bob", "ann", "bob"]), None)).await;
    assert_eq!(answer["allowed"], true);
    assert_eq!(answer["patchType"], "JSONPatch");

    let path = "/validate-example-dev-v2-team";
    let answer = ask(webhooks, path, review, create(json!(["ann"]), Some("ann"))).await;
    assert_eq!(answer["allowed"], true);
    let answer = ask(webhooks, path, review, create(json!(["ann"]), Some("bob"))).await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(answer["status"]["message"], "the lead bob is no member");

    let mut team = create(json!(["ann", "bob"]), Some("bob"))["object"].clone();
    for (version, members) in [("v1", json!("ann,bob")), ("v2", json!(["ann", "bob"]))] {
        let wanted = format!("example.dev/{version}");
        let request = json!({"uid": "1", "desiredAPIVersion": wanted, "objects": [team]});
        let answer = ask(webhooks, "/convert", "ConversionReview", request).await;
        team = answer["convertedObjects"][0].clone();
        assert_eq!(team["spec"]["members"], members);
    }
    assert_eq!(team["spec"]["lead"], "bob", "kept on the way through v1");
    Ok(())
}

#[setpoint::test]
async fn team_gets_a_config_map_with_its_members(env: &TestEnv) -> Result<(), BoxError> {
    let (manager, _) = manager(env.manager(), |server| server.listen(Listen::Disabled)).await?;
    env.run(manager);
    let teams = Api::<Team>::default_namespaced(env.client());
    let spec = TeamSpec { members: vec!["ann".into(), "bob".into()], lead: None };
    teams.create(&PostParams::default(), &Team::new("core", spec)).await?;
    let maps = Api::<ConfigMap>::default_namespaced(env.client());
    let map = env.until(&maps, "core", exists()).await;
    let members = map.and_then(|map| map.data?.remove("members"));
    assert_eq!(members.as_deref(), Some("ann\nbob"));
    Ok(())
}

/// What a probe is answered.
async fn probe(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The kubelet's view: sockets, TLS and the wall clock.
#[setpoint::test(real_time)]
async fn program_is_ready_when_its_webhooks_answer(env: &TestEnv) -> Result<(), BoxError> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes())?;
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));

    let endpoint = Endpoint::bind(any_port)?;
    let health = endpoint.address();
    let builder = env.manager().serve(endpoint);
    let server = |server: WebhookServerBuilder| server.listen(any_port).certificate(certificate);
    let (mut manager, served) = manager(builder, server).await?;
    assert!(served.address.is_some_and(|address| address.port() != 0));
    let again = Webhooks::builder();
    let again = manager.webhooks_with(again, |server| server.listen(Listen::Disabled)).await;
    assert!(again.is_err(), "once for a manager");

    env.run(manager);
    let answer = env
        .eventually("the probe is answered with 200", async || {
            let answer = probe(health, "/readyz?verbose").await.ok()?;
            answer.starts_with("HTTP/1.1 200").then_some(answer)
        })
        .await;
    assert!(answer.contains("[+]webhooks ok"), "{answer}");
    Ok(())
}

#[test]
fn manifests_name_the_paths_that_are_served() {
    let webhooks = team::webhooks().unwrap().build().unwrap();
    let manifests = include_str!("../manifests/webhooks.yaml");
    for path in webhooks.paths().iter().filter(|path| **path != "/convert") {
        assert!(manifests.contains(&format!("path: {path} ")), "{path}");
    }
}
