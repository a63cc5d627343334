//! Helm, new and old: the life of a release, with what its charts ask the server.

use crate::server::{Program, Server};
use serde_json::Value;

const NEW: &str = "SETPOINT_TEST_HELM";
const OLD: &str = "SETPOINT_TEST_HELM_3";

/// Claims without a class have this one, so that charts with volumes become ready.
const CLASS: &str = r#"
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: simulated
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: volumes.setpoint.dev/simulated
"#;

/// A server whose pods become ready.
fn server() -> Server {
    let server =
        Server::start_with(&["--nodes".as_ref(), "2".as_ref(), "--controllers=*".as_ref()]);
    server.file("class.yaml", CLASS);
    server.kubectl().ok("apply -f class.yaml");
    let nodes = |table: &str| table.matches(" Ready ").count() == 2;
    server.kubectl().eventually("get nodes", nodes);
    server
}

fn chart() -> String {
    std::path::absolute("tests/clients/helm/shop").unwrap().display().to_string()
}

/// Runs Helm and returns the answer, which is JSON.
#[track_caller]
fn json(helm: &Program<'_>, line: &str) -> Value {
    serde_json::from_str(&helm.ok(&format!("{line} -o json"))).unwrap()
}

/// `(revision, status)` of a release's revisions.
#[track_caller]
fn history(helm: &Program<'_>, release: &str) -> Vec<(u64, String)> {
    let all = json(helm, &format!("history {release}"));
    let revision = |one: &Value| {
        (one["revision"].as_u64().unwrap(), one["status"].as_str().unwrap().to_owned())
    };
    all.as_array().unwrap().iter().map(revision).collect()
}

fn statuses(history: &[(u64, String)]) -> Vec<&str> {
    history.iter().map(|(_, status)| &**status).collect()
}

fn life_of_a_release(variable: &str) {
    let server = server();
    let (helm, kubectl, chart) = (server.program(variable), server.kubectl(), chart());

    // All becomes ready: pods on nodes, claims with volumes, a job before the rest.
    let installed = helm.ok(&format!("install shop {chart} --wait --timeout 60s"));
    assert!(installed.contains("STATUS: deployed"), "{installed}");
    assert!(installed.ends_with("shop has revision 1.\n"), "{installed}");
    let data = kubectl.ok("get configmap shop-config -o jsonpath={.data}");
    assert_eq!(
        data,
        r#"{"accounts":"1","phase":"Active","policies":"true","server":"36","shelves":"true"}"#
    );
    let available = "get deploy,sts -o jsonpath={.items[*].status.availableReplicas}";
    assert_eq!(kubectl.ok(available), "2 1");
    assert_eq!(kubectl.ok("get pvc -o jsonpath={.items[*].status.phase}"), "Bound");
    let tested = helm.ok("test shop --timeout 60s");
    assert!(tested.contains("Phase:          Succeeded"), "{tested}");
    let listed = json(&helm, "list");
    assert_eq!((&listed[0]["name"], &listed[0]["status"]), (&"shop".into(), &"deployed".into()));

    // What others have written stays where the chart says nothing.
    kubectl.ok("annotate deploy shop note=ours");
    kubectl.ok("delete service shop");
    helm.ok(&format!("upgrade shop {chart} --wait --timeout 60s --set replicas=3,image=shop:2"));
    let image = "get deploy shop -o jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(kubectl.ok(image), "shop:2");
    let replicas = "get deploy shop -o jsonpath={.spec.replicas},{.metadata.annotations.note}";
    assert_eq!(kubectl.ok(replicas), "3,ours");
    assert_eq!(kubectl.ok("get service shop -o name"), "service/shop\n");

    // A refused object ends the upgrade with the server's words.
    for (values, words) in [
        (
            "size=0",
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        ("image=", "spec.template.spec.containers[0].image: Required value"),
    ] {
        let refused = helm.fails(&format!("upgrade shop {chart} --no-hooks --set {values}"));
        assert!(refused.contains(words), "{refused}");
    }
    let found = history(&helm, "shop");
    assert_eq!(statuses(&found), ["superseded", "deployed", "failed", "failed"]);

    // Back to the first, and back from one that does not become ready.
    helm.ok("rollback shop 1 --wait --timeout 60s");
    assert_eq!(kubectl.ok(image), "shop:1");
    let back = if variable == NEW { "--rollback-on-failure" } else { "--atomic" };
    let values = "--set replicas=3,image=registry.invalid/shop:1";
    let failed = helm.fails(&format!("upgrade shop {chart} {back} --wait --timeout 4s {values}"));
    assert!(failed.contains("UPGRADE FAILED"), "{failed}");
    assert_eq!(kubectl.ok(image), "shop:1");
    let found = history(&helm, "shop");
    assert_eq!(found.last().map(|(n, status)| (*n, &**status)), Some((7, "deployed")));

    // Objects that are not the release's are left alone.
    kubectl.ok("create configmap other-config");
    let refused = helm.fails(&format!("install other {chart}"));
    assert!(refused.contains("invalid ownership metadata"), "{refused}");

    helm.ok("uninstall shop --wait --timeout 60s");
    kubectl.eventually("get deploy,sts,ds,svc,ing,pdb,sa,role,shelf,pods -o name", |names| {
        // The pod and the job of hooks are nobody's, and these are always there.
        let mut names: Vec<&str> = names.lines().collect();
        names.retain(|name| !name.starts_with("pod/shop-before-"));
        names == ["service/kubernetes", "serviceaccount/default", "pod/shop-test"]
    });
    assert_eq!(json(&helm, "list"), serde_json::json!([]));
}

#[test]
fn life_of_a_release_with_helm_4() {
    life_of_a_release(NEW);
}

#[test]
fn life_of_a_release_with_helm_3() {
    life_of_a_release(OLD);
}

/// Helm 4 applies on the server: a release owns its fields, and another's are conflicts.
#[test]
fn a_release_owns_what_it_applies() {
    let server = server();
    let (helm, kubectl, chart) = (server.program(NEW), server.kubectl(), chart());
    kubectl.ok(&format!("apply -f {chart}/crds/shelf.yaml"));
    let planned = helm.ok(&format!("install shop {chart} --dry-run=server"));
    assert!(planned.contains("phase: \"Active\""), "{planned}");
    assert!(kubectl.fails("get deploy shop").contains("not found"));

    helm.ok(&format!("install shop {chart} --no-hooks"));
    let owners = "get deploy shop --show-managed-fields -o jsonpath={.metadata.managedFields[?(@.operation==\"Apply\")].manager}";
    assert_eq!(kubectl.ok(owners), "helm");
    kubectl.ok("set image deploy/shop main=other:1");
    let upgrade = format!("upgrade shop {chart} --no-hooks --set image=shop:2");
    let refused = helm.fails(&upgrade);
    assert!(
        refused.contains(r#"Apply failed with 1 conflict: conflict with "kubectl-set" using apps/v1: .spec.template.spec.containers[name="main"].image"#),
        "{refused}"
    );
    helm.ok(&format!("{upgrade} --force-conflicts"));
    let image = "get deploy shop -o jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(kubectl.ok(image), "shop:2");

    // An object that somebody has made is taken over if asked to.
    kubectl.ok("create configmap other-config --from-literal own=kept");
    helm.ok(&format!("install other {chart} --no-hooks --take-ownership"));
    let data = "get configmap other-config -o jsonpath={.data.own},{.data.phase}";
    assert_eq!(kubectl.ok(data), "kept,Active");
}
