//! `cargo xtask mutations`: checks that simulations detect broken rules.
//!
//! Each mutation changes one place of a crate's source so that a rule is broken. They are applied
//! to a copy of the crate in a scratch workspace below the target folder, never to the product. All
//! mutations of a crate are in one build: each is behind a condition, and the test of the copy
//! (`tests/simulation/mutations.rs`) turns on one after the other and expects the simulation to
//! fail.
//!
//! The scratch workspace has the mutated crates and those that depend on them. It refers to all
//! other crates where they are, and shares the target folder, so that external crates are compiled
//! once.

use crate::cargo::{cargo, root, target_folder};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A change of source that breaks a rule.
struct Mutation {
    /// The name by which the test turns it on.
    name: &'static str,
    /// The original text, found exactly once in the crate's source.
    find: &'static str,
    /// The text in its place. `BROKEN` is the condition that it is turned on.
    replace: &'static str,
}

/// A crate whose simulation is checked.
struct Simulation {
    /// The folder of the mutated crate.
    folder: &'static str,
    /// The package that has the simulation, and its folder.
    package: (&'static str, &'static str),
    mutations: &'static [Mutation],
}

const SIMULATIONS: &[Simulation] = &[
    Simulation {
        folder: "crates/informer",
        package: ("setpoint-informer", "crates/informer"),
        mutations: INFORMER,
    },
    Simulation {
        folder: "crates/runtime",
        package: ("setpoint", "crates/setpoint"),
        mutations: RUNTIME,
    },
];

