//! `setpoint demo`: the whole loop in one process, shown step by step.

use crate::print;
use anyhow::{Context as _, bail};
use clap::Args;
use network::backend::LocalBackend;
use setpoint::object::time::Clock;
use setpoint::runtime::{ControllerState, Manager, cancel_on_signal};
use setpoint::{ControlPlane, ServeOptions};
use setpoint_cli::story::{self, Events, Journal, NAMESPACE, NETWORK, StepOutcome};
use similar::TextDiff;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The controller's first and longest pause after a failure. Short, so that the demo does not wait.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// Options of `setpoint demo`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Check the result of every step, then exit: 0 if all are as expected.
    #[arg(long)]
    once: bool,
    /// Port of the HTTPS listener; 0 picks a free one.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    secure_port: u16,
}

/// Plays the demo, then runs until Ctrl-C.
pub(crate) fn demo(options: Options) -> anyhow::Result<()> {
    let journal = Journal::new();
    tracing_subscriber::registry()
        .with(journal.clone())
        .try_init()
        .context("set up the journal")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let folder = std::env::temp_dir().join(format!("setpoint-demo-{}", std::process::id()));
    let ended = runtime.block_on(run(options, &journal, folder.clone()));
    // Removes everything that the demo wrote.
    let _ = std::fs::remove_dir_all(&folder);
    ended
}

async fn run(options: Options, journal: &Journal, folder: PathBuf) -> anyhow::Result<()> {
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let clock = Clock::wall();
    let plane = ControlPlane::builder().clock(clock.clone()).build();
    let kubeconfig = folder.join("kubeconfig");
    let address = (Ipv4Addr::LOCALHOST, options.secure_port);
    let serving = plane.serve(ServeOptions::new(address).kubeconfig(&kubeconfig)).await?;
    let url = serving.url().to_owned();

    let client = serving.client();
    let mut ready = serving.ready();
    let stop = CancellationToken::new();
    let stop_controller = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(serving.run(stop.clone()));
    ready.wait_for(|ready| *ready).await.context("start the registry")?;
    print(format_args!("An API server runs in this process: {url}\n\n"))?;

    let registry = folder.join("networks.json");
    let backend = Arc::new(LocalBackend::open(&registry).await?);
    let mut manager = Manager::builder(client.clone())
        .clock(clock)
        .cache(network::controller::cache().backoff(BACKOFF.0, BACKOFF.1))
        .build();
    let controller = manager.add(network::controller::controller(backend.clone())?)?;
    let mut controlling = JoinSet::new();
    controlling.spawn(manager.run(stop_controller.clone()));

    let mut unexpected = Vec::new();
    let mut printed = Ok(());
    let mut n = 0;
    let reconciles = || controller.state() == ControllerState::Running;
    let story = story::run(&client, reconciles, journal, Events::Arrive, |outcome| {
        n += 1;
        let lines = journal.drain();
        if printed.is_ok() {
            printed = print_step(n, outcome, &lines);
        }
        if !outcome.is_expected() {
            unexpected.push(outcome.clone());
        }
    });
    let signals = cancel_on_signal(stop_controller.clone());
    tokio::pin!(signals);
    tokio::select! {
        result = story => result?,
        signal = &mut signals => match signal.context("listen for signals")? {},
        () = stop_controller.cancelled() => bail!("interrupted"),
    }
    printed?;
    let held = backend.all().await;
    if !held.is_empty() {
        bail!("the address registry still holds {held:?}");
    }
    for outcome in &unexpected {
        let diff = TextDiff::from_lines(outcome.expected, &outcome.observed);
        let diff = diff.unified_diff().header("expected", "observed").to_string();
        let _ = writeln!(std::io::stderr(), "{}:\n{diff}", outcome.title);
    }
    if !unexpected.is_empty() {
        bail!("{} of {n} steps did not end as expected", unexpected.len());
    }
    print(format_args!("All {n} steps ended as expected.\n"))?;
    if !options.once {
        print_next_steps(&kubeconfig)?;
        tokio::select! {
            signal = &mut signals => match signal.context("listen for signals")? {},
            () = stop_controller.cancelled() => {}
        }
    }
    // The controller stops first, because it needs the API server until it has stopped.
    stop_controller.cancel();
    while let Some(ended) = controlling.join_next().await {
        ended?.context("stop the controller")?;
    }
    stop.cancel();
    while let Some(ended) = running.join_next().await {
        ended?.context("stop the control plane")?;
    }
    Ok(())
}

fn print_step(n: usize, outcome: &StepOutcome, journal: &[String]) -> anyhow::Result<()> {
    let indented =
        |text: &str| text.lines().map(|line| format!("      {line}\n")).collect::<String>();
    print(format_args!("{n}. {}\n", outcome.title))?;
    match outcome.declared.lines().count() {
        0 => {}
        // A long manifest is cut to its first lines.
        13.. => print(format_args!(
            "   declared (first lines)\n{}\n",
            indented(&outcome.declared.lines().take(8).collect::<Vec<_>>().join("\n"))
        ))?,
        _ => print(format_args!("   declared\n{}\n", indented(outcome.declared)))?,
    }
    let lines = if journal.is_empty() { "no new log lines".to_owned() } else { journal.join("\n") };
    print(format_args!("   the controller\n{}\n", indented(&lines)))?;
    print(format_args!(
        "   observed {}\n{}\n",
        if outcome.is_expected() { "(as expected)" } else { "(NOT as expected)" },
        indented(&outcome.observed)
    ))
}

fn print_next_steps(kubeconfig: &std::path::Path) -> anyhow::Result<()> {
    print(format_args!(
        "\nThe control plane stays up until Ctrl-C. From another terminal:\n
  export KUBECONFIG={}
  kubectl get crd,networks
  kubectl explain network.spec
  kubectl apply -f examples/network/manifests/example-network.yaml
  kubectl get network {NETWORK} -o yaml
  kubectl describe network {NETWORK}
  kubectl get events -n {NAMESPACE}
  kubectl edit network {NETWORK}
  kubectl get networks -w
  kubectl delete network {NETWORK}
",
        kubeconfig.display()
    ))
}
