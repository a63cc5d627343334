//! `setpoint demo`: the whole loop in one process, told step by step.

use anyhow::{Context as _, bail};
use clap::Args;
use network::backend::LocalBackend;
use setpoint::object::time::Clock;
use setpoint::runtime::{ControllerState, Manager, cancel_on_signal};
use setpoint::{ControlPlane, ServeOptions};
use setpoint_cli::story::{self, Events, Journal, NAMESPACE, NETWORK, Told};
use similar::TextDiff;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The controller's first and longest pause after a failure: short, for nobody should wait for a
/// story.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// Options of `setpoint demo`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Check what each step comes to, then exit: 0 when everything is as it should be.
    #[arg(long)]
    once: bool,
    /// Port of the HTTPS listener; 0 picks a free one.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    secure_port: u16,
}

/// Tells the story, then stays up until Ctrl-C.
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
    // What the demo made goes with it.
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
    println!("An API server runs in this process: {url}\n");

    let registry = folder.join("networks.json");
    let backend = Arc::new(LocalBackend::open(&registry).await?);
    let mut manager = Manager::builder(client.clone())
        .clock(clock)
        .cache(network::controller::cache().backoff(BACKOFF.0, BACKOFF.1))
        .build();
    let controller = manager.add(network::controller::controller(backend.clone())?)?;
    let mut controlling = JoinSet::new();
    controlling.spawn(manager.run(stop_controller.clone()));

    let mut wrong = Vec::new();
    let mut n = 0;
    let reconciles = || controller.state() == ControllerState::Running;
    let story = story::tell(&client, reconciles, journal, Events::Arrive, |told| {
        n += 1;
        narrate(n, told, &journal.drain());
        if !told.is_right() {
            wrong.push(told.clone());
        }
    });
    let signals = cancel_on_signal(stop_controller.clone());
    tokio::pin!(signals);
    tokio::select! {
        told = story => told?,
        signal = &mut signals => match signal.context("listen for signals")? {},
        () = stop_controller.cancelled() => bail!("interrupted"),
    }
    let held = backend.all().await;
    if !held.is_empty() {
        bail!("the address registry still holds {held:?}");
    }
    for told in &wrong {
        let diff = TextDiff::from_lines(told.expected, &told.seen);
        eprintln!("{}:\n{}", told.title, diff.unified_diff().header("expected", "seen"));
    }
    if !wrong.is_empty() {
        bail!("{} of {n} steps ended otherwise than they should", wrong.len());
    }
    println!("All {n} steps are as they should be.");
    if !options.once {
        invite(&kubeconfig);
        tokio::select! {
            signal = &mut signals => match signal.context("listen for signals")? {},
            () = stop_controller.cancelled() => {}
        }
    }
    // In the order of who needs whom: the controller writes until it has stopped.
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

fn narrate(n: usize, told: &Told, journal: &[String]) {
    let indented =
        |text: &str| text.lines().map(|line| format!("      {line}\n")).collect::<String>();
    println!("{n}. {}", told.title);
    match told.declared.lines().count() {
        0 => {}
        // A definition is long: its beginning says what it is.
        13.. => println!(
            "   declared (its first lines)\n{}",
            indented(&told.declared.lines().take(8).collect::<Vec<_>>().join("\n"))
        ),
        _ => println!("   declared\n{}", indented(told.declared)),
    }
    let lines = if journal.is_empty() { "nothing new".to_owned() } else { journal.join("\n") };
    println!("   the controller\n{}", indented(&lines));
    println!(
        "   seen {}\n{}",
        if told.is_right() { "(as it should be)" } else { "(NOT as it should be)" },
        indented(&told.seen)
    );
}

fn invite(kubeconfig: &std::path::Path) {
    println!(
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
    );
}
