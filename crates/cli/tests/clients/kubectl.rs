//! kubectl of today: the server as a whole, and the life of a ConfigMap.

use crate::server::{Lines, Server, is_private};
use std::process::Command;

#[test]
fn server_reports_its_version_and_resources() {
    let server = Server::start();
    let kubectl = server.kubectl();
    assert!(is_private(&server.kubeconfig()));
    assert!(kubectl.ok("version").contains("Server Version: v1.36"));
    assert!(kubectl.ok("cluster-info").contains(&server.url));
    assert_eq!(kubectl.ok("get --raw /readyz"), "ok");
    assert!(kubectl.ok("get --raw /healthz?verbose").contains("[+]ping ok"));
    assert!(kubectl.ok("get --raw /api/v1/namespaces/default").contains(r#""name":"default""#));
    let resources = kubectl.ok("api-resources");
    for row in
        ["configmaps", "deployments", "customresourcedefinitions", "events.k8s.io/v1", "deploy"]
    {
        assert!(resources.contains(row), "{row} in\n{resources}");
    }
    let versions = kubectl.ok("api-versions");
    assert!(
        versions.lines().any(|line| line == "v1") && versions.lines().any(|line| line == "apps/v1")
    );
    assert_eq!(
        kubectl.ok("get ns -o name"),
        "namespace/default\nnamespace/kube-node-lease\nnamespace/kube-public\nnamespace/kube-system\n"
    );
}

#[test]
fn signal_ends_watches_gracefully_and_exits_with_zero() {
    for signal in ["INT", "TERM"] {
        let mut server = Server::start();
        let watch = Lines::of(server.kubectl().command("get ns -w -o name"));
        for _ in 0..4 {
            assert!(watch.next().starts_with("namespace/"));
        }
        let status = server.stop(signal);
        assert_eq!(status.code(), Some(0), "after SIG{signal}");
    }
}

#[test]
fn other_credentials_are_refused() {
    let server = Server::start();
    let kubectl = server.kubectl();
    kubectl.ok("config set-credentials other --token=wrong");
    let said = kubectl.fails("--user=other get ns");
    assert!(said.contains("Unauthorized") || said.contains("must be logged in"), "{said}");
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["-sk", "-w", " %{http_code}"])
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let anonymous = curl(&[&format!("{}/api/v1/namespaces", server.url)]);
    assert!(anonymous.ends_with(" 403"), "{anonymous}");
    assert!(anonymous.contains(r#"User \"system:anonymous\" cannot list"#), "{anonymous}");
    let version = curl(&[&format!("{}/version", server.url)]);
    assert!(version.ends_with(" 200"), "{version}");
    let wrong = curl(&["-H", "Authorization: Bearer wrong", &format!("{}/api", server.url)]);
    assert!(wrong.ends_with(" 401"), "{wrong}");
}

#[test]
fn config_map_is_created_changed_and_deleted() {
    let server = Server::start();
    let kubectl = server.kubectl();
    assert_eq!(
        kubectl.ok("create configmap cm --from-literal=a=1 --from-literal=b=2"),
        "configmap/cm created\n"
    );
    assert!(kubectl.fails("create configmap cm").contains(r#"configmaps "cm" already exists"#));

    // Every output.
    let table = kubectl.ok("get cm cm");
    assert!(table.starts_with("NAME   DATA   AGE\ncm     2      "), "{table}");
    assert!(kubectl.ok("get cm cm -o wide").starts_with("NAME"));
    assert_eq!(kubectl.ok("get cm cm -o name"), "configmap/cm\n");
    assert_eq!(kubectl.ok("get cm cm -o jsonpath={.data.a}"), "1");
    assert_eq!(kubectl.ok("get cm cm -o go-template={{.data.b}}"), "2");
    assert_eq!(
        kubectl.ok("get cm cm -o custom-columns=N:.metadata.name,A:.data.a"),
        "N     A\ncm    1\n"
    );
    assert!(
        kubectl
            .ok("get cm cm -o yaml")
            .contains("\ndata:\n  a: \"1\"\n  b: \"2\"\nkind: ConfigMap\n")
    );
    assert!(kubectl.ok("get cm cm -o json").contains("\"kind\": \"ConfigMap\""));
    let described = kubectl.ok("describe cm cm");
    assert!(
        described.contains("Name:         cm") && described.contains("a:\n----\n1"),
        "{described}"
    );

    // Changes by verb.
    assert_eq!(kubectl.ok("label cm cm color=blue"), "configmap/cm labeled\n");
    assert_eq!(kubectl.ok("get cm -l color=blue -o name"), "configmap/cm\n");
    assert_eq!(kubectl.ok("get cm -l color!=blue,color -o name"), "");
    assert_eq!(kubectl.ok("label cm cm color-"), "configmap/cm unlabeled\n");
    assert_eq!(kubectl.ok("annotate cm cm note=x"), "configmap/cm annotated\n");
    assert_eq!(kubectl.ok("get cm --field-selector metadata.name=cm -o name"), "configmap/cm\n");
    assert!(
        kubectl
            .fails("get cm --field-selector spec.x=1")
            .contains(r#""spec.x" is not a known field selector"#)
    );

    // Patches of three types.
    assert_eq!(
        kubectl.ok(r#"patch cm cm --type merge -p {"data":{"a":"3","b":null}}"#),
        "configmap/cm patched\n"
    );
    assert_eq!(kubectl.ok("get cm cm -o jsonpath={.data}"), r#"{"a":"3"}"#);
    kubectl.ok(r#"patch cm cm --type json -p [{"op":"test","path":"/data/a","value":"3"},{"op":"add","path":"/data/c","value":"4"}]"#);
    kubectl.ok(r#"patch cm cm --type strategic -p {"data":{"d":"5"}}"#);
    assert_eq!(kubectl.ok("get cm cm -o jsonpath={.data}"), r#"{"a":"3","c":"4","d":"5"}"#);
    assert_eq!(
        kubectl.ok(r#"patch cm cm --type merge -p {"data":{"a":"3"}}"#),
        "configmap/cm patched (no change)\n"
    );
    let failed =
        kubectl.fails(r#"patch cm cm --type json -p [{"op":"test","path":"/data/a","value":"9"}]"#);
    assert!(
        failed.contains("the server rejected our request due to an error in our request"),
        "{failed}"
    );

    // Replace and edit.
    server.file(
        "cm.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {a: replaced}\n",
    );
    assert_eq!(kubectl.ok("replace -f cm.yaml"), "configmap/cm replaced\n");
    assert_eq!(kubectl.ok("get cm cm -o jsonpath={.data}"), r#"{"a":"replaced"}"#);
    let editor = server.file("editor", "#!/bin/sh\nsed -i 's/a: replaced/a: edited/' \"$1\"\n");
    make_executable(&editor);
    let edited = kubectl.command("edit cm cm").env("EDITOR", &editor).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&edited.stdout), "configmap/cm edited\n");
    assert_eq!(kubectl.ok("get cm cm -o jsonpath={.data.a}"), "edited");

    assert_eq!(kubectl.ok("delete cm cm"), "configmap \"cm\" deleted from default namespace\n");
    assert!(
        kubectl
            .fails("get cm cm")
            .contains(r#"Error from server (NotFound): configmaps "cm" not found"#)
    );
    assert_eq!(kubectl.ok("delete cm cm --ignore-not-found"), "");
}

pub(crate) fn make_executable(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn client_side_apply_merges_three_ways() {
    let server = Server::start();
    let kubectl = server.kubectl();
    server.file("cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, labels: {l: x}}\ndata: {a: '1', b: '2'}\n");
    assert_eq!(kubectl.ok("apply -f cm.yaml"), "configmap/cm created\n");
    assert_eq!(kubectl.ok("apply -f cm.yaml"), "configmap/cm unchanged\n");
    kubectl.ok(r#"patch cm cm --type merge -p {"data":{"foreign":"kept"}}"#);
    server
        .file("cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {a: '9'}\n");
    let diff = kubectl.command("diff -f cm.yaml").output().unwrap();
    let shown = String::from_utf8_lossy(&diff.stdout).into_owned();
    assert_eq!(diff.status.code(), Some(1), "{shown}{}", String::from_utf8_lossy(&diff.stderr));
    assert!(
        shown.contains("-  a: \"1\"")
            && shown.contains("+  a: \"9\"")
            && shown.contains("-  b: \"2\""),
        "{shown}"
    );
    assert_eq!(kubectl.ok("apply -f cm.yaml"), "configmap/cm configured\n");
    assert_eq!(kubectl.ok("get cm cm -o jsonpath={.data}"), r#"{"a":"9","foreign":"kept"}"#);
    assert_eq!(kubectl.ok("get cm cm -o jsonpath={.metadata.labels}"), "");
    assert_eq!(kubectl.command("diff -f cm.yaml").output().unwrap().status.code(), Some(0));
    assert!(
        kubectl
            .ok("apply -f cm.yaml --dry-run=server")
            .contains("configmap/cm unchanged (server dry run)")
    );
    assert_eq!(kubectl.ok("apply view-last-applied cm/cm -o json").matches("\"9\"").count(), 1);
}

#[test]
fn server_side_apply_tracks_owners_and_conflicts() {
    let server = Server::start();
    let kubectl = server.kubectl();
    server.file(
        "cm.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {a: '1', b: '2'}\n",
    );
    assert_eq!(
        kubectl.ok("apply --server-side --field-manager=one -f cm.yaml"),
        "configmap/cm serverside-applied\n"
    );
    let version = kubectl.ok("get cm cm -o jsonpath={.metadata.resourceVersion}");
    kubectl.ok("apply --server-side --field-manager=one -f cm.yaml");
    assert_eq!(
        kubectl.ok("get cm cm -o jsonpath={.metadata.resourceVersion}"),
        version,
        "the same again changes nothing"
    );

    server.file(
        "two.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {a: '9'}\n",
    );
    let conflict = kubectl.fails("apply --server-side --field-manager=two -f two.yaml");
    assert!(
        conflict.contains("Apply failed with 1 conflict: conflict with \"one\": .data.a"),
        "{conflict}"
    );
    kubectl.ok("apply --server-side --field-manager=two --force-conflicts -f two.yaml");
    assert_eq!(kubectl.ok("get cm cm -o jsonpath={.data}"), r#"{"a":"9","b":"2"}"#);
    let owners = kubectl.ok("get cm cm --show-managed-fields -o jsonpath={range.metadata.managedFields[*]}{.manager}={.fieldsV1};{end}");
    assert_eq!(owners, r#"one={"f:data":{"f:b":{}}};two={"f:data":{"f:a":{}}};"#);

    server.file("cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\n");
    kubectl.ok("apply --server-side --field-manager=one -f cm.yaml");
    assert_eq!(
        kubectl.ok("get cm cm -o jsonpath={.data}"),
        r#"{"a":"9"}"#,
        "what was dropped and nobody else owns goes"
    );
}

#[test]
fn errors_in_a_manifest_are_named() {
    let server = Server::start();
    let kubectl = server.kubectl();
    server.file(
        "typo.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndatta: {a: '1'}\n",
    );
    let said = kubectl.fails("apply -f typo.yaml");
    assert!(said.contains(r#"strict decoding error: unknown field "datta""#), "{said}");
    let said = kubectl.both_outputs("apply -f typo.yaml --validate=warn");
    assert!(
        said.contains(r#"unknown field "datta""#) && said.contains("configmap/cm created"),
        "{said}"
    );
    server.file(
        "type.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm2}\ndata: {a: 1}\n",
    );
    let said = kubectl.fails("apply -f type.yaml --validate=false");
    assert!(
        said.contains("cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        "{said}"
    );
    server.file("name.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n");
    let said = kubectl.fails("apply -f name.yaml");
    assert!(said.contains(r#"The ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name": a lowercase RFC 1123 subdomain"#), "{said}");
    server.file("broken.yaml", "apiVersion: v1\nkind: ConfigMap\n  metadata: [\n");
    assert!(kubectl.fails("apply -f broken.yaml").contains("error converting YAML to JSON"));
    server.file("kind.yaml", "apiVersion: v1\nkind: Nothing\nmetadata: {name: x}\n");
    assert!(
        kubectl
            .fails("apply -f kind.yaml")
            .contains(r#"no matches for kind "Nothing" in version "v1""#)
    );
    assert!(
        kubectl
            .fails("-n nowhere create configmap x")
            .contains(r#"namespaces "nowhere" not found"#)
    );
}

#[test]
fn watch_shows_each_change_as_it_happens() {
    let server = Server::start();
    let kubectl = server.kubectl();
    let watch = Lines::of(kubectl.command("get cm -w --output-watch-events -o custom-columns=T:.type,N:.object.metadata.name,A:.object.data.a --no-headers"));
    // Created after the watch has started: the controllers' own config maps may come first.
    kubectl.ok("create configmap w --from-literal=a=1");
    let next = || loop {
        let line = watch.next();
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if words[1] == "w" {
            return words.join(" ");
        }
    };
    assert_eq!(next(), "ADDED w 1");
    kubectl.ok(r#"patch cm w --type merge -p {"data":{"a":"2"}}"#);
    assert_eq!(next(), "MODIFIED w 2");
    kubectl.ok("delete cm w");
    assert_eq!(next(), "DELETED w 2");
}

#[test]
fn plain_endpoint_shows_the_deletion_sequence_to_curl() {
    let server = Server::start();
    let kubectl = server.kubectl();
    let mut curl = Command::new("curl");
    curl.args([
        "-sN",
        "-A",
        "test",
        &format!("{}/api/v1/namespaces/default/pods?watch=true", server.plain),
    ]);
    server.file("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p, finalizers: [example.com/hold]}\nspec: {containers: [{name: c, image: i}]}\n");
    kubectl.ok("apply -f pod.yaml");
    let watch = Lines::of(curl);
    assert!(watch.next().starts_with(r#"{"type":"ADDED","object":{"#));
    kubectl.ok("delete pod p --wait=false");
    let marked = watch.next();
    assert!(
        marked.starts_with(r#"{"type":"MODIFIED""#) && marked.contains("deletionTimestamp"),
        "{marked}"
    );
    kubectl.ok(r#"patch pod p --type merge -p {"metadata":{"finalizers":null}}"#);
    let mut last = watch.next();
    if last.starts_with(r#"{"type":"MODIFIED""#) {
        last = watch.next();
    }
    assert!(last.starts_with(r#"{"type":"DELETED""#), "{last}");
}

#[test]
fn kustomize_and_files_of_many_documents_are_applied() {
    let server = Server::start();
    let kubectl = server.kubectl();
    server.file("k/kustomization.yaml", "namePrefix: pre-\nresources: [a.yaml]\nconfigMapGenerator: [{name: gen, literals: [x=1]}]\n");
    server.file("k/a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: w}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot}\n");
    let applied = kubectl.ok("apply -k k");
    assert!(
        applied.contains("secret/pre-s created")
            && applied.contains("serviceaccount/pre-robot created"),
        "{applied}"
    );
    assert_eq!(kubectl.ok("get secret pre-s -o jsonpath={.data.p}"), "dw==");
    kubectl.ok("delete -k k");
    assert!(kubectl.fails("get secret pre-s").contains("NotFound"));
}

#[test]
fn plain_endpoint_serves_kubectl_without_credentials() {
    let server = Server::start();
    let kubectl = server.kubectl();
    let plain = |line: &str| {
        let mut command = kubectl.command(&format!("-s {} {line}", server.plain));
        let output = command.env_remove("KUBECONFIG").output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(plain("create configmap cm --from-literal=a=1"), "configmap/cm created\n");
    assert_eq!(plain("get cm cm -o jsonpath={.data.a}"), "1");
    // Both endpoints belong to one server.
    assert_eq!(kubectl.ok("get cm cm -o name"), "configmap/cm\n");
    assert_eq!(plain("delete cm cm"), "configmap \"cm\" deleted from default namespace\n");
}
