//! Known ways to get more rights than one has. Each is refused.

use crate::rbac::{admin, binding, bob, devs, role, send, send_with, settled, with_rbac};
use http::Method;
use serde_json::{Value, json};
use setpoint::apiserver::ApiServer;
use setpoint::registry::Identity;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";
const CORE: &str = "/api/v1/namespaces/default";

/// Gives bob's group a ClusterRole with these rules, everywhere.
async fn allow(server: &ApiServer, name: &str, rules: Value) {
    admin(server, &format!("{RBAC}/clusterroles"), role("ClusterRole", name, rules)).await;
    let bound = binding("ClusterRoleBinding", name, "ClusterRole", name, devs());
    admin(server, &format!("{RBAC}/clusterrolebindings"), bound).await;
    settled().await;
}

/// What bob tries, and the code of the answer.
struct Attempt {
    what: &'static str,
    method: Method,
    path: String,
    body: Value,
    code: u16,
}

fn attempt(what: &'static str, method: Method, path: String, body: Value, code: u16) -> Attempt {
    Attempt { what, method, path, body, code }
}

/// Sends a patch as bob; returns its code.
async fn patch(server: &ApiServer, path: &str, kind: &str, body: &Value) -> u16 {
    let body = http_body_util::Full::new(bytes::Bytes::from(body.to_string()));
    let request = http::Request::patch(path).header("content-type", kind);
    let mut request = request.body(body).unwrap();
    request.extensions_mut().insert(bob());
    server.serve(request).await.status().as_u16()
}

