//! A chain of authorizers in a file.

use crate::plane::with_person_of;
use crate::remote::{Reviewer, status};
use serde_json::{Value, json};
use setpoint::abac::Abac;
use setpoint::egress::Dialer;
use setpoint::object::time::Clock;
use setpoint::runtime::metrics::Metrics;
use setpoint::{AuthorizationConfig, ConfigMetrics, ControlPlane};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn webhook(name: &str, reviewer: &Reviewer, version: &str, conditions: &[&str]) -> Value {
    let conditions: Value =
        conditions.iter().map(|expression| json!({"expression": expression})).collect();
    json!({"type": "Webhook", "name": name, "webhook": {
        "timeout": "3s", "subjectAccessReviewVersion": version, "failurePolicy": "Deny",
        "matchConditionSubjectAccessReviewVersion": "v1",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": reviewer.kubeconfig()},
        "matchConditions": conditions,
    }})
}

fn write(path: &Path, authorizers: Value) {
    let tree = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
        "authorizers": authorizers,
    });
    let new = path.with_extension("new");
    std::fs::write(&new, tree.to_string()).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn a_chain_of_webhooks_and_rbac_is_replaced_while_it_runs() {
    let denies =
        Reviewer::start(|_| (200, json!({"allowed": false, "denied": true, "reason": "not here"})))
            .await;
    let allows = Reviewer::start(|_| (200, json!({"allowed": true}))).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let rbac = json!({"type": "RBAC", "name": "rbac"});
    let secrets =
        "has(request.resourceAttributes) && request.resourceAttributes.resource == 'secrets'";
    let chain = json!([
        webhook("first", &denies, "v1", &[secrets]),
        rbac,
        webhook("second", &allows, "v1beta1", &["request.user == 'bob'"]),
    ]);
    write(&path, chain);
    let metrics = Metrics::new();
    let counted = ConfigMetrics::register(&metrics, "authorization", Clock::wall(), "");
    let (authorizers, worker) =
        AuthorizationConfig::open(&path, None, Dialer::default()).await.unwrap();
    let worker = worker.period(Duration::from_millis(20)).metrics(counted);
    let plane = ControlPlane::builder().authorization_config((authorizers, worker)).build();
    let server = plane.server().clone();
    let until = async |line: &str| {
        while !metrics.prometheus().contains(line) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    with_person_of(plane, async |_| {
        assert_eq!(status(&server, PODS).await.0, 200);
        let (code, message) = status(&server, SECRETS).await;
        assert_eq!(code, 403);
        assert!(message.ends_with(": not here"), "{message}");
        assert_eq!((denies.n_seen(), allows.n_seen()), (1, 1));
        let sent = allows.seen.lock().unwrap()[0].1.clone();
        assert_eq!(sent["apiVersion"], "authorization.k8s.io/v1beta1");
        assert_eq!(sent["spec"]["group"], json!(["devs", "system:authenticated"]));
        assert_eq!(sent["spec"].get("groups"), None);

        // A chain that lacks RBAC is refused, and the present one stays.
        write(&path, json!([{"type": "AlwaysAllow", "name": "alwaysallow"}]));
        until(r#"automatic_reloads_total{apiserver_id_hash="",status="failure"} 1"#).await;
        assert_eq!(status(&server, SECRETS).await.0, 403);

        write(&path, json!([rbac]));
        until(r#"automatic_reloads_total{apiserver_id_hash="",status="success"} 1"#).await;
        let (code, message) = status(&server, PODS).await;
        assert_eq!(code, 403);
        assert!(message.ends_with(r#"in the namespace "default""#), "{message}");
        write(&path, json!([rbac, {"type": "AlwaysAllow", "name": "alwaysallow"}]));
        until(r#"automatic_reloads_total{apiserver_id_hash="",status="success"} 2"#).await;
        assert_eq!(status(&server, SECRETS).await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn a_condition_that_fails_counts_as_the_failure_policy_says() {
    let allows = Reviewer::start(|_| (200, json!({"allowed": true}))).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    for (policy, expected) in [("Deny", 500), ("NoOpinion", 200)] {
        let fails = "request.nonResourceAttributes.path == '/'";
        let mut first = webhook("first", &allows, "v1", &[fails]);
        first["webhook"]["failurePolicy"] = policy.into();
        write(&path, json!([first, {"type": "AlwaysAllow", "name": "alwaysallow"}]));
        let chain = AuthorizationConfig::open(&path, None, Dialer::default()).await.unwrap();
        let plane = ControlPlane::builder().authorization_config(chain).build();
        let server = plane.server().clone();
        with_person_of(plane, async |_| {
            assert_eq!(status(&server, PODS).await.0, expected, "{policy}");
        })
        .await;
    }
    assert_eq!(allows.n_seen(), 0);
}

#[tokio::test]
async fn what_webhooks_do_is_counted_by_their_names() {
    let allows = Reviewer::start(|_| (200, json!({"allowed": true}))).await;
    let fails = Reviewer::start(|_| (400, json!({}))).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let mut open = webhook("open", &fails, "v1", &[]);
    open["webhook"]["failurePolicy"] = "NoOpinion".into();
    let is_pods = "request.resourceAttributes.resource == 'pods'";
    let excluded = webhook("excluded", &allows, "v1", &["request.user == 'nobody'"]);
    write(&path, json!([excluded, open, webhook("last", &allows, "v1", &[is_pods])]));
    let chain = AuthorizationConfig::open(&path, None, Dialer::default()).await.unwrap();
    let metrics = Metrics::new();
    chain.0.figures().register(&metrics);
    let plane = ControlPlane::builder().authorization_config(chain).build();
    let server = plane.server().clone();
    with_person_of(plane, async |_| {
        assert_eq!(status(&server, PODS).await.0, 200);
        assert_eq!(status(&server, "/version").await.0, 500);
    })
    .await;
    let text = metrics.prometheus();
    for line in [
        r#"webhook_evaluations_total{name="last",result="success"} 1"#,
        r#"webhook_evaluations_total{name="open",result="error"} 2"#,
        r#"webhook_duration_seconds_count{name="open",result="error"} 2"#,
        r#"webhook_evaluations_fail_open_total{name="open",result="error"} 2"#,
        r#"match_condition_exclusions_total{type="Webhook",name="excluded"} 2"#,
        r#"match_condition_evaluation_seconds_count{type="Webhook",name="last"} 2"#,
        r#"match_condition_evaluation_errors_total{type="Webhook",name="last"} 1"#,
    ] {
        let line = format!("apiserver_authorization_{line}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[tokio::test]
async fn the_policies_of_a_file_decide() {
    let dir = tempfile::tempdir().unwrap();
    let (path, policies) = (dir.path().join("config"), dir.path().join("policies"));
    let abac = json!({"type": "ABAC", "name": "abac"});
    write(&path, json!([abac]));
    let error =
        AuthorizationConfig::open(&path, None, Dialer::default()).await.unwrap_err().to_string();
    assert_eq!(error, "authorizer type ABAC needs a policy file");

    let spec = json!({
        "group": "devs", "readonly": true, "namespace": "default", "resource": "pods", "apiGroup": "",
    });
    let version = "abac.authorization.kubernetes.io/v1beta1";
    let policy = json!({"apiVersion": version, "kind": "Policy", "spec": spec});
    std::fs::write(&policies, format!("# developers\n{policy}\n")).unwrap();
    let policies = Arc::new(Abac::load(&policies).unwrap());
    let chain = AuthorizationConfig::open(&path, Some(policies), Dialer::default()).await.unwrap();
    let plane = ControlPlane::builder().authorization_config(chain).build();
    let server = plane.server().clone();
    with_person_of(plane, async |_| {
        assert_eq!(status(&server, PODS).await.0, 200);
        let (code, message) = status(&server, SECRETS).await;
        assert_eq!(code, 403);
        assert!(message.ends_with(": No policy matched."), "{message}");
    })
    .await;
}
