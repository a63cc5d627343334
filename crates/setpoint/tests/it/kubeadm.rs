//! The objects of a cluster that kubeadm has made, with the rights that its users get by them.

use crate::rbac::{admin, binding, send, settled, with_rbac};
use http::Method;
use serde_json::{Value, json};
use setpoint::registry::Identity;

const MANIFESTS: &str = include_str!("kubeadm/manifests.yaml");
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The collection of an object.
fn collection(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{kind}s"),
        None => format!("{root}/{kind}s"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_users_of_a_new_cluster_may_do_their_work_and_nothing_else() {
    with_rbac(async |server| {
        // The first administrator is a master, and binds the group of the others.
        let admins = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "kubeadm:cluster-admins"}]);
        let bound = binding("ClusterRoleBinding", "kubeadm:cluster-admins", "ClusterRole", "cluster-admin", admins);
        admin(&server, &format!("{RBAC}/clusterrolebindings"), bound).await;
        settled().await;
        let operator = || Identity::new("kubernetes-admin", ["kubeadm:cluster-admins", "system:authenticated"]);
        for document in MANIFESTS.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            let path = collection(&object);
            let (code, answer) = send(&server, operator(), Method::POST, &path, object).await;
            assert_eq!(code, 201, "{path}: {answer}");
        }
        settled().await;

        let account = |name: &str| {
            Identity::new(
                &format!("system:serviceaccount:kube-system:{name}"),
                ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
            )
        };
        let joining = || {
            Identity::new(
                "system:bootstrap:abcdef",
                ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"],
            )
        };
        let agent = || Identity::new("system:node:n1", ["system:nodes", "system:authenticated"]);
        let user = |name: &str| Identity::new(name, ["system:authenticated"]);
        let system = "/api/v1/namespaces/kube-system";
        let public = "/api/v1/namespaces/kube-public";
        let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        for (who, method, path, code) in [
            (Identity::anonymous(), Method::GET, format!("{public}/configmaps/cluster-info"), 200),
            (Identity::anonymous(), Method::GET, format!("{public}/configmaps"), 403),
            (Identity::anonymous(), Method::GET, format!("{system}/configmaps/kubeadm-config"), 403),
            (joining(), Method::GET, format!("{system}/configmaps/kubeadm-config"), 200),
            (joining(), Method::GET, format!("{system}/configmaps/kubelet-config"), 200),
            (joining(), Method::GET, format!("{system}/configmaps/kube-proxy"), 200),
            (joining(), Method::GET, "/api/v1/nodes/n1".to_owned(), 404),
            // Allowed, and invalid.
            (joining(), Method::POST, requests.to_owned(), 422),
            (joining(), Method::GET, requests.to_owned(), 200),
            (joining(), Method::GET, "/api/v1/nodes".to_owned(), 403),
            (joining(), Method::GET, format!("{system}/secrets/bootstrap-token-abcdef"), 403),
            (agent(), Method::GET, format!("{system}/configmaps/kubelet-config"), 200),
            (agent(), Method::GET, format!("{system}/secrets"), 403),
            (account("kube-proxy"), Method::GET, "/api/v1/services".to_owned(), 200),
            (account("kube-proxy"), Method::GET, "/apis/discovery.k8s.io/v1/endpointslices?watch=true&timeoutSeconds=1".to_owned(), 200),
            (account("kube-proxy"), Method::GET, format!("{system}/secrets"), 403),
            (account("coredns"), Method::GET, "/api/v1/pods".to_owned(), 200),
            (account("coredns"), Method::GET, "/api/v1/namespaces/default/pods/a".to_owned(), 403),
            (account("coredns"), Method::DELETE, "/api/v1/namespaces/default/pods/a".to_owned(), 403),
            (account("default"), Method::GET, "/api/v1/pods".to_owned(), 403),
            (user("system:kube-scheduler"), Method::GET, "/api/v1/pods".to_owned(), 200),
            (user("system:kube-scheduler"), Method::GET, "/api/v1/secrets".to_owned(), 403),
            (user("system:kube-controller-manager"), Method::GET, "/api/v1/secrets".to_owned(), 200),
            (user("system:kube-controller-manager"), Method::DELETE, "/api/v1/namespaces/default/pods/a".to_owned(), 403),
        ] {
            let body = if method == Method::POST {
                json!({"metadata": {"name": "n1"}, "spec": {"request": "eA==", "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["client auth"]}})
            } else {
                Value::Null
            };
            let name = who.user.clone();
            let (status, answer) = send(&server, who, method.clone(), &path, body).await;
            assert_eq!(status.as_u16(), code, "{name}: {method} {path}: {answer}");
        }
        // Controllers run as accounts of their own.
        let token = format!("{system}/serviceaccounts/kube-proxy/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
        let manager = user("system:kube-controller-manager");
        let (code, answer) = send(&server, manager, Method::POST, &token, request.clone()).await;
        assert_eq!(code, 201, "{answer}");
        let scheduler = user("system:kube-scheduler");
        let (code, _) = send(&server, scheduler, Method::POST, &token, request).await;
        assert_eq!(code, 403);
        // What the manifests make works: the addons' pods can be made.
        let set = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy";
        let (code, found) = send(&server, operator(), Method::GET, set, Value::Null).await;
        assert_eq!((code.as_u16(), &found["spec"]["template"]["spec"]["hostNetwork"]), (200, &json!(true)));
    })
    .await;
}
