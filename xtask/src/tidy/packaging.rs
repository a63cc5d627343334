//! Checks the dependencies of the library, and that no library chooses the version of the
//! Kubernetes API.

use super::root;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// The packages that a package is built with, including itself, as `name version`.
fn tree(package: &str, features: &str) -> BTreeSet<String> {
    let cargo = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--package", package, "--features", features])
        .args(["--edges", "normal", "--prefix", "none", "--target", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let first_two = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let lines = String::from_utf8_lossy(&cargo.stdout).into_owned();
    lines.lines().filter(|line| !line.is_empty()).map(first_two).collect()
}

/// The names that are in the tree.
fn found(tree: &BTreeSet<String>, names: &[&'static str]) -> Vec<&'static str> {
    let is_in = |name: &&str| tree.iter().any(|line| line.split(' ').next() == Some(*name));
    names.iter().copied().filter(is_in).collect()
}

#[test]
fn controller_depends_on_no_server_storage_or_program() {
    let forbidden = [
        "clap",
        "mimalloc",
        "network",
        "redb",
        "setpoint-apiserver",
        "setpoint-cel",
        "setpoint-cli",
        "setpoint-encryption",
        "setpoint-facts",
        "setpoint-log",
        "setpoint-registry",
        "setpoint-schema",
        "setpoint-serve",
        "setpoint-store",
        "setpoint-webhook",
        "tracing-subscriber",
        "zstd",
    ];
    let tree = tree("setpoint", "");
    assert_eq!(found(&tree, &["setpoint-runtime"]), ["setpoint-runtime"], "the tree is read");
    assert_eq!(found(&tree, &forbidden), [""; 0]);
}

#[test]
fn server_depends_on_a_storage_engine_only_by_feature() {
    let tree = tree("setpoint", "server");
    assert_eq!(found(&tree, &["setpoint-apiserver"]), ["setpoint-apiserver"], "the tree is read");
    assert_eq!(found(&tree, &["clap", "mimalloc", "redb", "zstd", "setpoint-store-etcd"]), [""; 0]);
}

/// The figures in the README equal the output of the commands next to them.
#[test]
fn readme_states_the_crate_count_of_a_controller() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README is there");
    for package in ["website-setpoint", "website-kube-rs"] {
        let command = format!("cargo tree -p {package} ");
        let line = readme.lines().find(|line| line.starts_with(&command));
        let stated = line.and_then(|line| line.rsplit("# ").next()).unwrap_or_default();
        assert_eq!(stated, tree(package, "").len().to_string(), "{package} in README.md");
    }
}

/// Only a program may choose the version of the Kubernetes API: a library's choice would bind all
/// of its users.
#[test]
fn no_library_chooses_the_version_of_the_kubernetes_api() {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--no-deps"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&cargo.stdout).expect("cargo prints JSON");
    let is_version =
        |feature: &str| ["latest", "earliest"].contains(&feature) || feature.starts_with("v1_");
    let mut wrong = Vec::new();
    let mut n_libraries = 0;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        if name == "setpoint-cli" || !manifest.contains("/crates/") {
            continue;
        }
        n_libraries += 1;
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let features = dependency["features"].as_array().into_iter().flatten();
            let chosen = features.filter_map(Value::as_str).any(is_version);
            if dependency["name"] == "k8s-openapi" && dependency["kind"] != "dev" && chosen {
                wrong.push(format!("{name} chooses the version of k8s-openapi"));
            }
        }
        for (feature, parts) in package["features"].as_object().into_iter().flatten() {
            let mut parts = parts.as_array().into_iter().flatten().filter_map(Value::as_str);
            if parts.any(|part| part.starts_with("k8s-openapi") && part.contains('/')) {
                wrong.push(format!("{name}: its feature {feature} is one of k8s-openapi"));
            }
        }
    }
    assert!(n_libraries > 10, "the libraries are found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Maximum number of names at the root of the runtime: those that nearly every controller uses. The
/// rest is in modules.
const ROOT_NAMES_MAX: usize = 50;

#[test]
fn root_of_the_runtime_has_few_names() {
    let lib = root().join("crates/runtime/src/lib.rs");
    let lib = std::fs::read_to_string(lib).expect("the crate is there");
    let exported = lib.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let names: Vec<&str> = exported
        .flat_map(|list| list.rsplit("::").next().unwrap_or_default().split(','))
        .map(|name| name.trim_matches(|c: char| c.is_whitespace() || "{}".contains(c)))
        .filter(|name| !name.is_empty())
        .collect();
    assert!(names.contains(&"Manager") && names.contains(&"Reconciler"), "names are read");
    assert!(names.len() <= ROOT_NAMES_MAX, "{} names: {names:?}", names.len());
}
