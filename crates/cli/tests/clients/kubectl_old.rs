//! A kubectl of 2020 still works. It does not know aggregated discovery or streaming lists, and
//! reads the older schema document.

use crate::kubectl::make_executable;
use crate::server::{Lines, Server};
use network::api::CRD_YAML;

#[test]
fn old_client_does_common_operations() {
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

#[test]
fn old_client_changes_watches_and_deletes() {
    let server = Server::start();
    let kubectl = server.kubectl_old();
    assert_eq!(kubectl.ok("create configmap cm --from-literal=a=1"), "configmap/cm created\n");
    let watch = Lines::of(kubectl.command("get cm cm -w -o jsonpath={.data}{\"\\n\"}"));
    assert_eq!(watch.next(), r#"{"a":"1"}"#);
    assert_eq!(
        kubectl.ok(r#"patch cm cm --type merge -p {"data":{"a":"2"}}"#),
        "configmap/cm patched\n"
    );
    assert_eq!(watch.next(), r#"{"a":"2"}"#);
    kubectl.ok(r#"patch cm cm --type json -p [{"op":"add","path":"/data/b","value":"3"}]"#);
    assert_eq!(watch.next(), r#"{"a":"2","b":"3"}"#);
    drop(watch);
    kubectl.ok("label cm cm color=red");
    kubectl.ok("annotate cm cm note=x");
    assert_eq!(kubectl.ok("get cm -l color=red -o name"), "configmap/cm\n");
    let editor = server.file("editor", "#!/bin/sh\nsed -i 's/a: \"2\"/a: edited/' \"$1\"\n");
    make_executable(&editor);
    let edited = kubectl.command("edit cm cm").env("EDITOR", &editor).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&edited.stdout), "configmap/cm edited\n");
    assert!(kubectl.ok("describe cm cm").contains("a:\n----\nedited"));
    server.file(
        "cm.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {a: replaced}\n",
    );
    assert_eq!(kubectl.command("diff -f cm.yaml").output().unwrap().status.code(), Some(1));
    assert_eq!(kubectl.ok("replace -f cm.yaml"), "configmap/cm replaced\n");
    for output in ["yaml", "json", "wide", "name", "custom-columns=A:.data.a"] {
        assert!(!kubectl.ok(&format!("get cm cm -o {output}")).is_empty());
    }
    assert!(kubectl.ok("get all,ns -A").contains("service/kubernetes"));
    assert!(kubectl.ok("api-versions").contains("apps/v1"));
    assert!(kubectl.ok("cluster-info").contains(&server.url));
    assert!(kubectl.ok("explain pod.spec.containers --recursive").contains("imagePullPolicy"));
    kubectl.ok("create secret generic s --from-literal=k=v");
    kubectl.ok("run p --image=i");
    for cascade in ["background", "foreground", "orphan"] {
        kubectl.ok("create deployment web --image=i");
        kubectl.ok(&format!("delete deploy web --cascade={cascade} --timeout=30s"));
        assert!(kubectl.fails("get deploy web").contains("NotFound"), "{cascade}");
    }
    kubectl.ok("delete pod p");
    kubectl.ok("delete cm,secret --all");
    // The CA of each namespace comes back.
    assert_eq!(kubectl.ok("get secret,pod -o name"), "");
}
