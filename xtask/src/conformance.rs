//! `cargo xtask conformance`: runs Kubernetes' end-to-end specs against `setpoint up` and writes
//! `docs/conformance.md`.
//!
//! The program's nodes run no containers, so specs that need output of a container, or packets, are
//! not run: `conformance/needs.txt` says which and why. The others are divided among several
//! servers, each with an `e2e.test` of its own, so that specs that change a whole server do not
//! meet.

pub(crate) mod page;

use crate::cargo::{cargo, root, target_folder};
use crate::ginkgo::{Report, first_lines};
use crate::parts::Parts;
use crate::started::Started;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The specs of the page: Kubernetes' conformance, and all of these groups. Those of Windows and of
/// clouds need such nodes.
const FOCUS: &str = r"\[Conformance\]|\[sig-(api-machinery|apps|architecture|auth|autoscaling|cli|cluster-lifecycle|instrumentation|network|node|scheduling|storage|testing)\]";
/// Part of the names of specs that need addresses of both families.
const DUAL_STACK: &str = "[Feature:IPv6DualStack]";
/// The addresses of Services of both families.
const BOTH_FAMILIES: &str = "10.96.0.0/16,fd00:10:96::/112";
/// The default class of claims, as most clusters have one.
const STORAGE_CLASS: &str = r#"{
    "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
    "metadata": {
        "name": "standard",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}
    },
    "provisioner": "volumes.setpoint.dev/simulated"
}"#;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program `e2e.test` of a Kubernetes release.
    #[arg(long)]
    e2e: PathBuf,
    /// The built program (default: builds `setpoint` without optimization).
    #[arg(long)]
    program: Option<PathBuf>,
    /// Runs only specs whose names match, prints the outcome, and leaves the page alone.
    #[arg(long)]
    focus: Option<String>,
    /// How many servers the specs are divided among.
    #[arg(long, default_value_t = 2)]
    servers: usize,
    /// The folder for kubeconfigs, reports and logs (default: a new one below the system's).
    #[arg(long)]
    work: Option<PathBuf>,
}

/// What became of a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// With the first line of the failure.
    Failed(String),
    /// Needs this, by its name in `needs.txt`, or `itself` for a spec that skipped itself.
    NotRun(String),
}

/// A spec and its outcome.
#[derive(Debug)]
struct Spec {
    name: String,
    outcome: Outcome,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let e2e = args.e2e.canonicalize().context("no such e2e.test")?;
    let kubectl = Parts::install()?.kubectl;
    let program = match &args.program {
        Some(program) => program.canonicalize().context("no such program")?,
        None => build()?,
    };
    let work = match &args.work {
        Some(work) => work.clone(),
        None => std::env::temp_dir().join(format!("setpoint-conformance-{}", std::process::id())),
    };
    std::fs::create_dir_all(&work).context("make the folder")?;
    let work = work.canonicalize()?;

    let mut specs = Vec::new();
    let mut wanted = Vec::new();
    let focus = args.focus.as_deref().unwrap_or(FOCUS);
    for report in all(&e2e, &work, focus)? {
        let name = report.name();
        let place = format!("{}: {name}", report.leaf_node_location.file_name);
        match need(&place) {
            Some(need) if args.focus.is_none() => {
                specs.push(Spec { name, outcome: Outcome::NotRun(need.to_owned()) });
            }
            _ => wanted.push(name),
        }
    }
    ensure!(!wanted.is_empty(), "no spec matches");
    println!(
        "{} specs, {} of them are run; logs in {}",
        specs.len() + wanted.len(),
        wanted.len(),
        work.display()
    );
    let (dual, single): (Vec<&str>, Vec<&str>) =
        wanted.iter().map(String::as_str).partition(|name| name.contains(DUAL_STACK));
    let n_servers = args.servers.clamp(1, wanted.len());
    let part =
        |n: usize| -> Vec<&str> { single.iter().skip(n).step_by(n_servers).copied().collect() };
    let parts = (0..n_servers).map(|n| (n.to_string(), part(n))).chain([("dual".to_owned(), dual)]);
    let shards = parts.filter(|(_, names): &(String, Vec<&str>)| !names.is_empty());
    let ran: Vec<Result<Vec<Spec>>> = std::thread::scope(|scope| {
        let shards: Vec<_> = shards
            .map(|(folder, names)| {
                let folder = work.join(folder);
                let (e2e, program, kubectl) = (&e2e, &program, &kubectl);
                scope.spawn(move || run_shard(e2e, program, kubectl, &folder, &names))
            })
            .collect();
        let lost = || bail!("a thread panicked");
        shards.into_iter().map(|shard| shard.join().unwrap_or_else(|_| lost())).collect()
    });
    for ran in ran {
        specs.extend(ran?);
    }
    for spec in &specs {
        if let Outcome::Failed(why) = &spec.outcome {
            println!("failed: {}\n    {why}", spec.name);
        }
    }
    let n_passed = specs.iter().filter(|spec| spec.outcome == Outcome::Passed).count();
    println!("{n_passed} of {} passed", wanted.len());
    if args.focus.is_none() {
        let server = format!("{}, {}", version(&program)?, build_of(&program));
        let page = page::page(&specs, &version(&e2e)?, &server)?;
        std::fs::write(root().join(page::PATH), page).context(page::PATH)?;
        crate::pages::run()?;
    }
    Ok(())
}

