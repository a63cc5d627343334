//! Impersonation: what a user needs to act as another one, and who that is then.

use crate::plane::with_person_of;
use crate::rbac::{admin, binding, bob, devs, role, send_with, settled, with_rbac, with_rbac_and};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::{ApiServer, AuditEvent, AuditSink, Stage};
use setpoint::registry::{Feature, FeatureGates, Identity};
use std::sync::{Arc, Mutex};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A list of pods, as bob with the given headers.
async fn pods(server: &ApiServer, headers: &[(&str, &str)]) -> (u16, String) {
    let answer = send_with(server, bob(), headers, Method::GET, PODS, Value::Null).await;
    code_and_message(answer)
}

fn code_and_message((status, answer): (StatusCode, Value)) -> (u16, String) {
    (status.as_u16(), answer["message"].as_str().unwrap_or_default().to_owned())
}

/// Who the server takes the requester for.
async fn who(server: &ApiServer, identity: Identity, headers: &[(&str, &str)]) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (status, answer) = send_with(server, identity, headers, Method::POST, path, review).await;
    assert_eq!(status, 201, "{answer}");
    answer["status"]["userInfo"].clone()
}

/// Gives the group of bob a ClusterRole with these rules.
async fn allow(server: &ApiServer, name: &str, rules: Value) {
    admin(server, &format!("{RBAC}/clusterroles"), role("ClusterRole", name, rules)).await;
    let bound = binding("ClusterRoleBinding", name, "ClusterRole", name, devs());
    admin(server, &format!("{RBAC}/clusterrolebindings"), bound).await;
    settled().await;
}

