//! kubectl of today: a custom resource from the moment it is defined.

use crate::server::Server;
use network::api::CRD_YAML;

const NETWORK: &str = "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata: {name: 'n'}\nspec: {cidr: 10.0.0.0/8, gateway: 10.0.0.1}\n";

fn with_networks() -> Server {
    let server = Server::start();
    server.file("crd.yaml", CRD_YAML);
    server.file("n.yaml", NETWORK);
    let kubectl = server.kubectl();
    assert!(
        kubectl
            .fails("get networks")
            .contains(r#"the server doesn't have a resource type "networks""#)
    );
    assert_eq!(
        kubectl.ok("apply -f crd.yaml"),
        "customresourcedefinition.apiextensions.k8s.io/networks.samplecrd.k8s.io created\n"
    );
    kubectl.ok("wait --for=condition=Established crd/networks.samplecrd.k8s.io --timeout=10s");
    server
}

#[test]
fn custom_resource_is_served_like_any_other() {
    let server = with_networks();
    let kubectl = server.kubectl();
    assert_eq!(kubectl.ok("apply -f n.yaml"), "network.samplecrd.k8s.io/n created\n");
    assert_eq!(kubectl.ok("apply -f n.yaml"), "network.samplecrd.k8s.io/n unchanged\n");
    let table = kubectl.ok("get net");
    assert!(
        table.starts_with(
            "NAME   CIDR         GATEWAY    READY   AGE\nn      10.0.0.0/8   10.0.0.1"
        ),
        "{table}"
    );
    assert!(kubectl.ok("get all").contains("network.samplecrd.k8s.io/n"), "by category");
    assert_eq!(
        kubectl.ok(r#"patch net n --type merge -p {"spec":{"gateway":"10.0.0.2"}}"#),
        "network.samplecrd.k8s.io/n patched\n"
    );
    assert_eq!(
        kubectl.ok("get net n -o jsonpath={.spec.gateway}/{.metadata.generation}"),
        "10.0.0.2/2"
    );
    kubectl.ok(r#"patch net n --type json -p [{"op":"replace","path":"/spec/gateway","value":"10.0.0.3"}]"#);
    kubectl
        .ok(r#"patch net n --subresource=status --type merge -p {"status":{"cidr":"10.0.0.0/8"}}"#);
    assert_eq!(
        kubectl.ok("get net n -o jsonpath={.status.cidr}/{.metadata.generation}"),
        "10.0.0.0/8/3",
        "status does not step the generation"
    );
    kubectl.ok("label net n a=b");
    assert_eq!(
        kubectl.ok("get networks.samplecrd.k8s.io -l a=b -o name"),
        "network.samplecrd.k8s.io/n\n"
    );
    let explained = kubectl.ok("explain network.spec.cidr");
    assert!(
        explained.contains("CIDR notation") && explained.contains("cidr <string>"),
        "{explained}"
    );
    assert!(kubectl.ok("describe net n").contains("Gateway:  10.0.0.3"));
    assert_eq!(
        kubectl.ok("delete net n"),
        "network.samplecrd.k8s.io \"n\" deleted from default namespace\n"
    );
}

#[test]
fn custom_resource_is_applied_from_the_server_side() {
    let server = with_networks();
    let kubectl = server.kubectl();
    assert_eq!(
        kubectl.ok("apply --server-side -f n.yaml"),
        "network.samplecrd.k8s.io/n serverside-applied\n"
    );
    kubectl
        .ok(r#"patch net n --type merge --field-manager=other -p {"spec":{"gateway":"10.0.0.9"}}"#);
    let conflict = kubectl.fails("apply --server-side -f n.yaml");
    assert!(
        conflict.contains(r#"conflict with "other" using samplecrd.k8s.io/v1: .spec.gateway"#),
        "{conflict}"
    );
    kubectl.ok("apply --server-side --force-conflicts -f n.yaml");
    assert_eq!(kubectl.ok("get net n -o jsonpath={.spec.gateway}"), "10.0.0.1");
}

#[test]
fn schema_refuses_what_it_does_not_allow() {
    let server = with_networks();
    let kubectl = server.kubectl();
    server.file("bad.yaml", "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata: {name: bad}\nspec: {cidr: everything, gateway: 300.0.0.1}\n");
    let said = kubectl.fails("create -f bad.yaml");
    assert!(said.contains(r#"The Network "bad" is invalid"#), "{said}");
    assert!(
        said.contains(r#"spec.cidr: Invalid value: "everything": spec.cidr in body should match"#),
        "{said}"
    );
    assert!(said.contains(r#"spec.gateway: Invalid value: "300.0.0.1": spec.gateway in body must be of type ipv4: "300.0.0.1""#), "{said}");
    server.file("bad.yaml", "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata: {name: bad}\nspec: {cidr: 10.0.0.0/8}\n");
    assert!(kubectl.fails("create -f bad.yaml").contains("spec.gateway: Required value"));
    server.file("bad.yaml", &NETWORK.replace("gateway:", "gatway: x, gateway:"));
    let said = kubectl.fails("create -f bad.yaml");
    assert!(said.contains(r#"unknown field "spec.gatway""#), "{said}");
    kubectl.ok("create -f bad.yaml --validate=false");
    assert_eq!(
        kubectl.ok("get net n -o jsonpath={.spec}"),
        r#"{"cidr":"10.0.0.0/8","gateway":"10.0.0.1"}"#,
        "pruned"
    );
}

#[test]
fn deleting_the_definition_removes_what_it_defined() {
    let server = with_networks();
    let kubectl = server.kubectl();
    kubectl.ok("apply -f n.yaml");
    kubectl.ok("delete crd networks.samplecrd.k8s.io --timeout=30s");
    // kubectl remembers that the resource existed, asks for it and hears otherwise.
    let said = kubectl.fails("get networks");
    assert!(said.contains("the server could not find the requested resource"), "{said}");
    kubectl.ok("apply -f crd.yaml");
    kubectl.ok("wait --for=condition=Established crd/networks.samplecrd.k8s.io --timeout=10s");
    assert_eq!(kubectl.ok("get networks -o name"), "", "a new definition starts empty");
}
