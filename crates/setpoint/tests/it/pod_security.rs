//! PodSecurity, as a client sees it (spec: admission §2.1).

use crate::admission::{PODS, pod, with_admission};
use crate::https::with_user;
use futures::FutureExt as _;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::{AuditQueue, Stage};
use setpoint::registry::AdmissionOptions;

const NAMESPACE: &str = "/api/v1/namespaces/default";
const RESTRICTED: &str = r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#;

fn labels(labels: Value) -> Value {
    let all = labels.as_object().unwrap().iter();
    let all = all.map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), value.clone()));
    json!({"metadata": {"labels": all.collect::<serde_json::Map<_, _>>()}})
}

#[tokio::test(start_paused = true)]
async fn pods_are_refused_by_the_level_of_their_namespace() {
    with_admission(AdmissionOptions::default(), async |admin| {
        admin.create(PODS, &pod("before", json!({}))).await;
        let answer = admin.patch(NAMESPACE, &labels(json!({"enforce": "restricted"}))).await;
        assert_eq!(answer.code, 200);
        assert_eq!(
            answer.warnings,
            [
                r#"existing pods in namespace "default" violate the new PodSecurity enforce level "restricted:latest""#,
                "before: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile",
            ]
        );
        let refused = format!(r#"pods "p" is forbidden: violates PodSecurity "restricted:latest": {RESTRICTED}"#);
        assert_eq!(admin.post(PODS, &pod("p", json!({}))).await.refusal(), (403, &*refused));
        let good = json!({
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "image": "i:1", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
        });
        let answer = admin.post(PODS, &pod("good", good)).await;
        assert_eq!((answer.code, answer.warnings.len()), (201, 0), "{}", answer.message());

        // Labels of a stored pod change freely; its image does not.
        let before = format!("{PODS}/before");
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        assert_eq!(admin.patch(&before, &labelled).await.code, 200);
        let image = json!({"spec": {"containers": [{"name": "c", "image": "i:2"}]}});
        let refused = refused.replace(r#""p""#, r#""before""#);
        assert_eq!(admin.patch(&before, &image).await.refusal(), (403, &*refused));

        let versioned = labels(json!({"enforce": "baseline", "enforce-version": "v1.25"}));
        assert_eq!(admin.patch(NAMESPACE, &versioned).await.warnings, [""; 0]);
        let answer = admin.post(PODS, &pod("p", json!({"hostNetwork": true}))).await;
        assert_eq!(
            answer.refusal(),
            (403, r#"pods "p" is forbidden: violates PodSecurity "baseline:v1.25": host namespaces (hostNetwork=true)"#)
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn workloads_are_warned_of_and_never_refused() {
    with_admission(AdmissionOptions::default(), async |admin| {
        admin.patch(NAMESPACE, &labels(json!({"enforce": "restricted"}))).await;
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}},
        });
        let answer = admin.post("/apis/apps/v1/namespaces/default/deployments", &deployment).await;
        assert_eq!(answer.code, 201);
        assert_eq!(answer.warnings, [format!(r#"would violate PodSecurity "restricted:latest": {RESTRICTED}"#)]);

        let both = labels(json!({"enforce": "privileged", "warn": "baseline"}));
        admin.patch(NAMESPACE, &both).await;
        let answer = admin.post(PODS, &pod("p", json!({"hostPID": true}))).await;
        assert_eq!(answer.code, 201);
        assert_eq!(
            answer.warnings,
            [r#"would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)"#]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn wrong_labels_of_a_namespace_are_refused() {
    with_admission(AdmissionOptions::default(), async |admin| {
        let answer = admin.patch(NAMESPACE, &labels(json!({"enforce": "strict"}))).await;
        assert_eq!(
            answer.refusal(),
            (422, r#"Namespace "default" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted"#)
        );
        let answer = admin.patch(NAMESPACE, &labels(json!({"warn-version": "1.2"}))).await;
        assert_eq!(
            answer.refusal(),
            (422, r#"Namespace "default" is invalid: metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "1.2": must be "latest" or "v1.x""#)
        );
        let others = labels(json!({"other": "x", "enforce-version": "v1.99"}));
        assert_eq!(admin.patch(NAMESPACE, &others).await.code, 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn defaults_and_exemptions_are_configured() {
    let options = AdmissionOptions::default().configure("PodSecurity", json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "baseline"},
        "exemptions": {"usernames": ["trusted"], "namespaces": ["kube-system"], "runtimeClasses": ["vm"]},
    }));
    with_admission(options, async |admin| {
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vm"}, "handler": "vm"});
        admin.create("/apis/node.k8s.io/v1/runtimeclasses", &class).await;
        let host = || json!({"hostNetwork": true});
        assert_eq!(admin.post(PODS, &pod("a", host())).await.code, 403);
        let trusted = admin.as_user("trusted", ["system:authenticated"]);
        assert_eq!(trusted.post(PODS, &pod("a", host())).await.code, 201);
        let system = "/api/v1/namespaces/kube-system/pods";
        assert_eq!(admin.post(system, &pod("a", host())).await.code, 201);
        let vm = json!({"hostNetwork": true, "runtimeClassName": "vm"});
        assert_eq!(admin.post(PODS, &pod("b", vm)).await.code, 201);
    })
    .await;
}

/// Of namespaces without restrictions, whatever version they name.
#[tokio::test]
async fn the_policy_of_an_open_namespace_is_noted_as_the_latest() {
    let audit = AuditQueue::new(1000);
    with_user(ControlPlane::builder().audit(audit.clone()), async |user, _| {
        let labels = |enforce: &str| {
            json!({
                "pod-security.kubernetes.io/enforce": enforce,
                "pod-security.kubernetes.io/enforce-version": "v1.30",
            })
        };
        for (name, level) in [("open", "privileged"), ("closed", "baseline")] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": labels(level)}});
            user.create("/api/v1/namespaces", &namespace).await;
            let path = format!("/api/v1/namespaces/{name}/pods?dryRun=All");
            user.create(&path, &pod("a", json!({}))).await;
        }
    })
    .await;
    let mut noted = Vec::new();
    while let Some(event) = audit.next().now_or_never() {
        let annotations = event.request.audit_annotations();
        if let (Stage::ResponseComplete, Some(policy)) =
            (event.stage, annotations.get("pod-security.kubernetes.io/enforce-policy"))
        {
            noted.push(policy.to_string());
        }
    }
    assert_eq!(noted, ["privileged:latest", "baseline:v1.30"]);
}
