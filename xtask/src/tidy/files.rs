//! Files are read within bounds, and found where a program runs.

use super::{code_of, sources};
use crate::cargo::root;
use std::path::{Path, PathBuf};

/// Calls that read a file as a whole, or open it to be read. kube-client's read kubeconfigs and
/// what they name.
const CALLS: [&str; 6] = [
    "fs::read(",
    "fs::read_to_string(",
    "File::open(",
    "Kubeconfig::read",
    "Config::from_kubeconfig(",
    "Config::infer(",
];

/// Sources that may use them, with the reason. All others use `setpoint_small_file`, which is
/// bounded in bytes and time.
const READERS: &[(&str, &str)] = &[
    ("crates/audit/src/log_file.rs", "looks at the end of its own file"),
    ("crates/audit/src/old_files.rs", "copies its own rotated files in pieces"),
    ("crates/cli/src/data.rs", "reads backups in pieces, and syncs folders"),
    ("crates/cli/src/data/control.rs", "opens a folder"),
    ("crates/cli/src/envtest/install.rs", "a marker that it has written"),
    ("crates/control-plane/src/process_metrics.rs", "files of the kernel"),
    ("crates/control-plane/src/serve/cert_dir.rs", "syncs folders"),
    ("crates/process-node/src/guard.rs", "files of the kernel"),
    ("crates/process-node/src/logs.rs", "reads logs in pieces"),
    ("crates/process-node/src/node.rs", "files of the kernel"),
    ("crates/store/src/disk/file.rs", "its own file"),
    ("crates/store/src/disk/journal.rs", "its own journal, whose length is bounded"),
    ("crates/store/src/disk/lock.rs", "its own folder"),
];

/// Whether a source has a call: `LogFile::open(` is another one than `File::open(`.
fn calls(code: &str, call: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(call).any(|(at, _)| !code[..at].ends_with(is_word))
}

/// Whether a source is part of a crate's tests.
fn is_test(path: &Path) -> bool {
    let names = ["tests", "testing", "simulation"];
    path.components()
        .any(|part| names.contains(&part.as_os_str().to_string_lossy().trim_end_matches(".rs")))
}

/// Whether a source is part of what a crate does.
pub(super) fn is_product(path: &Path) -> bool {
    let mut parts = path.components().map(|part| part.as_os_str());
    parts.next().is_some_and(|part| part == "crates")
        && parts.nth(1).is_some_and(|part| part == "src")
        && !is_test(path)
}

#[test]
fn files_that_users_name_are_read_within_bounds() {
    let mut wrong = Vec::new();
    let mut used = Vec::new();
    for path in sources().into_iter().filter(|path| is_product(path)) {
        let code = code_of(&path);
        let found: Vec<_> = CALLS.into_iter().filter(|call| calls(&code, call)).collect();
        let name = path.display().to_string();
        if found.is_empty() {
            continue;
        }
        match READERS.iter().find(|(reader, _)| *reader == name) {
            Some((reader, _)) => used.push(*reader),
            None => wrong.push(format!("{name}: {}", found.join(" "))),
        }
    }
    assert!(wrong.is_empty(), "use setpoint_small_file: {wrong:#?}");
    let unused: Vec<_> = READERS.iter().filter(|(name, _)| !used.contains(name)).collect();
    assert!(unused.is_empty(), "they read no files any more: {unused:#?}");
}

/// Programs that know where they were built, with the reason.
const PLACED: &[(&str, &str)] = &[
    ("benches/src/results.rs", "started by hand, from any folder"),
    ("xtask/src/cargo.rs", "the fallback where cargo did not start it"),
];

/// Two checkouts may share a target folder, and what one of them built is then run in the other.
/// Cargo runs tests in their package's folder, so their paths start there.
#[test]
fn tests_find_their_files_from_where_they_run() {
    let place = concat!("env!(\"CARGO_", "MANIFEST_DIR\")");
    let wrong: Vec<PathBuf> = sources()
        .into_iter()
        .filter(|path| !PLACED.iter().any(|(placed, _)| Path::new(placed) == path))
        .filter(|path| {
            let code = std::fs::read_to_string(root().join(path)).unwrap();
            // What is included is read while it is built.
            let included = code.matches(&format!("include_str!(concat!({place}")).count();
            code.matches(place).count() > included
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?} look where they were built");
}