/// Builds the program.
pub(crate) fn build() -> Result<PathBuf> {
    let status = cargo().args(["build", "--package", "setpoint-cli"]).status();
    ensure!(status.context("cannot start cargo")?.success(), "setpoint-cli does not build");
    target_folder()?.join("debug/setpoint").canonicalize().context("the built program")
}

/// How a program was built, by its folder.
fn build_of(program: &Path) -> &'static str {
    let is_in = |folder: &str| program.components().any(|part| part.as_os_str() == folder);
    match () {
        () if is_in("dist") || is_in("guided") => "as it is shipped",
        () if is_in("release") => "built with `--release`",
        () => "built without optimization",
    }
}

pub(crate) fn version(program: &Path) -> Result<String> {
    let is_ours = program.file_name().is_some_and(|name| name == "setpoint");
    let argument = if is_ours { "version" } else { "--version" };
    let output = Command::new(program).arg(argument).output().context("ask for a version")?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().last().unwrap_or_default().to_owned())
}

/// The specs of a focus, without running them.
fn all(e2e: &Path, work: &Path, focus: &str) -> Result<Vec<Report>> {
    let report = work.join("specs.json");
    let output = Command::new(e2e)
        .args(["--provider=skeleton", "--kubeconfig=/dev/null", "--ginkgo.dry-run"])
        .arg(format!("--ginkgo.focus={focus}"))
        .arg(format!("--ginkgo.json-report={}", report.display()))
        .current_dir(work)
        .output()
        .context("start e2e.test")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    specs(&report)
}

/// The specs of a report.
fn specs(report: &Path) -> Result<Vec<Report>> {
    Ok(crate::ginkgo::read(report)?.into_iter().filter(Report::is_spec).collect())
}

/// The needs of a spec beyond an API server, by its file and name.
fn need(place: &str) -> Option<&'static str> {
    let lines = include_str!("conformance/needs.txt").lines();
    let mut lines =
        lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" | "));
    let (need, _) = lines.find(|(_, part)| place.contains(part))?;
    (need != "-").then_some(need)
}

/// Runs specs against a server of their own.
fn run_shard(
    e2e: &Path,
    program: &Path,
    kubectl: &Path,
    folder: &Path,
    names: &[&str],
) -> Result<Vec<Spec>> {
    std::fs::create_dir_all(folder)?;
    let file = |name: &str| folder.join(name);
    let log = |name: &str| std::fs::File::create(file(name)).context("make a log");
    let kubeconfig = file("kubeconfig");
    let mut up = Command::new(program);
    // Of all addresses, so that it publishes one as the endpoint of the Service `kubernetes`.
    up.args(["up", "--nodes", "4", "--bind-address", "0.0.0.0", "--secure-port", "0"]);
    // As kubeadm starts it.
    up.args(["--authorization-mode", "Node,RBAC", "--enable-bootstrap-token-auth"]);
    up.args(["--enable-admission-plugins", "NodeRestriction"]);
    if names.iter().any(|name| name.contains(DUAL_STACK)) {
        up.args(["--service-cluster-ip-range", BOTH_FAMILIES]);
    }
    up.arg("--kubeconfig").arg(&kubeconfig);
    let _server = Started::up(&mut up, &file("server.log"))?;
    std::fs::write(file("class.json"), STORAGE_CLASS)?;
    let mut create = Command::new(kubectl);
    create.arg("--kubeconfig").arg(&kubeconfig).args(["create", "-f"]).arg(file("class.json"));
    let created = create.output().context("start kubectl")?;
    ensure!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));

    let focus: Vec<String> = names.iter().map(|name| escaped(name)).collect();
    let report = file("report.json");
    let ended = Command::new(e2e)
        .args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--num-nodes=0"])
        .args([
            "--dump-logs-on-failure=false",
            "--ginkgo.v",
            "--ginkgo.no-color",
            "--ginkgo.timeout=3h",
        ])
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--kubectl-path={}", kubectl.display()))
        // Names are matched behind the name of the suite.
        .arg(format!("--ginkgo.focus=({})$", focus.join("|")))
        .arg(format!("--ginkgo.json-report={}", report.display()))
        // kubectl keeps what it has discovered below it.
        .env("HOME", folder)
        .current_dir(folder)
        .stdout(log("e2e.log")?)
        .stderr(log("e2e.err")?)
        .status();
    // Failed specs make it fail.
    ended.context("start e2e.test")?;
    let specs = specs(&report)?.into_iter().map(|report| {
        let name = report.name();
        let message = report.failure.unwrap_or_default().message;
        let outcome = match &*report.state {
            "passed" => Outcome::Passed,
            "skipped" => Outcome::NotRun("itself".to_owned()),
            _ => Outcome::Failed(first_lines(&message)),
        };
        Spec { name, outcome }
    });
    Ok(specs.collect())
}

/// A name as a regular expression.
fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len() + 16);
    for c in name.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{escaped, need};

    #[test]
    fn the_first_line_that_matches_says_what_a_spec_needs() {
        let of = |name: &str| need(&format!("test/e2e/network/service.go: [sig-network] {name}"));
        assert_eq!(of("Services should serve a basic endpoint from pods"), Some("container"));
        assert_eq!(of("Services should complete a service status lifecycle"), None);
        assert_eq!(need("test/e2e/apimachinery/watch.go: [sig-api-machinery] Watchers"), None);
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escaped("[sig-a] b (c.d)"), r"\[sig-a\] b \(c\.d\)");
    }
}
