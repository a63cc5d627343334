//! Webhooks with certificates that their program issues.

use crate::plane::{Person, with_person_of};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use setpoint::object::time::{Clock, Timestamp};
use setpoint::prelude::*;
use setpoint::runtime::endpoint::Endpoint;
use setpoint::webhook::server::Listen;
use setpoint::webhook::{Call, Refusal, Webhooks};
use setpoint::{ControlPlane, ManagerWebhooksError, WebhookCertificates};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/colors";
const SECRET: &str = "/api/v1/namespaces/default/secrets/certificate";
const MINUTE: Duration = Duration::from_secs(60);

async fn color(mut map: ConfigMap, _call: Call) -> Result<ConfigMap, Refusal> {
    map.data.get_or_insert_default().insert("color".into(), "blue".into());
    Ok(map)
}

fn configuration(client_config: Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "colors"},
        "webhooks": [{
            "name": "colors.example.dev", "clientConfig": client_config, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE"],
            }],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        }],
    })
}

async fn post(person: &Person, path: &str, body: Value) -> Value {
    person.request("POST", path, "application/json", &body).await.unwrap()
}

async fn get(person: &Person, path: &str) -> Value {
    person.request("GET", path, "application/json", &Value::Null).await.unwrap()
}

/// The CA bundle of the configuration.
async fn bundle(person: &Person) -> String {
    let configuration = get(person, CONFIGURATION).await;
    let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str();
    String::from_utf8(BASE64.decode(bundle.unwrap_or_default()).unwrap()).unwrap()
}

