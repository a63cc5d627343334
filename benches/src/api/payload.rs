//! The objects that are created.

use super::client::{Ask, Endpoint};
use crate::definitions::definition;
pub(crate) use crate::in_process::CONFIG_MAPS;
use bytes::Bytes;
use serde_json::{Value, json};

/// The collection of ServiceAccounts.
pub(crate) const SERVICE_ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// The collection of Pods.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
/// Approximate size of a Pod in bytes, as sent.
const POD_BYTES: usize = 4096;
/// Number of variables of a listed Pod.
const LISTED_ENV: usize = 2;

/// Creates what the Pods refer to: their ServiceAccount.
pub(super) fn prepare(endpoint: &Endpoint) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = endpoint.connect().await?;
        let account = Bytes::from_static(br#"{"metadata":{"name":"web"}}"#);
        connection.send(Ask::write("POST", SERVICE_ACCOUNTS), account).await?.ok()?;
        Ok(())
    })
}

/// A ConfigMap of 1 KiB. `n` distinguishes versions of the same name.
pub(crate) fn config_map(name: &str, n: u64) -> Bytes {
    let payload = "x".repeat(1024);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"n":"{n}","payload":"{payload}"}}}}"#
    )
    .into()
}

/// The same ConfigMap in protobuf, as typed clients send it.
pub(crate) fn config_map_protobuf(name: &str, n: u64) -> Bytes {
    let data = [("n", n.to_string()), ("payload", "x".repeat(1024))].map(|(key, value)| {
        field(2, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
    });
    let config_map = [field(1, &field(1, name.as_bytes())), data.concat()].concat();
    let type_meta = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    [&b"k8s\0"[..], &field(1, &type_meta), &field(2, &config_map)].concat().into()
}

/// A field of protobuf's wire type 2: its number below 16, the length, the bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut length) = (vec![number << 3 | 2], bytes.len());
    while length > 0x7f {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

/// A Pod of 4 KB with the content of a Deployment's Pod, except for an owner: the garbage collector
/// would delete it because the owner does not exist.
pub(crate) fn pod(name: &str) -> Bytes {
    pod_of(name, 24, POD_BYTES)
}

/// A Pod with a stored size of 4.4 KB, typical for a cluster: with its managed fields and its
/// status.
pub(crate) fn listed_pod(name: &str) -> Bytes {
    pod_of(name, LISTED_ENV, 0)
}

fn pod_of(name: &str, n_env: usize, n_bytes: usize) -> Bytes {
    let env: Vec<Value> = (0..n_env)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("the value of setting {n}")}))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "web", "pod-template-hash": "6d4b75cb6d", "tier": "frontend"},
            "annotations": {"checksum/config": "d2b2c1f4".repeat(8)},
        },
        "spec": {
            "serviceAccountName": "web",
            "nodeName": "node-17",
            "containers": [{
                "name": "web",
                "image": "registry.example.com/shop/web:v1.27.3",
                "args": ["--listen=:8080", "--log-format=json"],
                "ports": [{"name": "http", "containerPort": 8080}],
                "env": env,
                "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
                "readinessProbe": probe,
                "livenessProbe": probe,
                "volumeMounts": [{"name": "config", "mountPath": "/etc/web", "readOnly": true}],
            }],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "volumes": [{"name": "config", "configMap": {"name": "web"}}],
        },
    });
    let missing = n_bytes.saturating_sub(pod.to_string().len() + 20);
    if missing > 0 {
        pod["metadata"]["annotations"]["note"] = "x".repeat(missing).into();
    }
    pod.to_string().into()
}

/// A merge patch of a Pod's status, as from a kubelet.
pub(crate) fn status_patch(n: u64) -> Bytes {
    json!({"status": {"phase": "Running", "podIP": format!("10.0.{}.{}", n / 250 % 250, n % 250), "conditions": [
        {"type": "Ready", "status": if n.is_multiple_of(2) { "True" } else { "False" }, "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}})
    .to_string()
    .into()
}

/// An apply patch of a ConfigMap.
pub(crate) fn applied(name: &str, n: u64) -> Bytes {
    config_map(name, n)
}

/// The definition of objects with numbers; a CEL rule compares each with the next.
pub(crate) fn rules_definition(n_rules: usize) -> Bytes {
    let numbers: serde_json::Map<_, _> = (0..=n_rules)
        .map(|n| (format!("n{n}"), json!({"type": "integer", "minimum": 0, "maximum": 1_000_000})))
        .collect();
    let rules: Vec<Value> = (0..n_rules)
        .map(|n| json!({"rule": format!("self.n{n} <= self.n{}", n + 1), "message": "must grow"}))
        .collect();
    let spec = json!({"type": "object", "properties": numbers, "x-kubernetes-validations": rules});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    definition("bench.io", &format!("rules{n_rules}"), &format!("Rules{n_rules}"), schema)
        .to_string()
        .into()
}

/// The collection of such objects.
pub(crate) fn rules_path(n_rules: usize) -> String {
    format!("/apis/bench.io/v1/namespaces/default/rules{n_rules}")
}

/// Such an object.
pub(crate) fn ruled(name: &str, n_rules: usize) -> Bytes {
    let numbers: serde_json::Map<_, _> =
        (0..=n_rules).map(|n| (format!("n{n}"), n.into())).collect();
    json!({"apiVersion": "bench.io/v1", "kind": format!("Rules{n_rules}"), "metadata": {"name": name}, "spec": numbers})
        .to_string()
        .into()
}

/// A merge patch of its last number, by `n` above the one before.
pub(crate) fn ruled_patch(n_rules: usize, n: u64) -> Bytes {
    let mut spec = serde_json::Map::new();
    spec.insert(format!("n{n_rules}"), (n_rules as u64 + n).into());
    json!({ "spec": spec }).to_string().into()
}
