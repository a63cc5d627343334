//! What a user applies, as the server and the program read it.

use crate::definitions;
use port_rule::api::{NodeFirewall, PortRule};
use serde_json::{Value, json};
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{Patch, PatchParams, PostParams};
use setpoint::prelude::*;
use setpoint::testenv::TestEnv;

fn rule(name: &str, spec: Value) -> PortRule {
    let value = json!({"apiVersion": "firewalld.fedoraproject.org/v1", "kind": "PortRule",
        "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(value).unwrap()
}

#[setpoint::test]
async fn definitions_have_the_fields_of_the_types(env: &TestEnv) -> Result<(), BoxError> {
    for definition in definitions() {
        env.install(&definition).await?;
    }
    let rules = Api::<PortRule>::all(env.client());
    let full = json!({"action": "Reject", "direction": "Out", "protocol": "SCTP",
        "ports": [{"port": 80}, {"port": 90, "endPort": 95}], "peers": ["10.0.0.0/8", "fd00::/8"],
        "nodeSelector": {"role": "db"}, "zone": "dmz"});
    let created = rules.create(&PostParams::default(), &rule("full", full.clone())).await?;
    assert_eq!(serde_json::to_value(&created.spec)?, full, "nothing is pruned");
    let status = json!({"status": {"observedGeneration": 1, "nodes": 3, "applied": 2, "conditions": [
        {"type": "Ready", "status": "True", "reason": "Applied", "message": "", "observedGeneration": 1,
         "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let patched =
        rules.patch_status("full", &PatchParams::default(), &Patch::Merge(&status)).await?;
    assert_eq!(serde_json::to_value(patched.status)?, status["status"]);

    let small = json!({"action": "Drop", "ports": [{"port": 80}]});
    let created = rules.create(&PostParams::default(), &rule("small", small)).await?;
    let defaulted =
        json!({"action": "Drop", "direction": "In", "protocol": "TCP", "ports": [{"port": 80}]});
    assert_eq!(serde_json::to_value(&created.spec)?, defaulted);

    let spec = json!({"backend": "nftables", "rules": [
        {"name": "web", "uid": "1", "generation": 2, "state": "Refused", "message": "why"}]});
    let report = NodeFirewall::new("a", serde_json::from_value(spec.clone())?);
    let reports = Api::<NodeFirewall>::all(env.client());
    let created = reports.create(&PostParams::default(), &report).await?;
    assert_eq!(serde_json::to_value(&created.spec)?, spec);
    Ok(())
}

#[setpoint::test]
async fn server_refuses_what_is_no_rule(env: &TestEnv) -> Result<(), BoxError> {
    for definition in definitions() {
        env.install(&definition).await?;
    }
    let rules = Api::<setpoint::kube_core::DynamicObject>::all_with(
        env.client(),
        &setpoint::kube_core::ApiResource::erase::<PortRule>(&()),
    );
    for (name, spec, message) in [
        ("a", json!({"action": "Drop", "ports": []}), "should have at least 1 items"),
        (
            "b",
            json!({"action": "Drop", "ports": [{"port": 9, "endPort": 8}]}),
            "endPort is below port",
        ),
        (
            "c",
            json!({"action": "Drop", "ports": [{"port": 9}], "peers": ["10.0.0.1/8"]}),
            "must be an address range such as",
        ),
        (
            "d",
            json!({"action": "Drop", "ports": [{"port": 9}], "peers": ["all"]}),
            "must be an address range such as",
        ),
        ("e", json!({"action": "Close", "ports": [{"port": 9}]}), "Unsupported value: \"Close\""),
        (
            &"f".repeat(64),
            json!({"action": "Drop", "ports": [{"port": 9}]}),
            "the name has more than 63 characters",
        ),
    ] {
        let value = json!({"apiVersion": "firewalld.fedoraproject.org/v1", "kind": "PortRule",
            "metadata": {"name": name}, "spec": spec});
        let refused = rules.create(&PostParams::default(), &serde_json::from_value(value)?).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(message), "{name}: {refused}");
    }
    Ok(())
}

#[setpoint::test]
async fn manifests_are_accepted_by_the_server(env: &TestEnv) -> Result<(), BoxError> {
    for definition in definitions() {
        env.install(&definition).await?;
    }
    for text in
        [include_str!("../../manifests/example.yaml"), include_str!("../../manifests/deploy.yaml")]
    {
        for text in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(text)?;
            let (version, kind) =
                (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
            let plural = match kind {
                "PortRule" => "ports".to_owned(),
                kind => format!("{}s", kind.to_lowercase()),
            };
            let prefix = if version.contains('/') {
                format!("/apis/{version}")
            } else {
                format!("/api/{version}")
            };
            let namespace = object["metadata"]["namespace"].as_str();
            let namespace = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
            let path = format!("{prefix}{namespace}/{plural}?fieldValidation=Strict");
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .body(serde_json::to_vec(&object)?)?;
            let created: Value = env.client().request(request).await?;
            assert_eq!(created["metadata"]["name"], object["metadata"]["name"]);
        }
    }
    Ok(())
}