const RUNTIME: &[Mutation] = &[
    // A failed pass is not retried (RES-5).
    Mutation {
        name: "ForgetsFailures",
        find: "self.queue.add_failed(key.clone(), &**error, again);",
        replace: "if !BROKEN { self.queue.add_failed(key.clone(), &**error, again); }",
    },
    // A failed pass is retried without back-off (RES-5).
    Mutation {
        name: "RetriesAtOnce",
        find: "let again = self.requeue_options(item, Cause::Retry, priority_of(&**error));",
        replace: "let again = self.requeue_options(item, Cause::Retry, priority_of(&**error));
            if BROKEN { return self.queue.add_with(key.clone(), again); }",
    },
    // A pass that panicked is not retried (RES-8).
    Mutation {
        name: "ForgetsPanics",
        find: "count(&counters.panics);",
        replace: "count(&counters.panics);
            if BROKEN { return Ok(PassOutcome::Panic(cut(message))); }",
    },
    // A key whose pass succeeded is requeued without a reason (RES-1).
    Mutation {
        name: "ComesBackUnasked",
        find: "count(&counters.success);",
        replace: "count(&counters.success);
            if BROKEN {
                let delay = std::time::Duration::from_secs(1);
                self.queue.add_with(key.clone(), again(Cause::Timer).after(delay));
            }",
    },
    // A stopped controller does not wait for its passes (CTL-4).
    Mutation {
        name: "LeavesPasses",
        find: "        queue.shut_down();\n        loop {",
        replace: "        queue.shut_down();
            if BROKEN { workers.detach_all(); }
            loop {",
    },
    // Workers start before this process leads (MGR-6).
    Mutation {
        name: "StartsUnelected",
        find: "if !environment.go.is_cancelled() {",
        replace: "if !environment.go.is_cancelled() && !BROKEN {",
    },
];

const INFORMER: &[Mutation] = &[
    // A relist does not report deletions (FIFO-12, EVT-4).
    Mutation {
        name: "NoTombstonesOnRelist",
        find: "phase: if has_deleted {",
        replace: "phase: if has_deleted && !BROKEN {",
    },
    // Versions are recorded while a watch replays existing objects, in any order (REF-12, REF-21).
    Mutation {
        name: "UnorderedVersions",
        find: "*is_ordered |= !matches!(frame, WatchFrame::Added(_));",
        replace: "*is_ordered |= !matches!(frame, WatchFrame::Added(_)) || BROKEN;",
    },
    // A streamed list that ends too soon is taken for whole (REF-11 e).
    Mutation {
        name: "PartialStream",
        find: "                _ => return Ok(Err(Retry::Now)),",
        replace: "                _ => {
                    if BROKEN {
                        let resource_version = self.state.resource_version.clone();
                        self.hand_over(items, resource_version, opened).await?;
                    }
                    return Ok(Err(Retry::Now));
                }",
    },
    // A deletion is lost when it finds the delta queue occupied (FIFO-10).
    Mutation {
        name: "DropsDeletes",
        find: "delta::push(&*self.queue, delta).await",
        replace: "if BROKEN && matches!(delta, Delta::Deleted(_)) && !self.queue.is_empty() {
                return Ok(());
            }
            delta::push(&*self.queue, delta).await",
    },
    // A late handler misses an object (SHI-3).
    Mutation {
        name: "LateHandlerRaces",
        find: "let cursors = none.insert((old, new));",
        replace: "let mut new = new;
                    if BROKEN && self.old.is_empty() { new.advance(); }
                    let cursors = none.insert((old, new));",
    },
    // A handler's full queue keeps the older of two notifications of a key (SHI-5).
    Mutation {
        name: "MergeKeepsOlder",
        find: "match merge(waiting, event) {",
        replace: "if BROKEN { return self.put(place, waiting); }
            match merge(waiting, event) {",
    },
    // Continue requests carry the version (REF-2).
    Mutation {
        name: "PagesCarryVersion",
        find: "limit: first.limit,",
        replace: "resource_version: if BROKEN { resource_version } else { String::new() },
                limit: first.limit,",
    },
    // A relist requests any state (REF-1 b).
    Mutation {
        name: "RelistsAtZero",
        find: "() if state.resource_version.is_empty() => \"0\",",
        replace: "() if BROKEN || state.resource_version.is_empty() => \"0\",",
    },
    // The informer reports that it has synced when it starts (SHI-9).
    Mutation {
        name: "SyncedAtOnce",
        find: "let mut consumer = Box::pin(consume(shared.clone(), queue.clone(), stop.clone()));",
        replace: "if BROKEN { shared.board.synced(); }
            let mut consumer = Box::pin(consume(shared.clone(), queue.clone(), stop.clone()));",
    },
    // An index keeps an object's former values (IDX-7).
    Mutation {
        name: "IndexKeepsOld",
        find: "let old = old.as_ref().map_or(&[][..], |held| held.values(n));",
        replace: "let old = old.as_ref().filter(|_| !BROKEN).map_or(&[][..], |held| held.values(n));",
    },
    // Too many requests at the opening of a watch lead to a list (REF-30 b).
    Mutation {
        name: "BusyRelists",
        find: "Err(error) if error.is_refused() || error.is_too_many_requests() => {",
        replace: "Err(error)
                        if !BROKEN && (error.is_refused() || error.is_too_many_requests()) =>
                    {",
    },
    // Every watch has the same timeout (2.1).
    Mutation {
        name: "ConstantTimeout",
        find: "            resource_version,\n            timeout: Duration::from_secs(self.rng.random_range(min..2 * min)),",
        replace: "resource_version, timeout: Duration::from_secs(
                self.rng.random_range(min..if BROKEN { min + 1 } else { 2 * min })),",
    },
    // The version of a skipped object is recorded (REF-24).
    Mutation {
        name: "RecordsSkipped",
        find: "            Err(error) => {
                self.skip(error);
                return Ok(());
            }",
        replace: "            Err(error) => {
                if BROKEN { self.reached(&version_of(object).unwrap_or_default()); }
                self.skip(error);
                return Ok(());
            }",
    },
    // The verb decides whether something is an addition (EVT-2).
    Mutation {
        name: "VerbDecides",
        find: "Some(old) => Event::Updated { old, new: object },",
        replace: "Some(_) if BROKEN => Event::Added { object, in_initial_list: false },
            Some(old) => Event::Updated { old, new: object },",
    },
];

/// The end of a mutated crate's root: which mutation is turned on.
const SWITCH: &str = "
/// The mutations of this copy.
pub mod mutant {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    static CURRENT: AtomicUsize = AtomicUsize::new(usize::MAX);

    /// All mutations.
    pub const NAMES: &[&str] = &[LIST];

