//! Current kubectl: the same life for each kind, with every verb.

use crate::kubectl::make_executable;
use crate::server::{Lines, Program, Server};
use network::api::CRD_YAML;

/// The data of a kind.
struct Kind {
    /// Name in tables and messages: `configmap`, `deployment.apps`.
    name: &'static str,
    /// Plural with group as errors name it.
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    /// A manifest of `x`, with `OLD` in place of the one value that changes.
    manifest: &'static str,
    old: &'static str,
    new: &'static str,
    /// The path of that value: as jsonpath, as a JSON pointer, and as named in conflicts.
    jsonpath: &'static str,
    pointer: &'static str,
    field: &'static str,
    /// A merge patch with `NEW`; a strategic one if the kind supports those.
    patch: &'static str,
    strategic: bool,
    /// Headings of `get`.
    headings: &'static [&'static str],
    /// Part of the output of `describe`.
    described: &'static str,
    /// The output of `explain` for a field: its path and its type.
    explained: (&'static str, &'static str),
}

impl Kind {
    fn manifest(&self, value: &str) -> String {
        self.manifest.replace("OLD", value)
    }

    fn value(&self, kubectl: &Program<'_>) -> String {
        kubectl.ok(&format!("get {} x -o jsonpath={{{}}}", self.plural, self.jsonpath))
    }

    fn reply(&self, done: &str) -> String {
        format!("{}/x {done}\n", self.name)
    }
}

/// The whole life of one object of a kind.
fn live(server: &Server, kind: &Kind) {
    let kubectl = &server.kubectl();
    let (plural, reply) = (kind.plural, |done| kind.reply(done));
    let write = |value: &str| server.file("x.yaml", &kind.manifest(value));

    // Create, once.
    write(kind.old);
    assert_eq!(kubectl.ok("create -f x.yaml --dry-run=server"), reply("created (server dry run)"));
    assert!(kubectl.fails(&format!("get {plural} x")).contains("NotFound"));
    assert_eq!(kubectl.ok("create -f x.yaml"), reply("created"));
    let twice = kubectl.fails("create -f x.yaml");
    assert!(twice.contains(&format!("Error from server (AlreadyExists): error when creating \"x.yaml\": {plural} \"x\" already exists")), "{twice}");
    assert_eq!(kind.value(kubectl), kind.old);

    outputs(kubectl, kind);
    explain_and_describe(kubectl, kind);
    changes(server, kubectl, kind);
    applies(server, kubectl, kind);

    // Wait and delete.
    assert_eq!(
        kubectl.ok(&format!("wait {plural}/x --for=jsonpath={{.metadata.name}}=x")),
        reply("condition met")
    );
    assert_eq!(kubectl.ok(&format!("wait {plural}/x --for=create")), reply("condition met"));
    let scope = if kind.namespaced { " from default namespace" } else { "" };
    assert_eq!(
        kubectl.ok("delete -f x.yaml --timeout=30s"),
        format!("{} \"x\" deleted{scope}\n", kind.name)
    );
    assert!(
        kubectl
            .fails(&format!("get {plural} x"))
            .contains(&format!("Error from server (NotFound): {plural} \"x\" not found"))
    );
    assert_eq!(kubectl.ok("delete -f x.yaml --ignore-not-found"), "");
    assert!(kubectl.fails("delete -f x.yaml").contains("NotFound"));
}