async fn try_all(server: &ApiServer, attempts: Vec<Attempt>) {
    for Attempt { what, method, path, body, code } in attempts {
        let (status, answer) = send(server, bob(), method.clone(), &path, body).await;
        assert_eq!(status.as_u16(), code, "{what}: {method} {path}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wildcard_covers_its_own_place_only_and_is_not_given_by_who_has_its_parts() {
    with_rbac(async |server| {
        allow(
            &server,
            "parts",
            json!([
                // Everything of one group, one subresource of everything, one verb of a path.
                {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*"]},
                {"verbs": ["get"], "apiGroups": ["*"], "resources": ["*/status"]},
                {"verbs": ["get"], "nonResourceURLs": ["/metrics/*"]},
                {"verbs": ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"],
                    "apiGroups": [""], "resources": ["configmaps"]},
                {"verbs": ["create", "update", "patch"], "apiGroups": [GROUP], "resources": ["clusterroles", "clusterrolebindings"]},
            ]),
        )
        .await;
        let roles = format!("{RBAC}/clusterroles");
        let give = |what: &'static str, rule: Value, code: u16| {
            attempt(what, Method::POST, roles.clone(), role("ClusterRole", what, json!([rule])), code)
        };
        try_all(
            &server,
            vec![
                attempt("another group", Method::GET, format!("{CORE}/secrets"), Value::Null, 403),
                attempt("its own group", Method::GET, "/apis/apps/v1/namespaces/default/deployments".into(), Value::Null, 200),
                attempt("the object of a subresource", Method::GET, format!("{CORE}/pods/x"), Value::Null, 403),
                attempt("the subresource", Method::GET, format!("{CORE}/pods/x/status"), Value::Null, 404),
                attempt("the path above", Method::GET, "/metrics".into(), Value::Null, 403),
                attempt("a path beside", Method::GET, "/metricsx".into(), Value::Null, 403),
                give("every-verb", json!({"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"]}), 403),
                give("every-group", json!({"verbs": ["get"], "apiGroups": ["*"], "resources": ["configmaps"]}), 403),
                give("every-resource", json!({"verbs": ["get"], "apiGroups": [""], "resources": ["*"]}), 403),
                give("every-name", json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["*"]}), 403),
                give("every-path", json!({"verbs": ["get"], "nonResourceURLs": ["*"]}), 403),
                give("a-wider-path", json!({"verbs": ["get"], "nonResourceURLs": ["/metrics*"]}), 403),
                give("every-subresource", json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/*"]}), 403),
                give("within-a-wildcard", json!({"verbs": ["delete"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a"]}), 201),
                give("a-narrower-path", json!({"verbs": ["get"], "nonResourceURLs": ["/metrics/x"]}), 201),
            ],
        )
        .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn bind_and_escalate_are_rights_on_the_role_that_they_name() {
    with_rbac(async |server| {
        let secrets = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]);
        for name in ["one", "two"] {
            admin(&server, &format!("{RBAC}/clusterroles"), role("ClusterRole", name, secrets.clone())).await;
        }
        allow(
            &server,
            "binder",
            json!([
                {"verbs": ["create", "update", "patch", "get"], "apiGroups": [GROUP],
                    "resources": ["clusterroles", "clusterrolebindings", "roles", "rolebindings"]},
                {"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["one"]},
                {"verbs": ["escalate"], "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["two"]},
            ]),
        )
        .await;
        let bindings = format!("{RBAC}/clusterrolebindings");
        let local = format!("{RBAC}/namespaces/default/rolebindings");
        let bind = |name: &str, role: &str| binding("ClusterRoleBinding", name, "ClusterRole", role, devs());
        let more = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
        let path = |name: &str| format!("{RBAC}/clusterroles/{name}");
        try_all(
            &server,
            vec![
                attempt("a role of another name", Method::POST, bindings.clone(), bind("b2", "two"), 403),
                attempt("a Role of the same name", Method::POST, local.clone(), binding("RoleBinding", "b3", "Role", "one", devs()), 404),
                attempt("cluster-admin", Method::POST, bindings.clone(), bind("b4", "cluster-admin"), 403),
                attempt("cluster-admin in a namespace", Method::POST, local, binding("RoleBinding", "b5", "ClusterRole", "cluster-admin", devs()), 403),
                attempt("its role", Method::POST, bindings.clone(), bind("b1", "one"), 201),
                attempt("another role in the binding", Method::PUT, format!("{bindings}/b1"), bind("b1", "cluster-admin"), 403),
                attempt("more rules in a role that may be bound", Method::PUT, path("one"), role("ClusterRole", "one", more.clone()), 403),
                attempt("more rules in its own role", Method::PUT, path("binder"), role("ClusterRole", "binder", more.clone()), 403),
                // Who may escalate one role gives it anything, but cannot bind it.
                attempt("more rules in its role", Method::PUT, path("two"), role("ClusterRole", "two", more.clone()), 200),
                attempt("that role", Method::POST, bindings.clone(), bind("b6", "two"), 403),
                attempt("a new role", Method::POST, format!("{RBAC}/clusterroles"), role("ClusterRole", "new", more), 403),
            ],
        )
        .await;
        // By apply and by patch it is no different.
        let applied = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": "binder"},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}],
        });
        let apply = format!("{}?fieldManager=bob&force=true", path("binder"));
        assert_eq!(patch(&server, &apply, "application/apply-patch+yaml", &applied).await, 403);
        let merge = "application/merge-patch+json";
        assert_eq!(patch(&server, &path("binder"), merge, &applied).await, 403);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn aggregated_roles_take_in_nothing_that_their_writer_lacks() {
    with_rbac(async |server| {
        let secrets = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]);
        admin(&server, &format!("{RBAC}/clusterroles"), role("ClusterRole", "strong", secrets.clone())).await;
        allow(
            &server,
            "writer",
            json!([{"verbs": ["create", "update", "patch"], "apiGroups": [GROUP], "resources": ["clusterroles"]}]),
        )
        .await;
        let label = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
        let labelled = |name: &str, rules: Value| {
            let mut role = role("ClusterRole", name, rules);
            role["metadata"]["labels"] = label.clone();
            role
        };
        let mut aggregating = role("ClusterRole", "all", Value::Null);
        aggregating["aggregationRule"] =
            json!({"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]});
        let roles = format!("{RBAC}/clusterroles");
        try_all(
            &server,
            vec![
                attempt("a source with more rights", Method::POST, roles.clone(), labelled("source", secrets.clone()), 403),
                attempt("a strong role as source", Method::PUT, format!("{roles}/strong"), labelled("strong", secrets), 403),
                attempt("a rule that gathers", Method::POST, roles.clone(), aggregating.clone(), 403),
                attempt("a gathering rule in an empty role", Method::POST, roles.clone(), role("ClusterRole", "all", json!([])), 201),
                attempt("and then in it", Method::PUT, format!("{roles}/all"), aggregating, 403),
            ],
        )
        .await;
        // The strongest of all, by its label alone.
        let labels = json!({"metadata": {"labels": label}});
        let merge = "application/merge-patch+json";
        assert_eq!(patch(&server, &format!("{roles}/cluster-admin"), merge, &labels).await, 403);
        // What collects garbage may be set by whoever may write.
        let finalizers = json!({"metadata": {"finalizers": ["ex.io/stay"]}});
        assert_eq!(patch(&server, &format!("{roles}/strong"), merge, &finalizers).await, 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nobody_acts_as_who_they_may_not_be() {
    with_rbac(async |server| {
        allow(
            &server,
            "actor",
            json!([
                {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]},
                {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["devs"]},
            ]),
        )
        .await;
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let as_who = async |headers: &[(&str, &str)]| {
            send_with(&server, bob(), headers, Method::POST, path, review.clone()).await.0.as_u16()
        };
        for (what, headers, code) in [
            ("a user", vec![("Impersonate-User", "jane")], 201),
            ("its group", vec![("Impersonate-User", "jane"), ("Impersonate-Group", "devs")], 201),
            ("the masters", vec![("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")], 403),
            (
                "the masters behind a group",
                vec![("Impersonate-User", "jane"), ("Impersonate-Group", "devs"), ("Impersonate-Group", "system:masters")],
                403,
            ),
            ("a service account by its name", vec![("Impersonate-User", "system:serviceaccount:kube-system:x")], 403),
            ("a uid", vec![("Impersonate-User", "jane"), ("Impersonate-Uid", "1")], 403),
            ("scopes", vec![("Impersonate-User", "jane"), ("Impersonate-Extra-Scopes", "all")], 403),
            ("a group alone", vec![("Impersonate-Group", "system:masters")], 400),
        ] {
            assert_eq!(as_who(&headers).await, code, "{what}");
        }
        // Headers of a front proxy mean nothing without its certificate.
        let headers = [("X-Remote-User", "root"), ("X-Remote-Group", "system:masters")];
        let (_, answer) =
            send_with(&server, bob(), &headers, Method::POST, path, review.clone()).await;
        assert_eq!(answer["status"]["userInfo"]["username"], "bob");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_verb_is_not_another_one_in_disguise() {
    with_rbac(async |server| {
        allow(
            &server,
            "some",
            json!([
                {"verbs": ["list", "delete", "create", "patch"], "apiGroups": [""], "resources": ["configmaps"]},
                {"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "serviceaccounts", "nodes"]},
                {"verbs": ["update", "patch"], "apiGroups": [""], "resources": ["pods/status", "nodes/status"]},
                {"verbs": ["create"], "apiGroups": ["apps"], "resources": ["deployments"]},
            ]),
        )
        .await;
        let maps = format!("{CORE}/configmaps");
        let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        try_all(
            &server,
            vec![
                attempt("list", Method::GET, maps.clone(), Value::Null, 200),
                attempt("watch as list", Method::GET, format!("{maps}?watch=true"), Value::Null, 403),
                attempt("watch as list by its number", Method::GET, format!("{maps}?watch=1"), Value::Null, 403),
                attempt("watch of one", Method::GET, format!("{maps}?watch=true&fieldSelector=metadata.name%3Da"), Value::Null, 403),
                attempt("watch by its old path", Method::GET, "/api/v1/watch/namespaces/default/configmaps".into(), Value::Null, 403),
                attempt("watch of one by its old path", Method::GET, "/api/v1/watch/namespaces/default/configmaps/a".into(), Value::Null, 403),
                attempt("get as list", Method::GET, format!("{maps}/a"), Value::Null, 403),
                attempt("deletecollection as delete", Method::DELETE, maps.clone(), Value::Null, 403),
                attempt("deletecollection with a name", Method::DELETE, format!("{maps}?fieldSelector=metadata.name%3Da"), Value::Null, 403),
                attempt("create", Method::POST, maps.clone(), map.clone(), 201),
                attempt("update as create", Method::PUT, format!("{maps}/a"), map, 403),
                attempt("exec as get", Method::GET, format!("{CORE}/pods/x/exec?command=sh"), Value::Null, 403),
                attempt("attach as get", Method::GET, format!("{CORE}/pods/x/attach"), Value::Null, 403),
                attempt("portforward as get", Method::GET, format!("{CORE}/pods/x/portforward"), Value::Null, 403),
                attempt("proxy as get", Method::GET, format!("{CORE}/pods/x/proxy"), Value::Null, 403),
                attempt("proxy of a node as get", Method::GET, "/api/v1/nodes/x/proxy/run".into(), Value::Null, 403),
                attempt("binding as create", Method::POST, format!("{CORE}/pods/x/binding"), json!({}), 403),
                attempt("eviction as create", Method::POST, format!("{CORE}/pods/x/eviction"), json!({}), 403),
                attempt("token as get", Method::POST, format!("{CORE}/serviceaccounts/default/token"), json!({}), 403),
                attempt("the spec as status", Method::PUT, format!("{CORE}/pods/x"), json!({}), 403),
                attempt("ephemeral containers as status", Method::PATCH, format!("{CORE}/pods/x/ephemeralcontainers"), json!({}), 403),
                attempt("resize as status", Method::PATCH, format!("{CORE}/pods/x/resize"), json!({}), 403),
                attempt("scale as create", Method::PUT, "/apis/apps/v1/namespaces/default/deployments/x/scale".into(), json!({}), 403),
            ],
        )
        .await;
        // A stream over WebSocket is authorized like any request, before it is one.
        let upgrade = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "v5.channel.k8s.io"),
        ];
        for path in ["pods/x/exec?command=sh", "pods/x/attach", "pods/x/portforward?ports=80", "configmaps?watch=true"] {
            let path = format!("{CORE}/{path}");
            let (code, _) = send_with(&server, bob(), &upgrade, Method::GET, &path, Value::Null).await;
            assert_eq!(code, 403, "{path}");
        }
        // Nor does a token in the protocols' header help that nobody knows.
        let token = [("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io")];
        let mut request = http::Request::get("/healthz").body(http_body_util::Full::new(bytes::Bytes::new())).unwrap();
        for (name, value) in upgrade[..4].iter().chain(&token) {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        assert_eq!(server.serve(request).await.status(), 401);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_writes_a_status_writes_nothing_else() {
    with_rbac(async |server| {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "a"}]}});
        admin(&server, &format!("{CORE}/pods"), pod).await;
        let rules = json!([{"verbs": ["update", "patch"], "apiGroups": [""], "resources": ["pods/status"]}]);
        allow(&server, "status", rules).await;
        let path = format!("{CORE}/pods/p");
        let (_, mut stored) = send(&server, Identity::admin(), Method::GET, &path, Value::Null).await;
        stored["spec"]["containers"][0]["image"] = "evil".into();
        stored["metadata"]["finalizers"] = json!(["ex.io/stay"]);
        stored["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}]);
        stored["status"]["message"] = "seen".into();
        let (code, answer) = send(&server, bob(), Method::PUT, &format!("{path}/status"), stored).await;
        assert_eq!(code, 200, "{answer}");
        let (_, now) = send(&server, Identity::admin(), Method::GET, &path, Value::Null).await;
        assert_eq!(now["spec"]["containers"][0]["image"], "a");
        assert_eq!(now["metadata"]["ownerReferences"], Value::Null);
        assert_eq!(now["status"]["message"], "seen");
    })
    .await;
}
