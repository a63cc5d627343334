//! A kubectl of 2020 still works: it knows no discovery in one document, no streaming list and reads the older schema document.

use crate::server::Server;
use network::api::CRD_YAML;

#[test]
fn old_client_does_the_everyday_things() {
    let server = Server::start();
    let kubectl = server.kubectl_old();
    assert!(kubectl.ok("version --short").contains("Server Version: v1.36"));
    assert!(kubectl.ok("api-resources").contains("deployments"));
    server
        .file("cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {a: '1'}\n");
    assert_eq!(kubectl.ok("apply -f cm.yaml"), "configmap/cm created\n");
    assert_eq!(kubectl.ok("apply -f cm.yaml"), "configmap/cm unchanged\n");
    assert!(kubectl.ok("get cm cm").starts_with("NAME   DATA   AGE\ncm     1 "));
    kubectl.ok("create deployment web --image=nginx");
    kubectl.ok("scale deployment web --replicas=3");
    kubectl.ok("set image deployment/web nginx=nginx:2");
    assert_eq!(kubectl.ok("get deploy web -o jsonpath={.spec.replicas}"), "3");
    kubectl.ok(r#"patch deploy web -p {"spec":{"replicas":1}}"#);
    assert!(kubectl.ok("describe deploy web").contains("RollingUpdate"));
    assert!(kubectl.ok("explain deployment.spec.strategy").contains("rollingUpdate"));
    assert_eq!(kubectl.ok("delete deploy web"), "deployment.apps \"web\" deleted\n");
    assert_eq!(
        kubectl.ok("apply --server-side --field-manager=x --force-conflicts -f cm.yaml"),
        "configmap/cm serverside-applied\n"
    );
    kubectl.ok("create namespace n");
    assert_eq!(kubectl.ok("delete namespace n --timeout=30s"), "namespace \"n\" deleted\n");
}

#[test]
fn old_client_validates_with_the_older_schema_document() {
    let server = Server::start();
    let kubectl = server.kubectl_old();
    server.file(
        "typo.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndatta: {a: '1'}\n",
    );
    let said = kubectl.fails("apply -f typo.yaml");
    assert!(said.contains(r#"unknown field "datta" in io.k8s.api.core.v1.ConfigMap"#), "{said}");
}

#[test]
fn old_client_uses_custom_resources() {
    let server = Server::start();
    let kubectl = server.kubectl_old();
    server.file("crd.yaml", CRD_YAML);
    kubectl.ok("apply -f crd.yaml");
    kubectl.ok("wait --for=condition=Established crd/networks.samplecrd.k8s.io --timeout=10s");
    server.file("n.yaml", "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata: {name: 'n'}\nspec: {cidr: 10.0.0.0/8, gateway: 10.0.0.1}\n");
    kubectl.ok("apply -f n.yaml");
    assert!(kubectl.ok("get net").contains("10.0.0.0/8"));
    assert_eq!(kubectl.ok("delete net n"), "network.samplecrd.k8s.io \"n\" deleted\n");
}