/// Every output of `get`.
fn outputs(kubectl: &Program<'_>, kind: &Kind) {
    let get = |rest: &str| kubectl.ok(&format!("get {} x {rest}", kind.plural));
    let table = get("");
    let headings: Vec<&str> = table
        .lines()
        .next()
        .unwrap()
        .split("  ")
        .map(str::trim)
        .filter(|h| !h.is_empty())
        .collect();
    assert_eq!(headings, kind.headings, "{table}");
    assert!(table.lines().nth(1).unwrap().starts_with("x "), "{table}");
    assert!(get("-o wide").starts_with("NAME"));
    assert!(get("--no-headers").starts_with("x "));
    assert!(get("--show-labels").contains("color=red"));
    assert!(get("-L color").lines().next().unwrap().ends_with("COLOR"));
    assert_eq!(get("-o name"), format!("{}/x\n", kind.name));
    let as_json: serde_json::Value = serde_json::from_str(&get("-o json")).unwrap();
    assert_eq!(as_json["kind"], kind.kind);
    assert!(as_json["metadata"].get("managedFields").is_none());
    assert!(get("-o json --show-managed-fields").contains("\"manager\": \"kubectl-create\""));
    let as_yaml = get("-o yaml");
    assert!(
        as_yaml.contains(&format!("kind: {}\n", kind.kind)) && as_yaml.contains("\n  name: x\n"),
        "{as_yaml}"
    );
    assert_eq!(get("-o go-template={{.metadata.name}}"), "x");
    assert_eq!(get("-o jsonpath={.kind}"), kind.kind);
    assert_eq!(get("-o custom-columns=N:.metadata.name --no-headers").trim(), "x");
    assert!(get("-o kyaml").contains("name: \"x\""));
    let listed = kubectl.ok(&format!(
        "get {} -A -l color=red -o jsonpath={{.items[*].metadata.name}}",
        kind.plural
    ));
    assert_eq!(listed, "x");
    assert_eq!(
        kubectl.ok(&format!(
            "get {} -A --chunk-size=1 --sort-by=.metadata.name -l color=red -o name",
            kind.plural
        )),
        format!("{}/x\n", kind.name)
    );
    assert_eq!(kubectl.ok(&format!("get {} -A -l color=blue -o name", kind.plural)), "");
}

fn explain_and_describe(kubectl: &Program<'_>, kind: &Kind) {
    let explained = kubectl.ok(&format!("explain {}.{}", kind.plural, kind.explained.0));
    assert!(explained.contains(&format!("KIND:       {}", kind.kind)), "{explained}");
    assert!(explained.contains(kind.explained.1), "{explained}");
    assert!(
        kubectl.ok(&format!("explain {} --recursive", kind.plural)).contains("ownerReferences")
    );
    let described = kubectl.ok(&format!("describe {} x", kind.plural));
    assert!(described.contains(kind.described), "{described}");
}

