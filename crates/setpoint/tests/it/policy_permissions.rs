//! Who writes an admission policy or a binding must be able to read its params; and policies about
//! streams and about other versions of a resource.

use crate::admission::{PODS, pod, with_plane};
use crate::admission_policies::{GROUP, MAPS, map, on};
use serde_json::{Value, json};
use setpoint::ControlPlane;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn policy(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Waits, in virtual time, until what was written has an effect.
async fn settled() {
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn params_must_be_readable_for_who_refers_to_them() {
    let plane = ControlPlane::builder().simulated(0).rbac();
    with_plane(plane, async |admin| {
        let policies = format!("{GROUP}/validatingadmissionpolicies");
        let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
        let rules = json!([{
            "verbs": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"],
        }]);
        let role = json!({"metadata": {"name": "policies"}, "rules": rules});
        admin.create(&format!("{RBAC}/clusterroles"), &role).await;
        let grant = async |name: &str, role: &str, path: &str, kind: &str| {
            let binding = json!({
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": "eve"}],
            });
            admin.create(&format!("{RBAC}/{path}{kind}"), &binding).await;
            settled().await;
        };
        grant("policies", "policies", "", "clusterrolebindings").await;
        let eve = admin.as_user("eve", ["system:authenticated"]);
        let spec = json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": on(&["configmaps"], &["CREATE"]),
            "validations": [{"expression": "params.data.k == 'v'"}],
        });
        let refused = eve.post(&policies, &policy("p", &spec)).await;
        assert_eq!(refused.code, 422, "{}", refused.message());
        assert!(
            refused.message().contains(
                r#"spec.paramKind: Forbidden: user eve must have "get" permission on all objects of the referenced paramKind (kind=ConfigMap, apiVersion=v1)"#
            ),
            "{}",
            refused.message()
        );
        admin.create(&policies, &policy("p", &spec)).await;
        settled().await;
        let bound = json!({
            "policyName": "p", "validationActions": ["Deny"],
            "paramRef": {
                "name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny",
            },
        });
        let refused = eve.post(&bindings, &policy("b", &bound)).await;
        assert_eq!(refused.code, 422, "{}", refused.message());
        // A right in the namespace of the params is enough for the binding, not for the policy.
        let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]);
        let role = json!({"metadata": {"name": "maps"}, "rules": rules});
        admin.create(&format!("{RBAC}/clusterroles"), &role).await;
        grant("maps", "maps", "namespaces/default/", "rolebindings").await;
        assert_eq!(eve.post(&bindings, &policy("b", &bound)).await.code, 201);
        assert_eq!(eve.post(&policies, &policy("q", &spec)).await.code, 422);
        // What does not change the params needs no right.
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        assert_eq!(eve.patch(&format!("{policies}/p"), &labelled).await.code, 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn streams_are_reviewed_as_connects() {
    let plane = ControlPlane::builder().simulated(0).service_accounts(false);
    with_plane(plane, async |admin| {
        admin.create(PODS, &pod("a", json!({}))).await;
        let spec = json!({
            "matchConstraints": on(&["pods/exec"], &["CONNECT"]),
            "validations": [{
                "expression": "request.operation != 'CONNECT' || request.name != 'a'",
                "message": "nobody enters",
            }],
        });
        let policies = format!("{GROUP}/validatingadmissionpolicies");
        admin.create(&policies, &policy("p", &spec)).await;
        let bound = json!({"policyName": "p", "validationActions": ["Deny"]});
        let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
        admin.create(&bindings, &policy("b", &bound)).await;
        settled().await;
        let refused = admin.post(&format!("{PODS}/a/exec?command=sh"), &Value::Null).await;
        assert_eq!(refused.code, 422, "{}", refused.message());
        assert!(
            refused.message().ends_with("denied request: nobody enters"),
            "{}",
            refused.message()
        );
        // Other streams get as far as the missing agent of the node.
        let other = admin.post(&format!("{PODS}/a/attach"), &Value::Null).await;
        assert!(!other.message().contains("nobody enters"), "{}", other.message());
        // So do other writes.
        admin.create(MAPS, &map("m", json!({}))).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_sees_the_version_that_it_names() {
    let plane = ControlPlane::builder().simulated(0).service_accounts(false);
    with_plane(plane, async |admin| {
        let rules = |matched: &str| {
            json!({
                "matchPolicy": matched,
                "resourceRules": [{
                    "apiGroups": ["autoscaling"], "apiVersions": ["v1"],
                    "resources": ["horizontalpodautoscalers"], "operations": ["CREATE"],
                }],
            })
        };
        let policies = format!("{GROUP}/validatingadmissionpolicies");
        let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
        // The field exists in v1 only.
        let field = "object.spec.targetCPUUtilizationPercentage < 50";
        for (name, matched) in [("exact", "Exact"), ("equivalent", "Equivalent")] {
            let spec = json!({
                "matchConstraints": rules(matched),
                "validations": [{"expression": field, "message": format!("{name} says no")}],
            });
            admin.create(&policies, &policy(name, &spec)).await;
            let bound = json!({"policyName": name, "validationActions": ["Deny"]});
            admin.create(&bindings, &policy(name, &bound)).await;
        }
        settled().await;
        let metric = json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
        }});
        let scaler = json!({
            "metadata": {"name": "s"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "maxReplicas": 3, "metrics": [metric],
            },
        });
        let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
        let refused = admin.post(path, &scaler).await;
        // The exact one does not match.
        assert!(refused.message().ends_with("equivalent says no"), "{}", refused.message());
    })
    .await;
}
