//! `cargo xtask compare`: the same scenarios with Kubernetes' own kube-controller-manager and with
//! the controllers of `setpoint up`, both over this server, its nodes and its scheduler. Writes
//! `docs/original-controllers.md`.
//!
//! kube-controller-manager runs with `--use-service-account-credentials`, so each of its
//! controllers is a service account of its own, and RBAC decides what it may do.

mod normal;
mod page;
mod play;

use crate::cargo::root;
use crate::conformance;
use crate::parts::Parts;
use crate::started::Started;
use anyhow::{Context, Result, bail, ensure};
use normal::Snapshot;
use play::{Played, Scenario};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program `kube-controller-manager` of a Kubernetes release.
    #[arg(long)]
    kcm: PathBuf,
    /// Its flag `--controllers`: what a distribution has added can be left out.
    #[arg(long, default_value = "*", allow_hyphen_values = true)]
    kcm_controllers: String,
    /// The built program (default: builds `setpoint` without optimization).
    #[arg(long)]
    program: Option<PathBuf>,
    /// kubectl (default: the one of the tests).
    #[arg(long)]
    kubectl: Option<PathBuf>,
    /// Runs only this scenario, prints the differences, and leaves the page alone.
    #[arg(long)]
    scenario: Option<String>,
    /// How many scenarios run at a time.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// The folder for logs (default: a new one below the system's).
    #[arg(long)]
    work: Option<PathBuf>,
}

/// Which controllers a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Original,
}

/// One difference of one scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Difference {
    scenario: String,
    /// The snapshots that have it.
    at: Vec<String>,
    /// What differs: an object and a path, an event, or an order.
    what: String,
    ours: String,
    original: String,
}

/// What a side has done.
struct Outcome {
    played: BTreeMap<String, Played>,
    /// Requests per user, and those that were forbidden.
    requests: BTreeMap<String, usize>,
    forbidden: BTreeSet<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let kcm = args.kcm.canonicalize().context("no such kube-controller-manager")?;
    let kubectl = match &args.kubectl {
        Some(kubectl) => kubectl.canonicalize().context("no such kubectl")?,
        None => Parts::install()?.kubectl,
    };
    let program = match &args.program {
        Some(program) => program.canonicalize().context("no such program")?,
        None => conformance::build()?,
    };
    let work = match &args.work {
        Some(work) => work.clone(),
        None => std::env::temp_dir().join(format!("setpoint-compare-{}", std::process::id())),
    };
    std::fs::create_dir_all(&work).context("make the folder")?;
    let work = work.canonicalize()?;
    let mut scenarios = play::scenarios();
    if let Some(wanted) = &args.scenario {
        scenarios.retain(|scenario| scenario.name == *wanted);
        ensure!(!scenarios.is_empty(), "no such scenario");
    }
    println!("{} scenarios; logs in {}", scenarios.len(), work.display());
    let side = |side| {
        let (kcm, kubectl, program, scenarios) = (&kcm, &kubectl, &program, &scenarios);
        let folder = work.join(format!("{side:?}").to_lowercase());
        let controllers = (side == Side::Original).then_some((kcm, &*args.kcm_controllers));
        move || run_side(controllers, program, kubectl, &folder, scenarios, args.jobs)
    };
    let (ours, original) = std::thread::scope(|scope| {
        let ours = scope.spawn(side(Side::Ours));
        let original = scope.spawn(side(Side::Original));
        (joined(ours.join()), joined(original.join()))
    });
    let (ours, original) = (ours?, original?);
    let mut differences = Vec::new();
    for scenario in &scenarios {
        let none = Played::default();
        let of = |outcome: &Outcome| outcome.played.get(&scenario.name).cloned();
        let ours = of(&ours).unwrap_or_else(|| none.clone());
        let original = of(&original).unwrap_or(none);
        differences.extend(compare(&scenario.name, &ours, &original));
    }
    let unknown = differences.iter().filter(|difference| page::reason(difference).is_none());
    let n_unknown = unknown.clone().count();
    for difference in unknown {
        println!(
            "{} [{}] {}\n    ours:     {}\n    original: {}",
            difference.scenario,
            difference.at.join(", "),
            difference.what,
            difference.ours,
            difference.original
        );
    }
    for user in &original.forbidden {
        println!("forbidden: {user}");
    }
    if args.scenario.is_none() {
        let version = conformance::version(&kcm)?;
        // A build without version stamps shows their template.
        let version = if version.contains('$') { "built from source" } else { &version };
        let page = page::page(&scenarios, &differences, &original, version, &args.kcm_controllers)?;
        std::fs::write(root().join(page::PATH), page).context(page::PATH)?;
    }
    ensure!(n_unknown == 0, "{n_unknown} differences without a reason in compare/known.txt");
    println!("{} differences, each with a reason", differences.len());
    Ok(())
}

fn joined<T>(result: std::thread::Result<Result<T>>) -> Result<T> {
    result.unwrap_or_else(|_| bail!("a thread panicked"))
}