    /// Turns on one mutation in the whole process, or none.
    pub fn set(name: Option<&str>) {
        let at = NAMES.iter().position(|known| name == Some(*known));
        assert!(name.is_none() || at.is_some(), \"there is no mutation {name:?}\");
        CURRENT.store(at.unwrap_or(usize::MAX), Relaxed);
    }

    pub(crate) fn is(mutation: usize) -> bool {
        CURRENT.load(Relaxed) == mutation
    }
}
";

/// Runs the chore: builds the copies, and runs their tests.
pub(crate) fn run() -> Result<()> {
    let root = root();
    let target = target_folder()?;
    let scratch = target.join("mutations");
    write(&root, &scratch)?;
    for Simulation { package: (package, _), .. } in SIMULATIONS {
        let mut cargo = cargo();
        cargo.current_dir(&scratch).env("CARGO_TARGET_DIR", &target);
        cargo.args(["test", "--package", package, "--test", "simulation", "mutations"]);
        let status = cargo.status().context("cannot start cargo")?;
        ensure!(status.success(), "{cargo:?} failed");
    }
    Ok(())
}

/// A package, as `cargo metadata` describes it.
#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    path: Option<PathBuf>,
}

/// Writes the scratch workspace. Files that do not change are left as they are, so that cargo does
/// not compile them again.
fn write(root: &Path, scratch: &Path) -> Result<()> {
    let folders = copied(root)?;
    let mut files: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--"])
        .args(&folders)
        .current_dir(root)
        .output()
        .context("git lists files")?;
    for path in String::from_utf8(listed.stdout)?.lines().map(PathBuf::from) {
        // A deleted file may be listed until the deletion is committed.
        if let Ok(content) = fs::read(root.join(&path)) {
            files.insert(path, content);
        }
    }
    for simulation in SIMULATIONS {
        mutate(simulation, &mut files)?;
    }
    files.insert("Cargo.toml".into(), manifest(root, &folders)?.into_bytes());
    for entry in list(scratch)? {
        let path = entry.strip_prefix(scratch)?;
        if !files.contains_key(path) && path != Path::new("Cargo.lock") {
            fs::remove_file(&entry)?;
        }
    }
    for (path, content) in &files {
        let path = scratch.join(path);
        if fs::read(&path).is_ok_and(|found| found == *content) {
            continue;
        }
        fs::create_dir_all(path.parent().context("a file in a folder")?)?;
        fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
    }
    // The same versions of external crates.
    fs::copy(root.join("Cargo.lock"), scratch.join("Cargo.lock")).context("copy Cargo.lock")?;
    Ok(())
}

/// The folders of the mutated crates and of those that depend on them, as far as the simulations
/// need them.
fn copied(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let Metadata { packages } = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let folder = |package: &Package| {
        let folder = package.manifest_path.parent().unwrap_or(Path::new(""));
        folder.strip_prefix(root).unwrap_or(folder).to_owned()
    };
    // Dependencies by folder.
    let mut edges: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    for package in &packages {
        let paths = package.dependencies.iter().filter_map(|dependency| dependency.path.as_ref());
        let paths = paths.map(|path| path.strip_prefix(root).unwrap_or(path).to_owned());
        edges.insert(folder(package), paths.collect());
    }
    let mut needed = BTreeSet::new();
    for Simulation { package: (name, at), .. } in SIMULATIONS {
        let is_known = packages.iter().any(|package| package.name == *name);
        ensure!(is_known && edges.contains_key(Path::new(at)), "no package {name} in {at}");
        reach(Path::new(at), &edges, &mut needed);
    }
    let is_mutated =
        |folder: &Path| SIMULATIONS.iter().any(|simulation| Path::new(simulation.folder) == folder);
    Ok(needed
        .into_iter()
        .filter(|folder| {
            let mut below = BTreeSet::new();
            reach(folder, &edges, &mut below);
            below.iter().any(|folder| is_mutated(folder))
        })
        .collect())
}

/// Adds a folder and the folders that it depends on.
fn reach(
    folder: &Path,
    edges: &BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    found: &mut BTreeSet<PathBuf>,
) {
    if found.insert(folder.to_owned()) {
        for next in edges.get(folder).into_iter().flatten() {
            reach(next, edges, found);
        }
    }
}

