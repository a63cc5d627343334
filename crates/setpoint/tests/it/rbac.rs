//! RBAC over HTTP requests: what roles and bindings allow, reviews, rights that may be given on,
//! aggregated roles.

use crate::plane::with_person_of;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::ApiServer;
use setpoint::registry::{FeatureGates, Identity, RuntimeConfig};
use std::time::Duration;

pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Sends one request as a user.
pub(crate) async fn send(
    server: &ApiServer,
    identity: Identity,
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    send_with(server, identity, &[], method, path, body).await
}

/// Sends one request as a user, with more headers.
pub(crate) async fn send_with(
    server: &ApiServer,
    identity: Identity,
    headers: &[(&str, &str)],
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut request = http::Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(http_body_util::Full::new(bytes::Bytes::from(body))).unwrap();
    request.extensions_mut().insert(identity);
    let response = server.serve(request).await;
    let status = response.status();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

pub(crate) fn bob() -> Identity {
    Identity::new("bob", ["devs", "system:authenticated"])
}

pub(crate) async fn admin(server: &ApiServer, path: &str, body: Value) {
    let (status, answer) = send(server, Identity::admin(), Method::POST, path, body).await;
    assert_eq!(status, 201, "{answer}");
}

pub(crate) fn role(kind: &str, name: &str, rules: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "rules": rules,
    })
}

pub(crate) fn binding(
    kind: &str,
    name: &str,
    role: &str,
    role_name: &str,
    subjects: Value,
) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": role_name},
        "subjects": subjects,
    })
}

pub(crate) fn devs() -> Value {
    json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}])
}

/// Waits, in virtual time, until the authorizer and the controllers have followed a change.
pub(crate) async fn settled() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

pub(crate) async fn with_rbac(test: impl AsyncFnOnce(ApiServer)) {
    with_rbac_and(FeatureGates::default(), test).await;
}

/// The same with these features.
pub(crate) async fn with_rbac_and(features: FeatureGates, test: impl AsyncFnOnce(ApiServer)) {
    let config = RuntimeConfig::with_gates("", features).unwrap();
    let plane = ControlPlane::builder().simulated(0).rbac().runtime_config(config).build();
    let server = plane.server().clone();
    with_person_of(plane, async |_| test(server).await).await;
}

async fn can(server: &ApiServer, verb: &str, resource: &str, namespace: &str) -> Value {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "verb": verb, "resource": resource, "namespace": namespace,
        }},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (status, answer) = send(server, bob(), Method::POST, path, review).await;
    assert_eq!(status, 201, "{answer}");
    answer["status"].clone()
}