/// Changes by each verb, observed by a watch.
fn changes(server: &Server, kubectl: &Program<'_>, kind: &Kind) {
    let reply = |done: &str| kind.reply(done);
    let (plural, name) = (kind.plural, kind.name);
    let watch = Lines::of(kubectl.command(&format!("get {plural} --watch-only --field-selector metadata.name=x -o jsonpath={{.metadata.labels.n}}{{\"\\n\"}}")));
    // It is unknown which of these changes the watch shows until it has started. Afterwards it
    // shows each.
    let mut n = 0;
    kubectl.ok(&format!("label {plural} x n=0"));
    while watch.is_silent() {
        n += 1;
        kubectl.ok(&format!("label {plural} x n={n} --overwrite"));
    }
    assert_eq!(kubectl.ok(&format!("label {plural} x n=last --overwrite")), reply("labeled"));
    while watch.next() != "last" {}
    assert_eq!(kubectl.ok(&format!("label {plural} x n-")), reply("unlabeled"));
    assert_eq!(watch.next(), "");
    drop(watch);

    assert!(
        kubectl
            .fails(&format!("label {plural} x color=blue"))
            .contains("already has a value (red), and --overwrite is false")
    );
    assert_eq!(kubectl.ok(&format!("annotate {plural} x note=1")), reply("annotated"));
    assert_eq!(kubectl.ok(&format!("annotate {plural} x note-")), reply("annotated"));

    // Patches of three types.
    let merge = kind.patch.replace("NEW", kind.new);
    assert_eq!(
        kubectl.ok(&format!("patch {plural} x --type merge -p '{merge}'")),
        reply("patched")
    );
    assert_eq!(kind.value(kubectl), kind.new);
    assert_eq!(
        kubectl.ok(&format!("patch {plural} x --type merge -p '{merge}'")),
        reply("patched (no change)")
    );
    let json = |value: &str| {
        format!(
            r#"patch {plural} x --type json -p '[{{"op":"replace","path":"{}","value":{}}}]'"#,
            kind.pointer,
            kind.quoted(value)
        )
    };
    assert_eq!(kubectl.ok(&json(kind.old)), reply("patched"));
    assert_eq!(kind.value(kubectl), kind.old);
    let failed = kubectl.fails(&format!(
        r#"patch {plural} x --type json -p '[{{"op":"remove","path":"/metadata/labels/none"}}]'"#
    ));
    assert!(
        failed.contains("the server rejected our request due to an error in our request"),
        "{failed}"
    );
    let strategic = format!("patch {plural} x --type strategic -p '{merge}'");
    if kind.strategic {
        assert_eq!(kubectl.ok(&strategic), reply("patched"));
    } else {
        let refused = kubectl.fails(&strategic);
        assert!(refused.contains("application/merge-patch+json"), "{refused}");
        kubectl.ok(&format!("patch {plural} x --type merge -p '{merge}'"));
    }
    assert_eq!(kind.value(kubectl), kind.new);

    // Replace: the manifest's value returns. With an outdated version it is refused.
    server.file("x.yaml", &kind.manifest(kind.old));
    assert_eq!(kubectl.ok("replace -f x.yaml"), reply("replaced"));
    assert_eq!(kind.value(kubectl), kind.old);
    server.file(
        "stale.yaml",
        &kind.manifest(kind.new).replace("name: x", "name: x, resourceVersion: '1'"),
    );
    let stale = kubectl.fails("replace -f stale.yaml");
    assert!(
        stale.contains(&format!(
            "Operation cannot be fulfilled on {plural} \"x\": the object has been modified"
        )),
        "{stale}"
    );

    // Edit with a scripted editor, and once without a change.
    let editor = server
        .file("editor", &format!("#!/bin/sh\nsed -i 's|{}|{}|' \"$1\"\n", kind.old, kind.new));
    make_executable(&editor);
    let edit = |editor: &std::path::Path| {
        let output =
            kubectl.command(&format!("edit {plural} x")).env("EDITOR", editor).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    };
    assert_eq!(edit(&editor), reply("edited"));
    assert_eq!(kind.value(kubectl), kind.new);
    assert!(
        edit(std::path::Path::new("true")).contains("Edit cancelled, no changes made."),
        "{name}"
    );
}

/// Client-side and server-side apply.
fn applies(server: &Server, kubectl: &Program<'_>, kind: &Kind) {
    let reply = |done: &str| kind.reply(done);
    let plural = kind.plural;
    server.file("x.yaml", &kind.manifest(kind.old));
    let diff = |arguments: &str| {
        let output = kubectl.command(&format!("diff {arguments} -f x.yaml")).output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (code, shown) = diff("");
    assert_eq!(code, Some(1), "{shown}");
    // Values of Secrets are not shown.
    let (old, new) =
        if kind.name == "secret" { ("*** (after)", "*** (before)") } else { (kind.old, kind.new) };
    assert!(shown.lines().any(|line| line.starts_with('-') && line.contains(new)), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with('+') && line.contains(old)), "{shown}");
    assert_eq!(kubectl.ok("apply -f x.yaml"), reply("configured"));
    assert_eq!(kind.value(kubectl), kind.old);
    assert_eq!(kubectl.ok("apply -f x.yaml"), reply("unchanged"));
    assert_eq!(diff("").0, Some(0), "{}", diff("").1);
    assert!(kubectl.ok(&format!("apply view-last-applied {plural}/x")).contains(kind.old));

    // Server-side: the owner of a value causes a conflict, or is overruled.
    kubectl.ok("delete -f x.yaml --timeout=30s");
    assert_eq!(
        kubectl.ok("apply --server-side --field-manager=one -f x.yaml"),
        reply("serverside-applied")
    );
    let version =
        || kubectl.ok(&format!("get {plural} x -o jsonpath={{.metadata.resourceVersion}}"));
    let before = version();
    assert_eq!(
        kubectl.ok("apply --server-side --field-manager=one -f x.yaml"),
        reply("serverside-applied")
    );
    assert_eq!(version(), before, "the same again writes nothing");
    let merge = kind.patch.replace("NEW", kind.new);
    kubectl.ok(&format!("patch {plural} x --field-manager=other --type merge -p '{merge}'"));
    let conflict = kubectl.fails("apply --server-side --field-manager=one -f x.yaml");
    assert!(
        conflict.contains("Apply failed with 1 conflict: conflict with \"other\""),
        "{conflict}"
    );
    assert!(conflict.contains(kind.field), "{conflict}");
    assert_eq!(kind.value(kubectl), kind.new);
    assert_eq!(
        kubectl.ok("apply --server-side --field-manager=one --force-conflicts -f x.yaml"),
        reply("serverside-applied")
    );
    assert_eq!(kind.value(kubectl), kind.old);
    assert_eq!(diff("--server-side --field-manager=one").0, Some(0));
}

