//! The house rules, as tests: layers, names, sizes.

mod files;
mod logs;
mod order;
mod packaging;
mod pages;

use crate::cargo::root;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each package's level. A package depends on lower levels only.
const LEVELS: &[(&str, u8)] = &[
    ("setpoint-apply", 0),
    ("setpoint-configuration", 0),
    ("setpoint-dial", 0),
    ("setpoint-workqueue", 0),
    ("setpoint-store", 0),
    ("setpoint-object", 0),
    ("setpoint-facts", 0),
    ("setpoint-jwt", 0),
    ("setpoint-log", 0),
    ("setpoint-macros", 0),
    ("setpoint-small-file", 0),
    ("setpoint-grpc", 1),
    ("setpoint-quota", 1),
    ("setpoint-rbac", 1),
    ("setpoint-spans", 1),
    ("setpoint-informer", 1),
    ("setpoint-serve", 1),
    ("setpoint-cel", 1),
    ("setpoint-encryption", 2),
    ("setpoint-store-etcd", 2),
    ("setpoint-etcd-server", 2),
    ("setpoint-otlp", 2),
    ("setpoint-webhook", 2),
    ("setpoint-webhook-client", 2),
    ("setpoint-schema", 2),
    ("setpoint-runtime", 2),
    ("setpoint-egress", 3),
    ("setpoint-oidc", 3),
    ("setpoint-remote", 3),
    ("setpoint-registry", 3),
    ("setpoint-controllers", 3),
    ("setpoint-nodes", 3),
    ("setpoint-scheduler", 3),
    ("setpoint-apiserver", 4),
    ("setpoint-audit", 5),
    ("setpoint-control-plane", 5),
    ("setpoint-process-node", 5),
    ("setpoint-testenv", 6),
    ("setpoint", 7),
    ("network", 8),
    ("setpoint-cli", 9),
    ("pod-printer", 8),
    ("port-rule", 8),
    ("website", 8),
    ("bucket", 8),
    ("team", 8),
    ("replicas", 8),
    ("sidecar-injector", 8),
    ("aggregated", 8),
    ("etcd-operator", 8),
    ("setpoint-benches", 8),
    ("website-kube-rs", 8),
    ("website-setpoint", 8),
    ("setpoint-fuzz", 8),
    ("xtask", 8),
];

/// Packages that a package must not depend on, directly or transitively, beyond what its level
/// forbids.
const FORBIDDEN: &[(&str, &[&str])] = &[
    // The client half and the server half communicate only over HTTP.
    (
        "setpoint-informer",
        &["setpoint-store", "setpoint-schema", "setpoint-registry", "setpoint-apiserver"],
    ),
    (
        "setpoint-runtime",
        &["setpoint-store", "setpoint-schema", "setpoint-registry", "setpoint-apiserver"],
    ),
    (
        "setpoint-controllers",
        &["setpoint-store", "setpoint-schema", "setpoint-registry", "setpoint-apiserver"],
    ),
    (
        "setpoint-nodes",
        &["setpoint-store", "setpoint-schema", "setpoint-registry", "setpoint-apiserver"],
    ),
    (
        "setpoint-scheduler",
        &["setpoint-store", "setpoint-schema", "setpoint-registry", "setpoint-apiserver"],
    ),
    (
        "setpoint-store-etcd",
        &["setpoint-object", "serde_json", "hyper", "kube-core", "k8s-openapi"],
    ),
    (
        "setpoint-registry",
        &[
            "setpoint-informer",
            "setpoint-runtime",
            "setpoint-workqueue",
            "http",
            "hyper",
            "kube-client",
            "k8s-openapi",
        ],
    ),
    ("setpoint-apiserver", &["setpoint-informer", "setpoint-runtime", "setpoint-workqueue"]),
    ("setpoint-audit", &["setpoint-informer", "setpoint-runtime", "setpoint-workqueue"]),
    ("setpoint-webhook", &["setpoint-store", "setpoint-workqueue", "kube-client"]),
    (
        "setpoint-webhook-client",
        &["setpoint-store", "setpoint-workqueue", "kube-client", "kube-core", "k8s-openapi"],
    ),
    ("setpoint-workqueue", &["http", "hyper", "kube-core", "k8s-openapi"]),
    (
        "setpoint-store",
        &["http", "hyper", "serde_json", "kube-core", "k8s-openapi", "setpoint-object"],
    ),
    ("setpoint-object", &["http", "hyper", "kube-core", "k8s-openapi", "setpoint-store"]),
    ("setpoint-schema", &["http", "hyper", "kube-core", "k8s-openapi", "setpoint-store"]),
    ("setpoint-remote", &["setpoint-store", "setpoint-schema"]),
    ("setpoint-quota", &["http", "hyper", "kube-core", "k8s-openapi", "setpoint-store"]),
    ("setpoint-cel", &["http", "hyper", "kube-core", "k8s-openapi", "setpoint-store"]),
    ("setpoint-oidc", &["kube-core", "k8s-openapi", "setpoint-store", "setpoint-schema"]),
    ("setpoint-facts", &["setpoint-object"]),
    ("setpoint-dial", &["http", "hyper", "serde_json", "kube-core", "k8s-openapi"]),
    ("setpoint-egress", &["kube-core", "k8s-openapi", "setpoint-store", "setpoint-schema"]),
    ("setpoint-grpc", &["hyper", "kube-core", "k8s-openapi", "serde_json"]),
    ("setpoint-apply", &["setpoint-object", "kube-core", "http"]),
    ("setpoint-serve", &["kube-core", "k8s-openapi", "setpoint-object"]),
];