fn n_certificates(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[tokio::test(start_paused = true)]
async fn bundles_are_written_kept_and_renewed() {
    let start = Timestamp::from_secs(1_800_000_000);
    with_person_of(ControlPlane::builder().simulated(0).build(), async |person| {
        let collection = CONFIGURATION.rsplit_once('/').unwrap().0;
        let service = json!({"service": {"namespace": "default", "name": "colors"}});
        post(&person, collection, configuration(service)).await;
        let manager = async || {
            let clock = Clock::starting_at(start);
            let mut manager = Manager::builder(person.client.clone()).clock(clock).seed(1).build();
            let certificates = WebhookCertificates::new("default", "certificate")
                .service("colors")
                .mutating("colors")
                .validating("absent")
                .validity(90 * MINUTE);
            let webhooks = Webhooks::builder().mutate(color);
            let disabled = |server: setpoint::webhook::server::WebhookServerBuilder| {
                server.listen(Listen::Disabled)
            };
            manager.webhooks_with_certificates(webhooks, certificates, disabled).await.unwrap();
            manager
        };
        let manager_of_first = manager().await;
        // Before it runs, so that the server can be called at once.
        let first = bundle(&person).await;
        assert_eq!(n_certificates(&first), 1);
        // A second replica has the same certificate.
        drop(manager().await);
        assert_eq!(bundle(&person).await, first);
        let secret = get(&person, SECRET).await;
        assert_eq!(secret["type"], "kubernetes.io/tls");

        let stop = CancellationToken::new();
        let running = manager_of_first.run(stop.clone());
        let acting = async {
            // Somebody applies the manifest again, which has no bundle.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let emptied = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
            let patch = "application/json-patch+json";
            person.request("PATCH", CONFIGURATION, patch, &emptied).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(bundle(&person).await, first);

            tokio::time::sleep(58 * MINUTE).await;
            assert_eq!(bundle(&person).await, first);
            tokio::time::sleep(4 * MINUTE).await;
            let second = bundle(&person).await;
            assert_eq!(n_certificates(&second), 2);
            assert!(second.ends_with(&first), "the CA before is still accepted");
            tokio::time::sleep(60 * MINUTE).await;
            let third = bundle(&person).await;
            assert_eq!(n_certificates(&third), 2);
            assert!(!third.contains(&first), "the oldest CA is gone");
            // A damaged Secret is replaced.
            let damaged = json!({"data": {"tls.crt": "AAAA"}});
            let merge = "application/merge-patch+json";
            person.request("PATCH", SECRET, merge, &damaged).await.unwrap();
            tokio::time::sleep(Duration::from_secs(61)).await;
            assert_ne!(get(&person, SECRET).await["data"]["tls.crt"], "AAAA");
            stop.cancel();
        };
        tokio::join!(running, acting).0.unwrap();
    })
    .await;
}

/// As while a program is replaced by its next version.
#[tokio::test(start_paused = true)]
async fn replicas_with_different_names_share_a_certificate() {
    with_person_of(ControlPlane::builder().simulated(0).build(), async |person| {
        let names_after = async |name: &str| {
            let clock = Clock::starting_at(Timestamp::from_secs(1_800_000_000));
            let mut manager = Manager::builder(person.client.clone()).clock(clock).seed(1).build();
            let certificates = WebhookCertificates::new("default", "certificate").service(name);
            let disabled = |server: setpoint::webhook::server::WebhookServerBuilder| {
                server.listen(Listen::Disabled)
            };
            let webhooks = Webhooks::builder().mutate(color);
            manager.webhooks_with_certificates(webhooks, certificates, disabled).await.unwrap();
            let secret = get(&person, SECRET).await;
            let names = &secret["metadata"]["annotations"]["setpoint.dev/names"];
            (names.as_str().unwrap().to_owned(), secret)
        };
        assert_eq!(names_after("old").await.0, "old.default.svc");
        let (names, secret) = names_after("new").await;
        assert_eq!(names, "new.default.svc,old.default.svc");
        for name in ["old", "new"] {
            assert_eq!(names_after(name).await.1, secret);
        }
        let damaged = json!({"metadata": {"annotations": {"setpoint.dev/names": "ö"}}});
        let merge = "application/merge-patch+json";
        person.request("PATCH", SECRET, merge, &damaged).await.unwrap();
        assert_eq!(names_after("new").await.0, "new.default.svc");
    })
    .await;
}

#[tokio::test]
async fn a_server_calls_the_webhook_with_its_certificate() {
    with_person_of(ControlPlane::builder().build(), async |person| {
        let mut manager = Manager::new(person.client.clone());
        let certificates =
            WebhookCertificates::new("default", "certificate").host("127.0.0.1").mutating("colors");
        let webhooks = Webhooks::builder().mutate(color);
        let loopback = |server: setpoint::webhook::server::WebhookServerBuilder| {
            server.listen(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))
        };
        let served =
            manager.webhooks_with_certificates(webhooks, certificates, loopback).await.unwrap();
        let url = format!("https://{}/mutate--v1-configmap", served.address.unwrap());
        let collection = CONFIGURATION.rsplit_once('/').unwrap().0;
        post(&person, collection, configuration(json!({"url": url}))).await;
        let stop = CancellationToken::new();
        let running = manager.run(stop.clone());
        let acting = async {
            // The configuration came after the program: until its bundle is there, calls fail.
            let maps = "/api/v1/namespaces/default/configmaps";
            let map = json!({"metadata": {"generateName": "x-"}});
            let created = loop {
                let created = person.request("POST", maps, "application/json", &map).await;
                if let Ok(created) = created
                    && created["data"].is_object()
                {
                    break created;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            assert_eq!(created["data"]["color"], "blue");
            stop.cancel();
        };
        tokio::join!(running, acting).0.unwrap();
    })
    .await;
}

/// The code of the probe of a check.
async fn probe(address: std::net::SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        "GET /readyz/webhook-certificates HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_program_with_a_new_ca_is_not_ready_before_servers_know_it() {
    with_person_of(ControlPlane::builder().build(), async |person| {
        let collection = CONFIGURATION.rsplit_once('/').unwrap().0;
        let service = json!({"service": {"namespace": "default", "name": "colors"}});
        post(&person, collection, configuration(service)).await;
        // The first program: nobody knows another CA.
        for codes in [["200", "200"], ["500", "200"]] {
            let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = endpoint.address();
            let mut manager = Manager::builder(person.client.clone()).health(endpoint).build();
            let certificates = WebhookCertificates::new("default", "certificate")
                .service("colors")
                .mutating("colors");
            let disabled = |server: setpoint::webhook::server::WebhookServerBuilder| {
                server.listen(Listen::Disabled)
            };
            let webhooks = Webhooks::builder().mutate(color);
            manager.webhooks_with_certificates(webhooks, certificates, disabled).await.unwrap();
            let stop = CancellationToken::new();
            let running = manager.run(stop.clone());
            let acting = async {
                assert_eq!(probe(address).await, codes[0]);
                tokio::time::pause();
                tokio::time::advance(WebhookCertificates::PROPAGATION).await;
                tokio::time::resume();
                assert_eq!(probe(address).await, codes[1]);
                stop.cancel();
            };
            tokio::join!(running, acting).0.unwrap();
            // The next program makes a CA of its own.
            person.request("DELETE", SECRET, "application/json", &Value::Null).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn webhooks_whose_address_was_taken_can_be_added_again() {
    with_person_of(ControlPlane::builder().simulated(0).build(), async |person| {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut manager = Manager::new(person.client.clone());
        let mut serve = async |port: u16| {
            let certificates = WebhookCertificates::new("default", "certificate").host("127.0.0.1");
            let webhooks = Webhooks::builder().mutate(color);
            let listen = |server: setpoint::webhook::server::WebhookServerBuilder| {
                server.listen(std::net::SocketAddr::from(([127, 0, 0, 1], port)))
            };
            let served = manager.webhooks_with_certificates(webhooks, certificates, listen).await;
            (served, manager.metrics().prometheus())
        };
        let (refused, metrics) = serve(taken.local_addr().unwrap().port()).await;
        assert!(matches!(refused, Err(ManagerWebhooksError::Bind(_))), "{refused:?}");
        assert!(!metrics.contains("controller_runtime_webhook"));
        let (served, metrics) = serve(0).await;
        assert!(served.unwrap().address.is_some());
        let help = "# HELP controller_runtime_webhook_requests_in_flight ";
        assert_eq!(metrics.matches(help).count(), 1);
        let (again, _) = serve(0).await;
        assert!(matches!(again, Err(ManagerWebhooksError::Health(_))), "{again:?}");
    })
    .await;
}