impl Kind {
    fn quoted(&self, value: &str) -> String {
        if value.parse::<i64>().is_ok() { value.to_owned() } else { format!("\"{value}\"") }
    }
}

#[test]
fn config_map() {
    live(
        &Server::start(),
        &Kind {
            name: "configmap",
            plural: "configmaps",
            kind: "ConfigMap",
            namespaced: true,
            manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, labels: {color: red}}\ndata: {key: OLD}\n",
            old: "before",
            new: "after",
            jsonpath: ".data.key",
            pointer: "/data/key",
            field: ".data.key",
            patch: r#"{"data":{"key":"NEW"}}"#,
            strategic: true,
            headings: &["NAME", "DATA", "AGE"],
            described: "key:\n----\nbefore",
            explained: ("data", "<map[string]string>"),
        },
    );
}

#[test]
fn secret() {
    live(
        &Server::start(),
        &Kind {
            name: "secret",
            plural: "secrets",
            kind: "Secret",
            namespaced: true,
            manifest: "apiVersion: v1\nkind: Secret\nmetadata: {name: x, labels: {color: red}}\ntype: Opaque\ndata: {key: OLD}\n",
            old: "YmVmb3Jl",
            new: "YWZ0ZXI=",
            jsonpath: ".data.key",
            pointer: "/data/key",
            field: ".data.key",
            patch: r#"{"data":{"key":"NEW"}}"#,
            strategic: true,
            headings: &["NAME", "TYPE", "DATA", "AGE"],
            described: "key:  6 bytes",
            explained: ("stringData", "<map[string]string>"),
        },
    );
}

#[test]
fn service() {
    live(
        &Server::start(),
        &Kind {
            name: "service",
            plural: "services",
            kind: "Service",
            namespaced: true,
            manifest: "apiVersion: v1\nkind: Service\nmetadata: {name: x, labels: {color: red}}\nspec:\n  externalName: OLD\n  type: ExternalName\n",
            old: "before.example",
            new: "after.example",
            jsonpath: ".spec.externalName",
            pointer: "/spec/externalName",
            field: ".spec.externalName",
            patch: r#"{"spec":{"externalName":"NEW"}}"#,
            strategic: true,
            headings: &["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"],
            described: "External Name:     before.example",
            explained: ("spec.externalName", "<string>"),
        },
    );
}

#[test]
fn deployment() {
    live(
        &Server::start(),
        &Kind {
            name: "deployment.apps",
            plural: "deployments.apps",
            kind: "Deployment",
            namespaced: true,
            manifest: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x, labels: {color: red}}\nspec:\n  minReadySeconds: OLD\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec: {containers: [{name: c, image: i}]}\n",
            old: "111",
            new: "222",
            jsonpath: ".spec.minReadySeconds",
            pointer: "/spec/minReadySeconds",
            field: ".spec.minReadySeconds",
            patch: r#"{"spec":{"minReadySeconds":NEW}}"#,
            strategic: true,
            headings: &["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"],
            described: "MinReadySeconds:        111",
            explained: ("spec.minReadySeconds", "<integer>"),
        },
    );
}

