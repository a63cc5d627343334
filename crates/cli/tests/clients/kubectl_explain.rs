//! kubectl explain with descriptions of built-in types from published documents.

use crate::server::Server;
use std::process::Command;

/// A document of version 2, as Kubernetes publishes them.
const V2: &str = r##"{
  "swagger": "2.0",
  "info": {"title": "Kubernetes", "version": "v1.36.0"},
  "paths": {},
  "definitions": {
    "io.k8s.api.core.v1.ConfigMap": {
      "description": "A sheet of settings.",
      "properties": {
        "data": {"description": "The settings by name.", "type": "object"},
        "metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "description": "What it is called."}
      }
    },
    "io.k8s.api.core.v1.Unheard": {"description": "Not here."}
  }
}"##;

/// One of version 3.
const V3: &str = r##"{
  "openapi": "3.0.0",
  "components": {"schemas": {
    "io.k8s.api.apps.v1.Deployment": {"description": "A fleet.", "properties": {
      "spec": {"description": "How the fleet is to be.", "allOf": [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"}]}
    }},
    "io.k8s.api.apps.v1.DeploymentSpec": {"description": "The shape of a fleet.", "properties": {
      "replicas": {"description": "How many ships.", "type": "integer"}
    }}
  }}
}"##;

/// Checks that all parts are there, in this order.
fn check(explained: &str, parts: &[&str]) {
    let mut rest = explained;
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else {
            panic!("{part:?} is not where it should be:\n{explained}");
        };
        rest = behind;
    }
}

#[test]
fn built_in_types_are_explained_with_published_descriptions() {
    let folder = tempfile::tempdir().unwrap();
    let v2 = folder.path().join("swagger.json");
    std::fs::write(&v2, V2).unwrap();
    let v3 = folder.path().join("v3");
    std::fs::create_dir(&v3).unwrap();
    std::fs::write(v3.join("apis__apps__v1_openapi.json"), V3).unwrap();
    std::fs::write(v3.join("README.md"), "not a document").unwrap();
    let server =
        Server::start_with(&["--openapi".as_ref(), v2.as_ref(), "--openapi".as_ref(), v3.as_ref()]);
    let kubectl = server.kubectl();
    check(
        &kubectl.ok("explain configmap"),
        &[
            "A sheet of settings.",
            "data\t<map[string]string>",
            "The settings by name.",
            "What it is called.",
        ],
    );
    check(&kubectl.ok("explain deployment"), &["A fleet.", "spec", "How the fleet is to be."]);
    check(
        &kubectl.ok("explain deployment.spec.replicas"),
        &["replicas <integer>", "How many ships."],
    );
    // What no document describes is as it was.
    check(
        &kubectl.ok("explain configmap.metadata.labels"),
        &["labels <map[string]string>", "Labels are texts"],
    );
    check(&kubectl.ok("explain secret.data"), &["data <map[string]string>", "<empty>"]);
    // kubectl of 2020 reads version 2, in protobuf.
    check(
        &server.kubectl_old().ok("explain deployment.spec"),
        &["The shape of a fleet.", "How many ships."],
    );
    // Objects are validated as before.
    server.file("c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n");
    kubectl.ok("apply -f c.yaml");
}

#[test]
fn documents_without_use_end_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for (text, why) in [
        ("{}", "the document is neither OpenAPI 2.0 nor 3"),
        ("{", "the document is not OpenAPI in JSON"),
        (r#"{"swagger":"2.0"}"#, "the documents describe no built-in type"),
    ] {
        let file = folder.path().join("openapi.json");
        std::fs::write(&file, text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(["up", "--secure-port=0", "--kubeconfig"])
            .arg(folder.path().join("kubeconfig"))
            .arg("--openapi")
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{text}: {said}");
    }
}