/// What the server sets on new objects is removed, as from every other object; the rest is refused.
#[tokio::test(start_paused = true)]
async fn the_metadata_of_a_review_is_empty() {
    with_rbac(async |server| {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        for (metadata, code) in [
            (json!({"uid": "u", "selfLink": "a", "deletionGracePeriodSeconds": 5}), 201),
            (json!({"name": "a"}), 422),
        ] {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "metadata": metadata,
                "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}},
            });
            let (status, answer) = send(&server, bob(), Method::POST, path, review).await;
            assert_eq!(status, code, "{answer}");
            assert!(answer["metadata"]["uid"].is_null(), "{answer}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_allowed_without_a_binding_and_a_binding_allows_at_once() {
    with_rbac(async |server| {
        let pods = "/api/v1/namespaces/default/pods";
        let (status, answer) = send(&server, bob(), Method::GET, pods, Value::Null).await;
        assert_eq!(
            (status.as_u16(), answer["message"].as_str().unwrap()),
            (
                403,
                r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default""#
            )
        );
        // Discovery is allowed by the roles of every cluster.
        assert_eq!(send(&server, bob(), Method::GET, "/api", Value::Null).await.0, 200);
        let (status, _) = send(&server, Identity::anonymous(), Method::GET, "/api", Value::Null).await;
        assert_eq!(status, 403);

        let rules = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]);
        let scope = format!("{RBAC}/namespaces/default");
        admin(&server, &format!("{scope}/roles"), role("Role", "reader", rules)).await;
        let bound = binding("RoleBinding", "readers", "Role", "reader", devs());
        admin(&server, &format!("{scope}/rolebindings"), bound).await;
        settled().await;
        assert_eq!(send(&server, bob(), Method::GET, pods, Value::Null).await.0, 200);
        let allowed = json!({
            "allowed": true,
            "reason": r#"RBAC: allowed by RoleBinding "readers/default" of Role "reader" to Group "devs""#,
        });
        assert_eq!(can(&server, "list", "pods", "default").await, allowed);
        assert_eq!(can(&server, "list", "pods", "kube-system").await, json!({"allowed": false}));
        assert_eq!(can(&server, "delete", "pods", "default").await, json!({"allowed": false}));

        let path = format!("{scope}/rolebindings/readers");
        send(&server, Identity::admin(), Method::DELETE, &path, Value::Null).await;
        settled().await;
        assert_eq!(send(&server, bob(), Method::GET, pods, Value::Null).await.0, 403);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_in_itself() {
    with_rbac(async |server| {
        let get = || send(&server, bob(), Method::GET, "/api/v1/namespaces/default", Value::Null);
        let (status, answer) = get().await;
        assert_eq!(
            (status.as_u16(), answer["message"].as_str().unwrap()),
            (
                403,
                r#"namespaces "default" is forbidden: User "bob" cannot get resource "namespaces" in API group "" in the namespace "default""#
            )
        );
        let bound = binding("RoleBinding", "viewers", "ClusterRole", "view", devs());
        let scope = format!("{RBAC}/namespaces/default");
        admin(&server, &format!("{scope}/rolebindings"), bound).await;
        settled().await;
        assert_eq!(get().await.0, 200);
        let other = "/api/v1/namespaces/kube-system";
        assert_eq!(send(&server, bob(), Method::GET, other, Value::Null).await.0, 403);
        // A review names the namespace itself.
        for (namespace, name, is_allowed) in
            [("", "default", false), ("default", "other", true), ("default", "", true)]
        {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {
                    "verb": "get", "resource": "namespaces", "namespace": namespace, "name": name,
                }},
            });
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            let (_, answer) = send(&server, bob(), Method::POST, path, review).await;
            assert_eq!(answer["status"]["allowed"], is_allowed, "{namespace}/{name}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_path_is_what_its_escapes_stand_for() {
    with_rbac(async |server| {
        for path in ["/vers%69on", "/apis%2Fapps", "/health%7A"] {
            let (status, answer) = send(&server, bob(), Method::GET, path, Value::Null).await;
            assert_eq!(status, 200, "{path}: {answer}");
        }
        let path = "/name%20with%00/x";
        let (_, answer) = send(&server, bob(), Method::GET, path, Value::Null).await;
        assert_eq!(
            answer["message"],
            r#"forbidden: User "bob" cannot get path "/name with\x00/x""#
        );
    })
    .await;
}

/// Bindings of one user: several subjects of one of them are one binding, and roles that do not
/// exist are named.
#[tokio::test(start_paused = true)]
async fn what_a_user_holds_is_told_once_and_with_what_is_missing() {
    with_rbac(async |server| {
        let scope = format!("{RBAC}/namespaces/default");
        let may = json!([
            {"verbs": ["create"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]},
        ]);
        admin(&server, &format!("{scope}/roles"), role("Role", "lead", may)).await;
        let mut both = devs();
        let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"});
        both.as_array_mut().unwrap().push(user);
        for (name, of) in [("leads", "lead"), ("gone", "gone"), ("gone-too", "gone")] {
            let bound = binding("RoleBinding", name, "Role", of, both.clone());
            admin(&server, &format!("{scope}/rolebindings"), bound).await;
        }
        settled().await;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": "default"},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let (_, answer) = send(&server, bob(), Method::POST, path, review).await;
        let rules = answer["status"]["resourceRules"].as_array().unwrap().iter();
        let of_lead = |rule: &&Value| rule["resources"] == json!(["roles", "rolebindings"]);
        assert_eq!(rules.filter(of_lead).count(), 1);
        let missing = r#"role.rbac.authorization.k8s.io "gone" not found"#;
        assert_eq!(answer["status"]["evaluationError"], missing);
        let secrets = "/api/v1/namespaces/default/secrets";
        let (_, answer) = send(&server, bob(), Method::GET, secrets, Value::Null).await;
        assert!(answer["message"].as_str().unwrap().ends_with(&format!(": RBAC: {missing}")));

        let more = json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
        ]);
        let roles = format!("{scope}/roles");
        let (status, answer) =
            send(&server, bob(), Method::POST, &roles, role("Role", "more", more)).await;
        assert_eq!(
            (status.as_u16(), answer["message"].as_str().unwrap().split_once('\n').unwrap().1),
            (
                403,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list" "get"]}; resolution errors: [roles.rbac.authorization.k8s.io "gone" not found]"#
            )
        );
        // Of a kind of role that there is not.
        let bindings = format!("{scope}/rolebindings");
        let other = binding("RoleBinding", "x", "Foo", "lead", devs());
        let (status, answer) = send(&server, bob(), Method::POST, &bindings, other.clone()).await;
        let told = r#"unsupported role reference kind: "Foo""#;
        assert_eq!((status.as_u16(), answer["message"].as_str().unwrap()), (500, told));
        let masters = Identity::admin();
        assert_eq!(send(&server, masters, Method::POST, &bindings, other).await.0, 422);
    })
    .await;
}

/// The right to escalate one role is one to change it: a POST has no name.
#[tokio::test(start_paused = true)]
async fn a_role_that_may_be_escalated_is_not_created_with_rights_that_nobody_holds() {
    with_rbac(async |server| {
        let group = "rbac.authorization.k8s.io";
        let may = json!([
            {"verbs": ["create", "update"], "apiGroups": [group], "resources": ["clusterroles"]},
            {"verbs": ["escalate"], "apiGroups": [group], "resources": ["clusterroles"], "resourceNames": ["x"]},
        ]);
        let roles = format!("{RBAC}/clusterroles");
        admin(&server, &roles, role("ClusterRole", "lead", may)).await;
        let bound = binding("ClusterRoleBinding", "leads", "ClusterRole", "lead", devs());
        admin(&server, &format!("{RBAC}/clusterrolebindings"), bound).await;
        settled().await;
        let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]);
        let x = role("ClusterRole", "x", rules);
        assert_eq!(send(&server, bob(), Method::POST, &roles, x.clone()).await.0, 403);
        admin(&server, &roles, role("ClusterRole", "x", json!([]))).await;
        let path = format!("{roles}/x");
        assert_eq!(send(&server, bob(), Method::PUT, &path, x).await.0, 200);
        // An empty aggregation is refused by validation.
        let mut empty = role("ClusterRole", "y", json!([]));
        empty["aggregationRule"] = json!({});
        assert_eq!(send(&server, bob(), Method::POST, &roles, empty).await.0, 422);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn only_held_rights_can_be_given() {
    with_rbac(async |server| {
        let scope = format!("{RBAC}/namespaces/default");
        let may = json!([
            {"verbs": ["create", "update"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]},
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
        ]);
        admin(&server, &format!("{scope}/roles"), role("Role", "lead", may)).await;
        let bound = binding("RoleBinding", "leads", "Role", "lead", devs());
        admin(&server, &format!("{scope}/rolebindings"), bound).await;
        settled().await;
        let roles = format!("{scope}/roles");
        let held = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        let (status, answer) =
            send(&server, bob(), Method::POST, &roles, role("Role", "held", held)).await;
        assert_eq!(status, 201, "{answer}");
        let more = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]}]);
        let (status, answer) =
            send(&server, bob(), Method::POST, &roles, role("Role", "more", more)).await;
        assert_eq!(
            (status.as_u16(), answer["message"].as_str().unwrap()),
            (
                403,
                "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"bob\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
            )
        );
        let bindings = format!("{scope}/rolebindings");
        let own = binding("RoleBinding", "own", "Role", "lead", devs());
        assert_eq!(send(&server, bob(), Method::POST, &bindings, own).await.0, 201);
        let cluster = binding("RoleBinding", "all", "ClusterRole", "cluster-admin", devs());
        let (status, answer) = send(&server, bob(), Method::POST, &bindings, cluster).await;
        assert_eq!(status, 403, "{answer}");
        assert!(answer["message"].as_str().unwrap().contains("attempting to grant"), "{answer}");
        let gone = binding("RoleBinding", "gone", "Role", "nope", devs());
        let (status, answer) = send(&server, bob(), Method::POST, &bindings, gone).await;
        assert_eq!(
            (status.as_u16(), answer["message"].as_str().unwrap()),
            (404, r#"rolebindings.rbac.authorization.k8s.io "nope" not found"#)
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn reviews_are_answered() {
    with_rbac(async |server| {
        let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let (status, answer) = send(&server, bob(), Method::POST, path, who).await;
        assert_eq!(status, 201, "{answer}");
        assert_eq!(
            answer["status"]["userInfo"],
            json!({"username": "bob", "groups": ["devs", "system:authenticated"]})
        );

        let rules = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": "default"},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let (status, answer) = send(&server, bob(), Method::POST, path, rules.clone()).await;
        assert_eq!((status.as_u16(), &answer["status"]["incomplete"]), (201, &json!(false)));
        let urls = answer["status"]["nonResourceRules"].to_string();
        assert!(urls.contains("/openapi/*"), "{answer}");
        // Who may do everything sees the rules of their other groups, too.
        let (_, answer) = send(&server, Identity::admin(), Method::POST, path, rules).await;
        let urls = answer["status"]["nonResourceRules"].to_string();
        assert!(urls.contains("/openapi/*"), "{answer}");
        assert_eq!(urls.matches(r#""*""#).count(), 2, "one rule with all verbs and paths: {answer}");

        let ask = |spec: Value| json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let masters = ask(json!({
            "user": "x", "groups": ["system:masters"],
            "resourceAttributes": {"verb": "delete", "resource": "nodes"},
        }));
        let (_, answer) = send(&server, Identity::admin(), Method::POST, path, masters).await;
        assert_eq!(answer["status"], json!({"allowed": true}));
        let (status, answer) =
            send(&server, Identity::admin(), Method::POST, path, ask(json!({"user": "x"}))).await;
        assert_eq!(status, 422);
        let message = answer["message"].as_str().unwrap();
        assert!(
            message.ends_with(
                "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
            ),
            "{message}"
        );
        // Only with the right to ask about others.
        let (status, _) = send(&server, bob(), Method::POST, path, ask(json!({}))).await;
        assert_eq!(status, 403);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn aggregated_roles_follow_their_sources() {
    with_rbac(async |server| {
        let mut extra = role(
            "ClusterRole",
            "widgets",
            json!([{"verbs": ["get"], "apiGroups": ["example.dev"], "resources": ["widgets"]}]),
        );
        extra["metadata"]["labels"] =
            json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
        admin(&server, &format!("{RBAC}/clusterroles"), extra).await;
        // A name that is escaped in paths.
        let mut copy = role("ClusterRole", "also views?", json!([]));
        copy["aggregationRule"] = json!({"clusterRoleSelectors": [
            {"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        ]});
        admin(&server, &format!("{RBAC}/clusterroles"), copy).await;
        let bound = binding("ClusterRoleBinding", "viewers", "ClusterRole", "admin", devs());
        admin(&server, &format!("{RBAC}/clusterrolebindings"), bound).await;
        settled().await;
        let widgets = "/apis/example.dev/v1/namespaces/default/widgets";
        let (status, answer) =
            send(&server, bob(), Method::GET, &format!("{widgets}/a"), Value::Null).await;
        // Allowed, and not there: `view` is in `edit`, and `edit` in `admin`.
        assert_eq!(status, 404, "{answer}");
        assert_eq!(can(&server, "create", "deployments", "default").await["allowed"], false);
        let secrets = "/api/v1/namespaces/default/secrets";
        assert_eq!(send(&server, bob(), Method::GET, secrets, Value::Null).await.0, 200);
        assert_eq!(send(&server, bob(), Method::GET, "/api/v1/nodes", Value::Null).await.0, 403);
        let path = format!("{RBAC}/clusterroles/also%20views%3F");
        let (_, copy) = send(&server, Identity::admin(), Method::GET, &path, Value::Null).await;
        let rules = copy["rules"].as_array().unwrap();
        assert!(rules.iter().any(|rule| rule["resources"] == json!(["widgets"])), "{copy}");
        // Without sources, the rules of others stay.
        let own = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        let mut lone = role("ClusterRole", "lone", own.clone());
        lone["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"no": "one"}}]});
        admin(&server, &format!("{RBAC}/clusterroles"), lone).await;
        let mut source = role(
            "ClusterRole",
            "source",
            json!([
                {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]},
            ]),
        );
        source["metadata"]["labels"] = json!({"to": "late"});
        let mut late = role("ClusterRole", "late", json!([]));
        late["aggregationRule"] =
            json!({"clusterRoleSelectors": [{"matchLabels": {"to": "late"}}]});
        admin(&server, &format!("{RBAC}/clusterroles"), late).await;
        admin(&server, &format!("{RBAC}/clusterroles"), source).await;
        settled().await;
        let get = |name: &str| {
            let path = format!("{RBAC}/clusterroles/{name}");
            let server = server.clone();
            async move { send(&server, Identity::admin(), Method::GET, &path, Value::Null).await.1 }
        };
        assert_eq!(get("lone").await["rules"], own);
        assert_eq!(get("late").await["rules"][0]["resources"], json!(["nodes"]));
        let path = format!("{RBAC}/clusterroles/source");
        send(&server, Identity::admin(), Method::DELETE, &path, Value::Null).await;
        settled().await;
        assert_eq!(get("late").await["rules"], Value::Null);
    })
    .await;
}