#[test]
fn pod() {
    live(
        &Server::start(),
        &Kind {
            name: "pod",
            plural: "pods",
            kind: "Pod",
            namespaced: true,
            manifest: "apiVersion: v1\nkind: Pod\nmetadata: {name: x, labels: {color: red}}\nspec: {automountServiceAccountToken: false, serviceAccount: default, serviceAccountName: default, containers: [{name: c, image: 'OLD'}]}\n",
            old: "i:1",
            new: "i:2",
            jsonpath: ".spec.containers[0].image",
            pointer: "/spec/containers/0/image",
            field: ".spec.containers[name=\"c\"].image",
            patch: r#"{"spec":{"containers":[{"name":"c","image":"NEW"}]}}"#,
            strategic: true,
            headings: &["NAME", "READY", "STATUS", "RESTARTS", "AGE"],
            described: "QoS Class:",
            explained: ("spec.activeDeadlineSeconds", "<integer>"),
        },
    );
}

#[test]
fn namespace() {
    live(
        &Server::start(),
        &Kind {
            name: "namespace",
            plural: "namespaces",
            kind: "Namespace",
            namespaced: false,
            manifest: "apiVersion: v1\nkind: Namespace\nmetadata: {name: x, labels: {color: red}, annotations: {key: OLD}}\n",
            old: "before",
            new: "after",
            jsonpath: ".metadata.annotations.key",
            pointer: "/metadata/annotations/key",
            field: ".metadata.annotations.key",
            patch: r#"{"metadata":{"annotations":{"key":"NEW"}}}"#,
            strategic: true,
            headings: &["NAME", "STATUS", "AGE"],
            described: "Status:       Active",
            explained: ("spec.finalizers", "<[]string>"),
        },
    );
}

#[test]
fn network() {
    let server = Server::start();
    server.file("crd.yaml", CRD_YAML);
    server.kubectl().ok("apply -f crd.yaml");
    server
        .kubectl()
        .ok("wait --for=condition=Established crd/networks.samplecrd.k8s.io --timeout=10s");
    live(
        &server,
        &Kind {
            name: "network.samplecrd.k8s.io",
            plural: "networks.samplecrd.k8s.io",
            kind: "Network",
            namespaced: true,
            manifest: "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata: {name: x, labels: {color: red}}\nspec: {cidr: 10.0.0.0/8, gateway: OLD}\n",
            old: "10.0.0.1",
            new: "10.0.0.2",
            jsonpath: ".spec.gateway",
            pointer: "/spec/gateway",
            field: ".spec.gateway",
            patch: r#"{"spec":{"gateway":"NEW"}}"#,
            strategic: false,
            headings: &["NAME", "CIDR", "GATEWAY", "READY", "AGE"],
            described: "Gateway:  10.0.0.1",
            explained: ("spec.gateway", "<string>"),
        },
    );
}

#[test]
fn an_emulated_release_has_its_own_api_and_defaults() {
    let options = ["--emulated-version=1.34", "--runtime-config=resource.k8s.io/v1beta2=true"];
    let server = Server::start_with(&options.map(std::ffi::OsStr::new));
    let kubectl = server.kubectl();
    let version = kubectl.ok("get --raw /version");
    assert!(version.contains("\"emulationMinor\": \"34\""), "{version}");
    assert!(version.contains("\"minCompatibilityMinor\": \"33\""), "{version}");
    let resources = kubectl.ok("api-resources");
    let has = |kind: &str| resources.lines().any(|line| line.ends_with(kind));
    assert!(has("DeviceClass") && has("ValidatingAdmissionPolicy"), "{resources}");
    assert!(!has("MutatingAdmissionPolicy") && !has("DeviceTaintRule"), "{resources}");
    let metrics = kubectl.ok("get --raw /metrics");
    let line =
        r#"version_info{binary="1.36",component="kube",emulation="1.34",min_compat="1.33"} 1"#;
    assert!(metrics.contains(line));
    let line = r#"kubernetes_feature_enabled{name="ComponentFlagz",stage="ALPHA"} 0"#;
    assert!(metrics.contains(line));
    assert!(!metrics.contains(r#"name="ConstrainedImpersonation""#));
    kubectl.fails("get --raw /flagz");
}