/// The manifest of the scratch workspace: other members, another version, so that artifacts of
/// copies are not taken for those of the originals, and paths to crates that are not copied.
fn manifest(root: &Path, folders: &BTreeSet<PathBuf>) -> Result<String> {
    let text = fs::read_to_string(root.join("Cargo.toml"))?;
    let mut out = String::new();
    for line in text.lines() {
        if line.starts_with("members = ") {
            let members: Vec<_> =
                folders.iter().map(|folder| folder.display().to_string()).collect();
            out.push_str(&format!("members = {members:?}\n"));
        } else if line.starts_with("version = ") {
            out.push_str("version = \"0.0.0\"\n");
        } else if line.starts_with("default-members = ") {
            continue;
        } else if let Some((before, rest)) = line.split_once("path = \"")
            && let Some((path, after)) = rest.split_once('"')
            && !folders.contains(Path::new(path))
        {
            let path = root.join(path);
            out.push_str(&format!("{before}path = {:?}{after}\n", path.display().to_string()));
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    Ok(out)
}

/// Applies the mutations of a crate, and adds the test that turns them on.
fn mutate(simulation: &Simulation, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    let source = Path::new(simulation.folder).join("src");
    for (n, mutation) in simulation.mutations.iter().enumerate() {
        let Mutation { name, find, replace } = mutation;
        let mut places = files.iter_mut().filter(|(path, content)| {
            path.starts_with(&source) && String::from_utf8_lossy(content).contains(find)
        });
        let (Some((_, content)), None) = (places.next(), places.next()) else {
            bail!("the original of {name} is not in exactly one file of {}", source.display());
        };
        let text = String::from_utf8(content.clone())?;
        ensure!(text.matches(find).count() == 1, "the original of {name} is there twice");
        let replace = replace.replace("BROKEN", &format!("crate::mutant::is({n})"));
        *content = text.replace(find, &replace).into_bytes();
    }
    let names: Vec<String> =
        simulation.mutations.iter().map(|mutation| format!("{:?}", mutation.name)).collect();
    append(files, &source.join("lib.rs"), &SWITCH.replace("LIST", &names.join(", ")))?;
    let tests = Path::new(simulation.package.1).join("tests/simulation/main.rs");
    append(files, &tests, "\nmod mutations;\n")
}

fn append(files: &mut BTreeMap<PathBuf, Vec<u8>>, path: &Path, text: &str) -> Result<()> {
    let content = files.get_mut(path).with_context(|| format!("no file {}", path.display()))?;
    content.extend(text.as_bytes());
    Ok(())
}

/// The files in a folder and below.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(list(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The source of a crate and its simulation.
    fn files(simulation: &Simulation) -> BTreeMap<PathBuf, Vec<u8>> {
        let root = root();
        let (_, package) = simulation.package;
        let folders =
            [root.join(simulation.folder).join("src"), root.join(package).join("tests/simulation")];
        let paths = folders.iter().flat_map(|folder| list(folder).unwrap());
        paths
            .map(|path| (path.strip_prefix(&root).unwrap().to_owned(), fs::read(&path).unwrap()))
            .collect()
    }

    #[test]
    fn every_mutation_has_its_original_once_and_a_test() {
        for simulation in SIMULATIONS {
            let mut files = files(simulation);
            let test = Path::new(simulation.package.1).join("tests/simulation/mutations.rs");
            let test = String::from_utf8(files[&test].clone()).unwrap();
            for Mutation { name, .. } in simulation.mutations {
                assert!(test.contains(&format!("\"{name}\"")), "no test turns on {name}");
            }
            mutate(simulation, &mut files).unwrap();
        }
    }

    #[test]
    fn scratch_workspace_has_mutated_crates_and_their_dependents() {
        let folders = copied(&root()).unwrap();
        for folder in ["crates/informer", "crates/runtime", "crates/setpoint", "crates/testenv"] {
            assert!(folders.contains(Path::new(folder)), "{folder}: {folders:?}");
        }
        for folder in ["crates/store", "crates/registry", "crates/object", "crates/cli"] {
            assert!(!folders.contains(Path::new(folder)), "{folder}: {folders:?}");
        }
        let manifest = manifest(&root(), &folders).unwrap();
        assert!(manifest.contains("setpoint-runtime = { path = \"crates/runtime\""), "{manifest}");
        let object = format!("path = {:?}", root().join("crates/object").display().to_string());
        assert!(manifest.contains(&object), "{manifest}");
    }
}
