//! CertificateSigningRequests, as a user sees them.

use crate::cluster::{Cluster, condition, has};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::workload::certificates::{CertificateAuthority, Signers};
use setpoint_controllers::{Setup, WorkloadControllers};
use setpoint_runtime::events::EventApi;
use setpoint_runtime::{BoxError, Manager, ManagerBuilder};
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plan, Plans, Scenario, TestEnv};
use std::time::Duration;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

/// A CA, whose signatures are the same for the same content.
struct Ca {
    certificate: String,
    key: String,
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(2060, 1, 1);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, key: key.serialize_pem() }
    }

    fn manager(
        &self,
        builder: ManagerBuilder,
        setup: Setup,
        names: &str,
    ) -> Result<Manager, BoxError> {
        let authority = CertificateAuthority::from_pem(&self.certificate, &self.key)?;
        let setup = setup.signers(Signers::new(authority)).seed(1);
        let mut manager = builder.events(EventApi::Core).build();
        WorkloadControllers::new(setup, names.parse()?).add_to(&mut manager)?;
        Ok(manager)
    }
}

fn start(env: &TestEnv, names: &str) -> Cluster {
    let setup = Setup::new(env.client(), env.clock().clone());
    env.run(Ca::new().manager(env.manager(), setup, names).unwrap());
    Cluster::of(env)
}

fn path(name: &str) -> String {
    format!("{REQUESTS}/{name}")
}

/// A request in PEM for a subject.
fn pem(common_name: &str, organization: &str) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

fn request(name: &str, signer: &str, pem: &str) -> Value {
    let request = k8s_openapi::ByteString(pem.as_bytes().to_vec());
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        // What a request asks for has no manager.
        "metadata": {"name": name, "labels": {"team": "a"}},
        "spec": {
            "signerName": signer, "request": request,
            "usages": ["digital signature", "client auth"],
        },
    })
}

async fn decide(cluster: &Cluster, name: &str, kind: &str) {
    let decision = json!({"type": kind, "status": "True", "reason": "User", "message": "by hand"});
    let patch = json!({"status": {"conditions": [decision]}});
    let approval = format!("{}/approval", path(name));
    match cluster.send("PATCH", &approval, "application/merge-patch+json", &patch).await {
        Ok(_) => {}
        // The first answer was lost, and the signer has added a condition since.
        Err(kube_client::Error::Api(status)) if status.code == 422 => {
            let held = cluster.get(&path(name)).await.unwrap();
            assert!(has(&held, kind), "{status}: {held:#}");
        }
        Err(error) => panic!("{approval}: {error}"),
    }
}

fn is_signed(request: &Value) -> bool {
    request["status"]["certificate"].as_str().is_some_and(|text| !text.is_empty())
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn requests_of_kubelets_are_approved_and_signed(env: &TestEnv) {
    let cluster = start(env, "csrapproving,csrsigning");
    let node = pem("system:node:n1", "system:nodes");
    cluster.create(REQUESTS, &request("node", KUBELET, &node)).await;
    let held = cluster.until(&path("node"), is_signed).await;
    let approved = condition(&held, "Approved");
    assert_eq!(
        (&approved["status"], &approved["reason"], &approved["message"]),
        (
            &json!("True"),
            &json!("AutoApproved"),
            &json!("Auto approving kubelet client certificate after SubjectAccessReview."),
        )
    );
    assert!(approved["lastUpdateTime"].is_string(), "{held:#}");
    let manager = &held["metadata"]["managedFields"][1]["manager"];
    assert_eq!(manager, "kube-controller-manager");

    // Others wait for a person.
    cluster.create(REQUESTS, &request("user", CLIENT, &pem("ann", "team"))).await;
    cluster.create(REQUESTS, &request("odd", KUBELET, &pem("ann", "team"))).await;
    cluster.create(REQUESTS, &request("no", CLIENT, &pem("bob", "team"))).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    for name in ["user", "odd", "no"] {
        let held = cluster.get(&path(name)).await.unwrap();
        assert!(held["status"]["conditions"].is_null(), "{held:#}");
    }
    decide(&cluster, "user", "Approved").await;
    cluster.until(&path("user"), is_signed).await;
    decide(&cluster, "no", "Denied").await;
    decide(&cluster, "odd", "Approved").await;
    let held = cluster.until(&path("odd"), |held| has(held, "Failed")).await;
    let failed = condition(&held, "Failed");
    assert_eq!(failed["reason"], "SignerValidationFailure");
    assert_eq!(failed["message"], "subject organization is not system:nodes");
    assert!(!is_signed(&held) && has(&held, "Approved"));
    let held = cluster.get(&path("no")).await.unwrap();
    assert!(!is_signed(&held), "{held:#}");
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn requests_are_deleted_when_they_are_old(env: &TestEnv) {
    let cluster = start(env, "csrsigning,csrcleaner");
    let client = |name: &str| request(name, CLIENT, &pem("ann", "team"));
    for name in ["signed", "denied", "waits", "short"] {
        let mut request = client(name);
        if name == "short" {
            request["spec"]["expirationSeconds"] = 600.into();
        }
        cluster.create(REQUESTS, &request).await;
    }
    cluster.create(REQUESTS, &request("foreign", "example.com/own", &pem("ann", "t"))).await;
    decide(&cluster, "denied", "Denied").await;
    for name in ["signed", "short", "foreign"] {
        decide(&cluster, name, "Approved").await;
    }
    cluster.until(&path("signed"), is_signed).await;
    let is_there = async |name: &str| cluster.get(&path(name)).await.is_some();
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert!(is_there("short").await);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(!is_there("short").await, "the certificate has expired");
    assert!(is_there("signed").await && is_there("denied").await);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!is_there("signed").await && !is_there("denied").await);
    assert!(is_there("waits").await && is_there("foreign").await);
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert!(!is_there("waits").await && !is_there("foreign").await);
}

/// Requests that are approved, fail and are signed.
struct Requests {
    ca: Ca,
    node: String,
    user: String,
}

impl Scenario for Requests {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone());
        let names = "csrapproving,csrsigning,csrcleaner";
        Ok(self.ca.manager(life.manager(), setup, names)?.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        cluster.create(REQUESTS, &request("a", KUBELET, &self.node)).await;
        cluster.create(REQUESTS, &request("b", CLIENT, &self.user)).await;
        cluster.create(REQUESTS, &request("c", KUBELET, &self.user)).await;
        for name in ["b", "c"] {
            decide(&cluster, name, "Approved").await;
        }
        cluster.until(&path("c"), |held| has(held, "Failed")).await;
        let mut certificates = Vec::new();
        for name in ["a", "b"] {
            let held = cluster.until(&path(name), is_signed).await;
            certificates.push(held["status"]["certificate"].clone());
        }
        tokio::time::sleep(Duration::from_secs(120)).await;
        for (name, certificate) in ["a", "b"].into_iter().zip(certificates) {
            let held = cluster.get(&path(name)).await.unwrap();
            assert_eq!(held["status"]["certificate"], certificate, "it is signed once");
            assert_eq!(held["status"]["conditions"].as_array().unwrap().len(), 1);
            // Certificates differ between plays, by their times.
            cluster.delete(&path(name), &json!({})).await;
        }
    }
}

#[test]
fn requests_are_decided_once_with_every_plan() {
    let scenario = Requests {
        ca: Ca::new(),
        node: pem("system:node:n1", "system:nodes"),
        user: pem("ann", "team"),
    };
    let n = check(&scenario, &Plans::new().crashes().storms(20).plan(Plan::storm(254)));
    assert!(n > 20, "{n} plans");
}