/// The peer library that no product crate may depend on.
const PEER: &str = "kube-runtime";

/// Maximum number of lines of a source file, except generated data.
const FILE_LINES_MAX: usize = 600;

/// Maximum column of a comment line, except table rows, diagrams and listings.
const COMMENT_COLUMNS_MAX: usize = 100;

/// Direct normal dependencies of all packages of the workspace and of their dependencies.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let cargo = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version=1",
            "--locked",
            "--filter-platform=x86_64-unknown-linux-gnu",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&cargo.stdout).expect("cargo prints JSON");
    let names: BTreeMap<&str, &str> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?)))
        .collect();
    let is_normal = |dep: &&Value| {
        dep["dep_kinds"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|node| {
            let deps = node["deps"].as_array().into_iter().flatten().filter(is_normal);
            let deps =
                deps.map(|dep| names[dep["pkg"].as_str().unwrap_or_default()].to_owned()).collect();
            (names[node["id"].as_str().unwrap_or_default()].to_owned(), deps)
        })
        .collect()
}

#[test]
fn dependencies_point_down() {
    let dependencies = dependencies();
    let level =
        |name: &str| LEVELS.iter().find(|(package, _)| *package == name).map(|(_, level)| *level);
    let mut wrong = Vec::new();
    for (package, own) in LEVELS {
        for dependency in dependencies.get(*package).into_iter().flatten() {
            if level(dependency).is_some_and(|theirs| theirs >= *own) {
                wrong.push(format!(
                    "{package} (level {own}) depends on {dependency}, which is not below it"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_package_has_a_level() {
    let members: Vec<String> =
        dependencies().into_keys().filter(|name| name.starts_with("setpoint")).collect();
    let missing: Vec<_> =
        members.iter().filter(|name| !LEVELS.iter().any(|(package, _)| package == name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn packages_do_not_reach_forbidden_packages() {
    let dependencies = dependencies();
    let mut wrong = Vec::new();
    for (package, forbidden) in FORBIDDEN {
        let mut reached = vec![(*package).to_owned()];
        let mut next = 0;
        while let Some(name) = reached.get(next).cloned() {
            for dependency in dependencies.get(&name).into_iter().flatten() {
                // The in-process client is an optional feature, which cargo metadata treats as
                // enabled.
                let optional = name == "setpoint-apiserver" && dependency == "kube-client";
                if !optional && !reached.contains(dependency) {
                    reached.push(dependency.clone());
                }
            }
            next += 1;
        }
        wrong.extend(
            reached
                .iter()
                .filter(|name| forbidden.contains(&name.as_str()))
                .map(|name| format!("{package} reaches {name}")),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn product_does_not_depend_on_its_peer() {
    for (package, direct) in dependencies() {
        let measures = ["setpoint-benches", "website-kube-rs"];
        let ours = LEVELS.iter().any(|(name, _)| *name == package);
        let ours = ours && !measures.contains(&&*package);
        assert!(!ours || !direct.iter().any(|name| name == PEER), "{package} depends on {PEER}");
    }
}

fn sources() -> Vec<PathBuf> {
    let git = Command::new("git")
        .args(["ls-files", "*.rs"])
        .current_dir(root())
        .output()
        .expect("git runs");
    String::from_utf8_lossy(&git.stdout).lines().map(PathBuf::from).collect()
}

#[test]
fn no_file_is_named_utils_or_helpers() {
    let vague = ["utils", "util", "helpers", "helper", "common", "misc"];
    let wrong: Vec<_> = sources()
        .into_iter()
        .filter(|path| {
            path.components().any(|part| {
                vague.contains(&part.as_os_str().to_string_lossy().trim_end_matches(".rs"))
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn is_generated(path: &Path) -> bool {
    ["crates/facts/src/generated", "crates/apply/src/built_in"]
        .iter()
        .any(|folder| path.starts_with(folder))
}

/// A file that is touched after it was deleted comes back, empty.
#[test]
fn no_source_is_empty() {
    let is_empty = |path: &PathBuf| {
        std::fs::metadata(root().join(path)).is_ok_and(|metadata| metadata.len() == 0)
    };
    let empty: Vec<_> = sources().into_iter().filter(is_empty).collect();
    assert!(empty.is_empty(), "{empty:#?}");
}

#[test]
fn files_have_at_most_600_lines() {
    let mut wrong = Vec::new();
    for path in sources().into_iter().filter(|path| !is_generated(path)) {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            wrong.push(format!("{}: {lines} lines", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn comments_end_at_100_columns() {
    let mut wrong = Vec::new();
    for path in sources().into_iter().filter(|path| !is_generated(path)) {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        let mut is_listing = false;
        for (n, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                is_listing = false;
                continue;
            };
            let comment = comment.trim_start_matches(['/', '!']).trim_start();
            is_listing ^= comment.starts_with("```");
            let is_free = is_listing || comment.starts_with('|') || !comment.contains(' ');
            if !is_free && line.chars().count() > COMMENT_COLUMNS_MAX {
                wrong.push(format!("{}:{}", path.display(), n + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_unfinished_work_is_hidden() {
    let marks = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("FIX", "ME")];
    let mut wrong = Vec::new();
    for path in sources() {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        wrong.extend(
            text.lines()
                .enumerate()
                .filter(|(_, line)| marks.iter().any(|mark| line.contains(mark)))
                .map(|(n, line)| format!("{}:{}: {}", path.display(), n + 1, line.trim())),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The order of the modules of a crate: a module imports only from lines above its own, or from its
/// own line.
///
/// Modules on one line may import each other, because they are two halves of one thing.
const MODULES: &[(&str, &[&[&str]])] = &[
    (
        "registry",
        &[
            &[
                "attributes",
                "features",
                "fifo_watch",
                "identity",
                "latency",
                "origins",
                "request",
                "shard_selector",
                "shared_objects",
                "service_account",
                "stored",
                "verb",
                "subresource",
                "threads",
                "turns",
                "uid",
                "webhook",
            ],
            // The cells that a kind's rows are printed with.
            &["table"],
            &["kind"],
            // What other programs stored, with the defaults of its kind.
            &["foreign"],
            // A row has its objects' conversion, and a conversion needs the row.
            // What is counted of conversions wraps them.
            &["catalog", "convert", "conversion", "figures"],
            // A request has the row that it was routed to.
            &["routed", "scale", "allocate"],
            &["connect", "authorize", "token_review"],
            // Fed by the store. Of kinds it uses only their catalog rows.
            &["cache"],
            // Plugins look up objects.
            &["shared", "admission", "unreadable"],
            &["read", "published"],
            &["watch"],
            &["write", "bootstrap"],
            &["crd", "type_check", "runtime_config"],
            &["registry"],
            // Follows the objects of a registry that runs.
            &["rbac"],
            &["node_authorizer"],
        ],
    ),
    (
        "apiserver",
        &[
            &["figures", "indent", "token_use", "trace", "version"],
            &["query", "negotiate", "verb"],
            &["body", "connect", "options", "route", "table"],
            // A filter limits how many long lists are written, and both write refusals.
            &["filter", "list", "respond"],
            // Backends, and their entries in lists.
            &["extra", "backend", "connector", "intercept", "location", "peers"],
            &[
                "discovery",
                "health",
                "node_agent",
                "observe",
                "openapi",
                "openid",
                "websocket",
                "zpages",
            ],
            &["root", "proxied", "proxy", "streams"],
            // The server's shared state is used by the modules it calls.
            &["server", "pipeline", "resource", "watch"],
            &["client", "listen"],
        ],
    ),
    (
        "informer",
        &[
            &["backoff", "decode", "key", "metrics", "policy", "resource_type", "slices"],
            &["transform"],
            &["source"],
            &["record"],
            &["delta", "object"],
            &["failure"],
            // A store answers the questions of a delta queue.
            &["event", "indexer"],
            &["intake", "handler"],
            &["reflector"],
            &["status", "controller"],
            &["informer", "expiring", "mutation"],
            &["factory", "retry_watcher"],
        ],
    ),
    (
        "runtime",
        &[
            &["answer", "condition", "crd", "error", "mapper", "metrics", "owner", "predicate"],
            &["request", "signal"],
            // What one pass read and wrote, and why it ran.
            &["pass", "runnable"],
            &["cache", "fence", "endpoint"],
            &["client", "explain"],
            &["events", "telemetry", "upsert"],
            &["cluster", "election"],
            // Where keys come from.
            &["source"],
            // What reconcilers see, and what they may use.
            &["context", "shard"],
            &["reconciler"],
            &["finalizer", "children", "adopt"],
            &["controller"],
            // A manager is recorded, and made of a recording.
            &["manager", "recording"],
        ],
    ),
];

/// The non-test source files of a crate, with the name of their top module.
fn modules_of(krate: &str) -> Vec<(String, PathBuf)> {
    let src = Path::new("crates").join(krate).join("src");
    let is_test = |path: &Path| {
        let test = ["tests", "testing", "simulation"];
        path.components()
            .any(|part| test.contains(&part.as_os_str().to_string_lossy().trim_end_matches(".rs")))
    };
    let inside = sources().into_iter().filter_map(|path| {
        let rest = path.strip_prefix(&src).ok()?.to_owned();
        let top = rest.components().next()?.as_os_str().to_string_lossy();
        Some((top.trim_end_matches(".rs").to_owned(), path)).filter(|_| !is_test(&rest))
    });
    inside.collect()
}

/// A source without comments and without the tests at its end.
fn code_of(path: &Path) -> String {
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The modules that a source names after `crate::`, in braces or not.
fn imports(code: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            found.push(rest.chars().take_while(|c| is_word(*c)).collect());
            continue;
        };
        let (mut depth, mut word, mut is_first) = (0, String::new(), true);
        for c in list.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                c if is_word(c) && depth == 0 && is_first => word.push(c),
                ',' if depth == 0 => {
                    found.push(std::mem::take(&mut word));
                    is_first = true;
                }
                ':' => is_first = false,
                _ => {}
            }
        }
        found.push(word);
    }
    found
}

#[test]
fn modules_point_down() {
    let mut wrong = Vec::new();
    for (krate, lines) in MODULES {
        let level = |name: &str| lines.iter().position(|line| line.contains(&name));
        for (top, path) in modules_of(krate) {
            if top == "lib" {
                continue;
            }
            let Some(own) = level(&top) else {
                wrong.push(format!("{krate}: the module {top} has no place in MODULES"));
                continue;
            };
            for name in imports(&code_of(&path)) {
                if let Some(theirs) = level(&name)
                    && theirs > own
                {
                    wrong.push(format!(
                        "{}: {top} is below {name} and must not import it",
                        path.display()
                    ));
                }
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Plugins and authorizers that have the name of a kind, with the module that may name each.
const NAMESAKES: [(&str, &str); 6] = [
    ("admission", "\"MutatingAdmissionPolicy\""),
    ("admission", "\"ResourceQuota\""),
    ("admission", "\"RuntimeClass\""),
    ("admission", "\"ServiceAccount\""),
    ("admission", "\"ValidatingAdmissionPolicy\""),
    ("node_authorizer", "\"Node\""),
];

/// What is known of a kind is in its module: no other module of the registry names it.
#[test]
fn kinds_are_named_only_in_their_modules() {
    let facts = root().join("crates/facts/src/generated/resources.rs");
    let facts = std::fs::read_to_string(facts).expect("the facts are there");
    let kinds: Vec<String> = facts
        .lines()
        .filter(|line| line.starts_with("Resource {"))
        .filter_map(|line| line.split("kind: ").nth(1)?.split(',').next().map(str::to_owned))
        .collect();
    assert!(kinds.contains(&"\"Pod\"".to_owned()), "kinds are read from the facts");
    let outside = modules_of("registry").into_iter().filter(|(top, _)| top != "kind");
    let mut wrong = Vec::new();
    for (top, path) in outside {
        let code = code_of(&path);
        let is_namesake = |kind: &str| NAMESAKES.contains(&(&*top, kind));
        wrong.extend(
            kinds
                .iter()
                .filter(|kind| code.contains(kind.as_str()) && !is_namesake(kind))
                .map(|kind| format!("{} names {kind}", path.display())),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
