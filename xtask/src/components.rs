//! `cargo xtask components`: runs Kubernetes' own kubelet, scheduler and kube-proxy with
//! `setpoint up`, and with kube-apiserver and kube-controller-manager, and writes
//! `docs/components.md`.
//!
//! The kubelets are those of kubemark: the kubelet's code over a container runtime that runs
//! nothing. They join with a bootstrap token, as nodes of a new cluster do, and have no other
//! rights than those of nodes. The steps of `components/steps.txt` are commands of kubectl; both
//! sides must do each in its time. The audit log says what the components asked, and what they
//! were answered.

mod asked;
mod page;
mod side;

use crate::cargo::{root, target_folder};
use crate::laid_over::Source;
use crate::program;
use anyhow::{Context, Result, bail};
use side::{Cluster, Side};
use std::fs;
use std::path::{Path, PathBuf};

/// The programs that are built from the source.
const PROGRAMS: [&str; 5] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubemark", "kubectl"];
/// The release that they are built as.
const VERSION: &str = "-ldflags=-X=k8s.io/component-base/version.gitVersion=v1.36.2";
/// The names of the nodes.
const NODES: [&str; 2] = ["node-1", "node-2"];

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// The program `etcd`.
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    /// The built program (default: builds `setpoint` without optimization).
    #[arg(long)]
    program: Option<PathBuf>,
    /// The folder for logs and stores (default: a new one below the system's).
    #[arg(long)]
    work: Option<PathBuf>,
    /// Runs only with `setpoint up`; prints the outcome, and leaves the page alone.
    #[arg(long)]
    ours_only: bool,
}

/// The programs of a run.
#[derive(Debug)]
struct Programs {
    setpoint: PathBuf,
    etcd: PathBuf,
    /// The folder of [`PROGRAMS`].
    built: PathBuf,
}

/// A step: commands that must succeed one after the other.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    name: &'static str,
    commands: Vec<Vec<&'static str>>,
}

/// What came of a step: the seconds it took, or why it failed.
type Outcome = std::result::Result<f64, String>;

/// What came of one side.
#[derive(Debug)]
struct Report {
    /// In the order of the steps.
    outcomes: Vec<Outcome>,
    asked: asked::Asked,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let setpoint = match &args.program {
        Some(program) => program.canonicalize().context("no such program")?,
        None => program::build("dev")?,
    };
    let built = target_folder()?.join("components");
    fs::create_dir_all(&built)?;
    for name in PROGRAMS {
        args.source.build_as(&[VERSION], name, &built.join(name))?;
    }
    let programs = Programs { setpoint, etcd: args.etcd.clone(), built };
    let own = || std::env::temp_dir().join(format!("setpoint-components-{}", std::process::id()));
    let work = args.work.clone().unwrap_or_else(own);
    fs::create_dir_all(&work).context("make the folder")?;
    let work = work.canonicalize()?;
    println!("logs in {}", work.display());

    let steps = steps();
    let ours = play(&programs, Side::Ours, &work.join("setpoint"), &steps)?;
    if !args.ours_only {
        let original = play(&programs, Side::Original, &work.join("originals"), &steps)?;
        let page = page::page(&steps, &ours, &original)?;
        fs::write(root().join(page::PATH), page).context(page::PATH)?;
    }
    Ok(())
}

/// Runs the steps with one side.
fn play(programs: &Programs, side: Side, work: &Path, steps: &[Step]) -> Result<Report> {
    println!("{side:?}");
    fs::create_dir_all(work)?;
    let workloads = work.join("workloads.yaml");
    fs::write(&workloads, include_str!("components/workloads.yaml"))?;
    let mut cluster = Cluster::new(programs, side, work)?;
    let mut outcomes = Vec::new();
    for step in steps {
        #[expect(clippy::disallowed_methods, reason = "the time of other processes is measured")]
        let begin = std::time::Instant::now();
        let done = step.commands.iter().try_for_each(|command| match &command[..] {
            ["@stop", node] => cluster.stop(node),
            ["@start", node] => cluster.join(programs, node),
            words => cluster.kubectl(programs, words, &workloads),
        });
        let seconds = begin.elapsed().as_secs_f64();
        match &done {
            Ok(()) => println!("    {}: {seconds:.1} s", step.name),
            Err(error) => println!("    failed: {}: {error:#}", step.name),
        }
        outcomes.push(done.map(|()| seconds).map_err(|error| format!("{error:#}")));
    }
    let log = cluster.end();
    let asked = asked::read(&fs::read_to_string(&log).context("the audit log")?)?;
    Ok(Report { outcomes, asked })
}

/// The steps of `steps.txt`.
fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let lines = include_str!("components/steps.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let Some((name, command)) = line.split_once(" | ") else { continue };
        if !name.is_empty() {
            steps.push(Step { name, commands: Vec::new() });
        }
        if let Some(step) = steps.last_mut() {
            step.commands.push(command.split(' ').collect());
        }
    }
    steps
}

/// Runs a command; an error has what it said last.
fn said(command: &mut std::process::Command) -> Result<()> {
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("{}", text.trim().lines().last().unwrap_or("no reason"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::steps;

    #[test]
    fn steps_have_their_commands() {
        let steps = steps();
        assert!(steps.iter().all(|step| !step.commands.is_empty()), "{steps:?}");
        assert_eq!(steps[0].commands.len(), 3);
        assert_eq!(steps[0].commands[0][..2], ["wait", "--for=create"]);
        assert!(steps.len() > 10);
    }
}
