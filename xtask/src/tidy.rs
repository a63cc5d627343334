//! The house rules that a test can hold: layers, names, sizes.

mod packaging;
mod pages;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each package's level: a package depends on lower levels only.
const LEVELS: &[(&str, u8)] = &[
    ("setpoint-workqueue", 0),
    ("setpoint-store", 0),
    ("setpoint-object", 0),
    ("setpoint-facts", 0),
    ("setpoint-log", 0),
    ("setpoint-macros", 0),
    ("setpoint-serve", 0),
    ("setpoint-encryption", 1),
    ("setpoint-informer", 1),
    ("setpoint-webhook", 1),
    ("setpoint-store-etcd", 1),
    ("setpoint-schema", 2),
    ("setpoint-runtime", 2),
    ("setpoint-registry", 3),
    ("setpoint-controllers", 3),
    ("setpoint-apiserver", 4),
    ("setpoint-control-plane", 5),
    ("setpoint-testenv", 6),
    ("setpoint", 7),
    ("network", 8),
    ("setpoint-cli", 9),
    ("pod-printer", 8),
    ("website", 8),
    ("bucket", 8),
    ("team", 8),
    ("replicas", 8),
    ("setpoint-benches", 8),
    ("website-kube-rs", 8),
    ("website-setpoint", 8),
    ("setpoint-fuzz", 8),
    ("xtask", 8),
];

/// What a package must not reach, at any depth, beyond what its level says: the reader's side of
/// each wall.
const WALLS: &[(&str, &[&str])] = &[
    // The two halves meet on the wire only.
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
    ("setpoint-webhook", &["setpoint-store", "setpoint-workqueue", "kube-client"]),
    ("setpoint-workqueue", &["http", "hyper", "kube-core", "k8s-openapi"]),
    (
        "setpoint-store",
        &["http", "hyper", "serde_json", "kube-core", "k8s-openapi", "setpoint-object"],
    ),
    ("setpoint-object", &["http", "hyper", "kube-core", "k8s-openapi", "setpoint-store"]),
    ("setpoint-schema", &["http", "hyper", "kube-core", "k8s-openapi", "setpoint-store"]),
    ("setpoint-facts", &["setpoint-object"]),
    ("setpoint-serve", &["kube-core", "k8s-openapi", "setpoint-object"]),
];

/// The peer that no product crate may depend on.
const PEER: &str = "kube-runtime";

/// The most lines a source file has, generated data aside.
const FILE_LINES_MAX: usize = 600;

/// The longest line of a comment, in columns; rows of tables, diagrams and listings aside.
const COMMENT_COLUMNS_MAX: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// Direct normal dependencies of every package of the workspace and of what they depend on.
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
fn walls_stand() {
    let dependencies = dependencies();
    let mut wrong = Vec::new();
    for (package, forbidden) in WALLS {
        let mut reached = vec![(*package).to_owned()];
        let mut next = 0;
        while let Some(name) = reached.get(next).cloned() {
            for dependency in dependencies.get(&name).into_iter().flatten() {
                // The in-process client is an optional feature, which cargo metadata counts as on.
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
fn the_product_does_not_stand_on_its_peer() {
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
fn no_file_is_a_drawer() {
    let drawers = ["utils", "util", "helpers", "helper", "common", "misc"];
    let wrong: Vec<_> = sources()
        .into_iter()
        .filter(|path| {
            path.components().any(|part| {
                drawers.contains(&part.as_os_str().to_string_lossy().trim_end_matches(".rs"))
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn files_stay_one_noun_long() {
    let generated = Path::new("crates/facts/src/generated");
    let mut wrong = Vec::new();
    for path in sources().into_iter().filter(|path| !path.starts_with(generated)) {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            wrong.push(format!("{}: {lines} lines", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn comments_end_at_their_column() {
    let generated = Path::new("crates/facts/src/generated");
    let mut wrong = Vec::new();
    for path in sources().into_iter().filter(|path| !path.starts_with(generated)) {
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

/// Pages show the files that are compiled.
#[test]
fn pages_show_what_is_compiled() {
    let docs = root().join("docs");
    for (page, files) in [
        ("side-by-side", &["website_controller.go", "kube_rs.rs", "setpoint.rs"][..]),
        ("testing", &["copier.rs"]),
    ] {
        let text = std::fs::read_to_string(docs.join(page).with_extension("md")).unwrap();
        for file in files {
            let shown = std::fs::read_to_string(docs.join(page).join(file)).unwrap();
            assert!(text.contains(&shown), "docs/{page}.md does not show {file} as it is");
        }
    }
}

/// The first page for users shows the files that are compiled and run, and names the packages that
/// they depend on.
#[test]
fn getting_started_shows_what_is_compiled() {
    let page = std::fs::read_to_string(root().join("docs/getting-started.md")).unwrap();
    let example = root().join("examples/website");
    for file in ["src/lib.rs", "src/main.rs", "tests/website.rs", "website.json"] {
        let shown = std::fs::read_to_string(example.join(file)).unwrap();
        assert!(page.contains(&shown), "docs/getting-started.md does not show {file} as it is");
    }
    let manifest = std::fs::read_to_string(example.join("Cargo.toml")).unwrap();
    let dependencies = manifest.split_once("\n[dependencies]\n").unwrap().1;
    let packages = dependencies.lines().filter_map(|line| line.split([' ', '.']).next());
    for package in packages.filter(|package| !package.is_empty() && !package.starts_with('[')) {
        let line = format!("\n{package} = ");
        assert!(page.contains(&line), "docs/getting-started.md does not depend on {package}");
    }
}

/// The order of the modules of a crate: a module imports from those above it in its list only, or
/// from its own line.
///
/// Modules of one line know each other where they are two halves of one thing.
const MODULES: &[(&str, &[&[&str]])] = &[
    (
        "registry",
        &[
            &[
                "followed",
                "foreign",
                "origins",
                "request",
                "stored",
                "verb",
                "subresource",
                "threads",
            ],
            // The cells that a kind's rows are printed with.
            &["table"],
            &["kind"],
            // A row keeps how its objects are converted, and a conversion needs the row.
            &["catalog", "convert", "conversion"],
            &["attributes", "scale", "allocate"],
            &["connect", "authorize"],
            // Fed by the store; of kinds it knows their rows.
            &["cache"],
            // Plugins look objects up.
            &["shared", "admission"],
            &["read"],
            &["watch"],
            &["write", "bootstrap"],
            &["crd"],
            &["registry"],
        ],
    ),
    (
        "apiserver",
        &[
            &["go", "scan", "version"],
            &["query", "negotiate", "verb"],
            &["body", "options", "route", "table"],
            // A long list is written within the places that a filter counts, and a refusal by both.
            &["filter", "list", "respond"],
            // Who answers for others, and what is listed of it.
            &["extra", "backend"],
            &["discovery", "health", "observe", "openapi", "websocket"],
            &["root", "proxy"],
            // What a server shares is asked for by those it calls.
            &["server", "pipeline", "resource", "watch"],
            &["client", "listen"],
        ],
    ),
];

/// The source files of a crate that are not tests, with the name of their top module.
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

/// The modules that a source names behind `crate::`, in braces or not.
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

/// What the server knows about a kind is in the kind's room: no other module of the registry names
/// one.
#[test]
fn kinds_are_named_in_their_rooms() {
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
    for (_, path) in outside {
        let code = code_of(&path);
        wrong.extend(
            kinds
                .iter()
                .filter(|kind| code.contains(kind.as_str()))
                .map(|kind| format!("{} names {kind}", path.display())),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
