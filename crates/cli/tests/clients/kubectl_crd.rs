//! Current kubectl: the life of a custom resource, starting with its definition.

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
fn custom_resource_supports_server_side_apply() {
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
fn schema_violations_are_refused() {
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
fn deleting_the_definition_removes_its_objects() {
    let server = with_networks();
    let kubectl = server.kubectl();
    kubectl.ok("apply -f n.yaml");
    kubectl.ok("delete crd networks.samplecrd.k8s.io --timeout=30s");
    // kubectl remembers that the resource existed, requests it and gets an error.
    let said = kubectl.fails("get networks");
    assert!(said.contains("the server could not find the requested resource"), "{said}");
    kubectl.ok("apply -f crd.yaml");
    kubectl.ok("wait --for=condition=Established crd/networks.samplecrd.k8s.io --timeout=10s");
    assert_eq!(kubectl.ok("get networks -o name"), "", "a new definition starts empty");
}

#[test]
fn children_of_a_custom_owner_are_deleted_by_each_cascade() {
    let server = with_networks();
    let kubectl = server.kubectl();
    for cascade in ["background", "foreground", "orphan"] {
        kubectl.ok("apply -f n.yaml");
        let uid = kubectl.ok("get net n -o jsonpath={.metadata.uid}");
        server.file(
            "children.yaml",
            &format!(
                "apiVersion: v1\nkind: List\nitems:\n\
                 - apiVersion: v1\n  kind: ConfigMap\n  metadata: &meta {{name: child, ownerReferences: [{{apiVersion: samplecrd.k8s.io/v1, kind: Network, name: 'n', uid: {uid}, blockOwnerDeletion: true}}]}}\n\
                 - apiVersion: samplecrd.k8s.io/v1\n  kind: Network\n  metadata: *meta\n  spec: {{cidr: 10.1.0.0/16, gateway: 10.1.0.1}}\n"
            ),
        );
        kubectl.ok("apply -f children.yaml");
        kubectl.ok(&format!("delete net n --cascade={cascade} --timeout=30s"));
        assert!(kubectl.fails("get net n").contains("NotFound"), "{cascade}");
        match cascade {
            "background" => {
                kubectl.ok("wait --for=delete cm/child net/child --timeout=30s");
            }
            "foreground" => {
                assert_eq!(kubectl.ok("get net -o name"), "");
                assert!(kubectl.fails("get cm child").contains("NotFound"));
            }
            _ => {
                let owners =
                    "get cm/child net/child -o jsonpath=[{.items[*].metadata.ownerReferences}]";
                kubectl.eventually(owners, |said| said == "[]");
            }
        }
    }
}

#[test]
fn custom_resources_are_deleted_with_their_namespace_once_released() {
    let server = with_networks();
    let kubectl = server.kubectl();
    kubectl.ok("create namespace tenant");
    server.file(
        "held.yaml",
        &NETWORK.replace("name: 'n'", "name: 'n', finalizers: [example.com/hold]"),
    );
    kubectl.ok("-n tenant apply -f held.yaml");
    kubectl.ok("delete namespace tenant --wait=false");
    kubectl.eventually("get ns tenant -o jsonpath={.status.conditions[?(@.type==\"NamespaceFinalizersRemaining\")].message}", |said| {
        said.contains("example.com/hold in 1 resource instances")
    });
    assert!(kubectl.ok("get ns tenant").contains("Terminating"));
    kubectl.ok(r#"-n tenant patch net n --type merge -p {"metadata":{"finalizers":null}}"#);
    kubectl.ok("wait --for=delete ns/tenant --timeout=30s");
}

#[test]
fn definition_waits_for_held_objects_and_ends_watches() {
    let server = with_networks();
    let kubectl = server.kubectl();
    server.file(
        "held.yaml",
        &NETWORK.replace("name: 'n'", "name: 'n', finalizers: [example.com/hold]"),
    );
    kubectl.ok("apply -f held.yaml");
    let mut watch = std::process::Command::new("curl");
    watch.args(["-sN", &format!("{}/apis/samplecrd.k8s.io/v1/networks?watch=true", server.plain)]);
    let watch = watch.stdout(std::process::Stdio::piped()).spawn().unwrap();
    kubectl.ok("delete crd networks.samplecrd.k8s.io --wait=false");
    kubectl.eventually("get crd networks.samplecrd.k8s.io -o jsonpath={.status.conditions[?(@.type==\"Terminating\")].status}", |said| said == "True");
    let said = kubectl.fails("create -f n.yaml");
    assert!(
        said.contains("create not allowed while custom resource definition is terminating")
            || said.contains("not allowed"),
        "{said}"
    );
    kubectl.ok(r#"patch net n --type merge -p {"metadata":{"finalizers":null}}"#);
    kubectl.ok("wait --for=delete crd/networks.samplecrd.k8s.io --timeout=30s");
    let seen = String::from_utf8(watch.wait_with_output().unwrap().stdout).unwrap();
    let types: Vec<&str> = seen.lines().map(|line| line.split('"').nth(3).unwrap()).collect();
    assert_eq!((types.first(), types.last()), (Some(&"ADDED"), Some(&"DELETED")), "{seen}");
}

#[test]
fn changed_definition_is_followed() {
    let server = with_networks();
    let kubectl = server.kubectl();
    kubectl.ok("apply -f n.yaml");
    let crd = "crd networks.samplecrd.k8s.io";
    kubectl.ok(&format!(r#"patch {crd} --type json -p [{{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/mtu","value":{{"type":"integer","default":1500,"minimum":576}}}},{{"op":"add","path":"/spec/versions/0/additionalPrinterColumns/-","value":{{"name":"Mtu","type":"integer","jsonPath":".spec.mtu"}}}},{{"op":"add","path":"/spec/names/shortNames/-","value":"nw"}}]"#));
    kubectl.eventually("get nw n -o jsonpath={.spec.mtu}", |said| said == "1500");
    kubectl.eventually("get net n", |said| {
        said.lines().next().is_some_and(|line| line.contains("MTU")) && said.contains("1500")
    });
    kubectl.eventually("explain network.spec.mtu", |said| said.contains("mtu <integer>"));
    let said = kubectl.fails(r#"patch net n --type merge -p {"spec":{"mtu":100}}"#);
    assert!(
        said.contains(
            "spec.mtu: Invalid value: 100: spec.mtu in body should be greater than or equal to 576"
        ),
        "{said}"
    );
    assert_eq!(
        kubectl.ok(r#"patch net n --type merge -p {"spec":{"mtu":9000}}"#),
        "network.samplecrd.k8s.io/n patched\n"
    );
    // A version that is no longer served.
    kubectl.ok(&format!(r#"patch {crd} --type json -p [{{"op":"add","path":"/spec/versions/-","value":{{"name":"v2","served":true,"storage":false,"schema":{{"openAPIV3Schema":{{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}}}]"#));
    kubectl.eventually(
        "get networks.v2.samplecrd.k8s.io n -o jsonpath={.apiVersion}/{.spec.mtu}",
        |said| said == "samplecrd.k8s.io/v2/9000",
    );
    kubectl.ok(&format!(r#"patch {crd} --type json -p [{{"op":"replace","path":"/spec/versions/1/served","value":false}}]"#));
    kubectl.eventually("get --raw /apis/samplecrd.k8s.io/v2/networks", |said| {
        said.contains("could not find the requested resource")
    });
}

/// Two definitions: one with a schema, one that accepts anything.
const EXPLAINED: &str = r"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: documented.ex.io}
spec:
  group: ex.io
  scope: Namespaced
  names: {plural: documented, singular: documented, kind: Documented, listKind: DocumentedList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        description: A thing with a schema
        type: object
        properties:
          spec:
            description: What it should be
            type: object
            properties:
              bars:
                description: The bars it has
                type: array
                items:
                  type: object
                  properties:
                    name: {description: What the bar is called, type: string}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: undocumented.ex.io}
spec:
  group: ex.io
  scope: Namespaced
  names: {plural: undocumented, singular: undocumented, kind: Undocumented, listKind: UndocumentedList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[test]
fn custom_resources_are_explained_with_and_without_a_schema() {
    let server = Server::start();
    server.file("crds.yaml", EXPLAINED);
    let kubectl = server.kubectl();
    kubectl.ok("apply -f crds.yaml");
    kubectl.ok("wait --for=condition=Established crd/documented.ex.io crd/undocumented.ex.io --timeout=10s");
    for (path, wanted) in [
        (
            "documented",
            &["DESCRIPTION:", "A thing with a schema", "APIVersion defines", "What it should be"][..],
        ),
        (
            "documented.metadata",
            &[
                "Standard object's metadata",
                "creationTimestamp",
                "<string>",
                "CreationTimestamp is a timestamp",
            ],
        ),
        ("documented.spec", &["What it should be", "bars", "<[]Object>", "The bars it has"]),
        (
            "documented.spec.bars",
            &["FIELD: bars <[]Object>", "The bars it has", "What the bar is called"],
        ),
        ("undocumented", &["KIND:       Undocumented", "DESCRIPTION:\n    <empty>"]),
    ] {
        let explained = kubectl.ok(&format!("explain {path}"));
        let mut rest = &*explained;
        for part in wanted {
            let Some((_, behind)) = rest.split_once(part) else {
                panic!(
                    "{part:?} is not where it should be in the explanation of {path}:\n{explained}"
                );
            };
            rest = behind;
        }
    }
    let unknown = kubectl.fails("explain documented.spec.bars2");
    assert!(unknown.contains(r#"field "bars2" does not exist"#), "{unknown}");
    // Client and server accept any content.
    server.file(
        "any.yaml",
        "apiVersion: ex.io/v1\nkind: Undocumented\nmetadata: {name: any}\na: {b: [{c: d}]}\n",
    );
    kubectl.ok("create -f any.yaml");
    assert_eq!(kubectl.ok("get undocumented any -o jsonpath={.a.b[0].c}"), "d");
}