/// Plays all scenarios on a server of their own.
fn run_side(
    kcm: Option<(&PathBuf, &str)>,
    program: &Path,
    kubectl: &Path,
    folder: &Path,
    scenarios: &[Scenario],
    jobs: usize,
) -> Result<Outcome> {
    std::fs::create_dir_all(folder)?;
    let file = |name: &str| folder.join(name);
    let log = |name: &str| std::fs::File::create(file(name)).context("make a log");
    let rule = |who: &str, names: &[&str]| json!({"level": "Metadata", who: names});
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            rule("userGroups", &["system:serviceaccounts:kube-system"]),
            rule("users", &["system:admin"]),
            {"level": "None"},
        ],
    });
    std::fs::write(file("audit.json"), policy.to_string())?;
    let kubeconfig = file("kubeconfig");
    let mut up = Command::new(program);
    up.args(["up", "--nodes", "4", "--secure-port", "0"]);
    up.arg("--kubeconfig").arg(&kubeconfig).arg("--cert-dir").arg(file("pki"));
    up.arg("--audit-policy-file").arg(file("audit.json"));
    up.arg("--audit-log-path").arg(file("audit.log"));
    if kcm.is_some() {
        // Without `*`, only the controllers that are named run: none.
        up.arg("--controllers=-nodelifecycle,-taint-eviction-controller");
    }
    let _server = Started::up(&mut up, &file("server.log"))?;

    let _original = match kcm {
        None => None,
        Some((kcm, controllers)) => {
            // The administrator acts as the user that RBAC's roles know.
            let config = std::fs::read_to_string(&kubeconfig)?;
            let user = "\n  user:\n";
            ensure!(config.matches(user).count() == 1, "one user in a kubeconfig");
            let acting = format!("{user}    as: system:kube-controller-manager\n");
            std::fs::write(file("kcm.kubeconfig"), config.replace(user, &acting))?;
            let flag = |name: &str, path: &str| format!("--{name}={}", file(path).display());
            let started = Command::new(kcm)
                .args(["--use-service-account-credentials=true", "--leader-elect=false"])
                .args(["--secure-port=0".to_owned(), format!("--controllers={controllers}")])
                .args([
                    flag("kubeconfig", "kcm.kubeconfig"),
                    flag("service-account-private-key-file", "pki/service-account.key"),
                    flag("root-ca-file", "pki/ca.crt"),
                    flag("cluster-signing-cert-file", "pki/ca.crt"),
                    flag("cluster-signing-key-file", "pki/ca.key"),
                    flag("flex-volume-plugin-dir", "volumes"),
                ])
                .stdout(log("kcm.out")?)
                .stderr(log("kcm.log")?)
                .spawn();
            Some(Started(started.context("start kube-controller-manager")?))
        }
    };
    let client = play::Client { kubectl, kubeconfig: &kubeconfig, folder };
    let mut watches = Vec::new();
    for (name, path) in play::WATCHES {
        let path = format!("{path}?watch=1&resourceVersion=0");
        let mut command = client.command();
        command.args(["get", "--raw", &path]).stdout(log(name)?).stderr(Stdio::null());
        watches.push(Started(command.spawn().context("start kubectl")?));
    }
    let played = Mutex::new(BTreeMap::new());
    let next = Mutex::new(scenarios.iter());
    std::thread::scope(|scope| {
        let worker = || -> Result<()> {
            loop {
                let scenario =
                    next.lock().map_err(|_| anyhow::anyhow!("a thread panicked"))?.next();
                let Some(scenario) = scenario else { return Ok(()) };
                let result = client.play(scenario).with_context(|| scenario.name.clone())?;
                let mut played = played.lock().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
                played.insert(scenario.name.clone(), result);
            }
        };
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| joined(worker.join()))
    })?;
    let (requests, forbidden) = requests(&file("audit.log"))?;
    let played = played.into_inner().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
    Ok(Outcome { played, requests, forbidden })
}

/// The number of requests by user, and the forbidden ones.
fn requests(log: &Path) -> Result<(BTreeMap<String, usize>, BTreeSet<String>)> {
    let (mut requests, mut forbidden) = (BTreeMap::new(), BTreeSet::new());
    for line in std::fs::read_to_string(log).context("the audit log")?.lines() {
        // The last line may be incomplete.
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let by = event.get("impersonatedUser").unwrap_or(&event["user"]);
        let user = by["username"].as_str().unwrap_or_default();
        if user == "system:admin" {
            continue;
        }
        *requests.entry(user.to_owned()).or_default() += 1;
        if event["responseStatus"]["code"] == 403 {
            let resource = event["objectRef"]["resource"].as_str().unwrap_or("-");
            let verb = event["verb"].as_str().unwrap_or_default();
            // A quota or a policy says 403 too; RBAC's answer is an annotation.
            if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
                forbidden.insert(format!("{user} {verb} {resource}"));
            }
        }
    }
    Ok((requests, forbidden))
}

/// The differences of a scenario, each once.
fn compare(scenario: &str, ours: &Played, original: &Played) -> Vec<Difference> {
    let mut found: Vec<Difference> = Vec::new();
    let mut add = |at: &str, what: String, ours: String, original: String| {
        let known = found
            .iter_mut()
            .find(|known| known.what == what && known.ours == ours && known.original == original);
        match known {
            Some(known) => known.at.push(at.to_owned()),
            None => {
                let (scenario, at) = (scenario.to_owned(), vec![at.to_owned()]);
                found.push(Difference { scenario, at, what, ours, original });
            }
        }
    };
    let none = Snapshot::default();
    for (at, (name, snapshot)) in ours.snapshots.iter().enumerate() {
        let other = original.snapshots.get(at).map_or(&none, |(_, snapshot)| snapshot);
        for (what, ours, original) in snapshot.differences(other) {
            add(name, what, ours, original);
        }
    }
    let failed = |played: &Played| played.failed.join("; ");
    if !ours.failed.is_empty() || !original.failed.is_empty() {
        add("end", "waits that failed".to_owned(), failed(ours), failed(original));
    }
    if ours.answers != original.answers {
        let show = |played: &Played| played.answers.join("; ");
        add("end", "answers of kubectl".to_owned(), show(ours), show(original));
    }
    for (what, ours, original) in normal::orders(&ours.orders, &original.orders) {
        add("end", what, ours, original);
    }
    found
}