#[tokio::test(start_paused = true)]
async fn each_value_needs_the_plain_verb() {
    with_rbac(async |server| {
        let as_jane = [("Impersonate-User", "jane")];
        let refused = r#"pods is forbidden: User "bob" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "default""#;
        assert_eq!(pods(&server, &as_jane).await, (403, refused.to_owned()));
        let rules = json!([
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"]},
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["serviceaccounts"]},
        ]);
        allow(&server, "actors", rules).await;
        // It is jane who may not list pods now.
        let refused = r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default""#;
        assert_eq!(pods(&server, &as_jane).await, (403, refused.to_owned()));
        for (header, refused) in [
            (("Impersonate-Group", "g1"), r#"groups "g1" is forbidden: User "bob" cannot impersonate resource "groups" in API group "" at the cluster scope"#),
            (("Impersonate-Uid", "u1"), r#"uids.authentication.k8s.io "u1" is forbidden: User "bob" cannot impersonate resource "uids" in API group "authentication.k8s.io" at the cluster scope"#),
            (("Impersonate-Extra-Scopes", "v1"), r#"userextras.authentication.k8s.io "v1" is forbidden: User "bob" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope"#),
        ] {
            let headers = [as_jane[0], header];
            assert_eq!(pods(&server, &headers).await, (403, refused.to_owned()));
        }
        let account = [("Impersonate-User", "system:serviceaccount:shop:bot")];
        assert_eq!(
            who(&server, bob(), &account).await,
            json!({
                "username": "system:serviceaccount:shop:bot",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"],
            })
        );
        let nobody = [("Impersonate-Group", "g1")];
        let refused = r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g1"}, Extra:map[string][]string(nil)} without impersonating a user name"#;
        assert_eq!(pods(&server, &nobody).await, (400, refused.to_owned()));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_the_feature_only_the_plain_verb_counts() {
    let off = FeatureGates::default().with(Feature::ConstrainedImpersonation, false);
    with_rbac_and(off, async |server| {
        let rules = json!([
            {"verbs": ["impersonate:user-info"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["impersonate-on:user-info:list"], "apiGroups": [""], "resources": ["pods"]},
        ]);
        allow(&server, "constrained", rules).await;
        let as_jane = [("Impersonate-User", "jane")];
        let refused = r#"users "jane" is forbidden: User "bob" cannot impersonate resource "users" in API group "" at the cluster scope"#;
        assert_eq!(pods(&server, &as_jane).await, (403, refused.to_owned()));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nobody_becomes_a_master_by_a_wildcard_of_a_mode() {
    with_rbac(async |server| {
        let rules = json!([
            {"verbs": ["impersonate:user-info"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["impersonate-on:user-info:list"], "apiGroups": [""], "resources": ["pods"]},
        ]);
        allow(&server, "constrained", rules).await;
        let headers = [("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")];
        let refused = r#"groups.authentication.k8s.io "system:masters" is forbidden: User "bob" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed"#;
        assert_eq!(pods(&server, &headers).await, (403, refused.to_owned()));
        // As jane, bob may list pods if jane may, and nothing else.
        let viewers = [("Impersonate-User", "jane"), ("Impersonate-Group", "viewers")];
        let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "viewers"}]);
        let bound = binding("ClusterRoleBinding", "viewers", "ClusterRole", "view", subjects);
        admin(&server, &format!("{RBAC}/clusterrolebindings"), bound).await;
        settled().await;
        assert_eq!(pods(&server, &viewers).await.0, 200);
        let services = "/api/v1/namespaces/default/services";
        let answer = send_with(&server, bob(), &viewers, Method::GET, services, Value::Null).await;
        let refused = r#"services is forbidden: User "bob" cannot impersonate-on:user-info:list resource "services" in API group "" in the namespace "default""#;
        assert_eq!(code_and_message(answer), (403, refused.to_owned()));
        // A service account is not a user of this mode.
        let account = [("Impersonate-User", "system:serviceaccount:shop:bot")];
        let (code, message) = pods(&server, &account).await;
        assert_eq!(code, 403);
        assert!(message.contains("impersonate-on:serviceaccount:list"), "{message}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_acts_as_its_own_node_only() {
    with_rbac(async |server| {
        let rules = json!([
            {"verbs": ["impersonate:associated-node"], "apiGroups": ["authentication.k8s.io"], "resources": ["nodes"]},
            {"verbs": ["impersonate-on:associated-node:create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
            {"verbs": ["impersonate-on:associated-node:list"], "apiGroups": [""], "resources": ["pods"]},
        ]);
        allow(&server, "agents", rules).await;
        let node = ("authentication.kubernetes.io/node-name".to_owned(), vec!["n1".to_owned()]);
        let agent = || Identity {
            extra: Arc::new([node.clone()].into()),
            ..Identity::new("system:serviceaccount:kube-system:agent", ["devs"])
        };
        let own = [("Impersonate-User", "system:node:n1")];
        assert_eq!(
            who(&server, agent(), &own).await,
            json!({"username": "system:node:n1", "groups": ["system:nodes", "system:authenticated"]})
        );
        let other = [("Impersonate-User", "system:node:n2")];
        let answer = send_with(&server, agent(), &other, Method::GET, PODS, Value::Null).await;
        let (code, message) = code_and_message(answer);
        assert_eq!(code, 403);
        assert!(message.contains("impersonate-on:arbitrary-node:list"), "{message}");
    })
    .await;
}

/// Keeps who did what.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<String>>);

impl AuditSink for Seen {
    fn record(&self, event: AuditEvent) {
        let request = &event.request;
        let by = request.impersonator.as_ref();
        let by = by.map(|by| format!(" by {} ({})", by.identity.user, by.verb)).unwrap_or_default();
        // The server's own controllers watch pods.
        if request.resource() == "pods" && &*request.identity.user != "system:apiserver" {
            let line = format!("{} {}{by}", event.stage.as_str(), request.identity.user);
            self.0.lock().unwrap().push(line);
        }
        if event.stage == Stage::ResponseComplete {
            assert!(event.code.is_some());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_has_both_users() {
    let seen = Arc::new(Seen::default());
    let plane = ControlPlane::builder().simulated(0).rbac().audit(seen.clone()).build();
    let server = plane.server().clone();
    with_person_of(plane, async |_| {
        let headers = [("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")];
        let masters = || Identity::admin();
        let (status, _) =
            send_with(&server, masters(), &headers, Method::GET, PODS, Value::Null).await;
        assert_eq!(status, 200);
        // A master may do everything, so the mode allows it, too.
        let headers = [("Impersonate-User", "jane")];
        let (status, _) =
            send_with(&server, masters(), &headers, Method::GET, PODS, Value::Null).await;
        assert_eq!(status, 403);
    })
    .await;
    assert_eq!(
        *seen.0.lock().unwrap(),
        [
            "RequestReceived system:admin",
            "ResponseComplete jane by system:admin (impersonate)",
            "RequestReceived system:admin",
            "ResponseComplete jane by system:admin (impersonate:user-info)",
        ]
    );
}
