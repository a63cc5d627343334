//! A control plane that runs, and what runs beside it, until a signal.

use crate::audit::Log;
use crate::data::control::Control;
use crate::encryption::Keepers;
use crate::envtest::parent::{Parent, remove_leftovers};
use crate::envtest::planes::PlanesWorker;
use crate::nodes::Processes;
use crate::store_options::OpenStore;
use crate::token_signer::Signer;
use anyhow::Context as _;
use setpoint::kube_client::Client;
use setpoint::object::time::Clock;
use setpoint::otlp::Exporter;
use setpoint::{ServeError, Serving};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// The signals that stop the program.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on, no signal ends the program by itself.
    pub(super) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("listen for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
        })
    }

    /// The name of the next one. Cancel safe.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            // Cancel safe: a dropped `recv` has taken nothing.
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// What runs beside the control plane.
pub(super) struct Beside {
    /// The store, which is closed last.
    pub(super) open: OpenStore,
    pub(super) audit: Vec<Log>,
    pub(super) exporter: Option<Exporter>,
    pub(super) keepers: Option<Keepers>,
    /// The program that signs tokens.
    pub(super) signer: Option<Arc<Signer>>,
    /// Further control planes of a test harness.
    pub(super) planes: Option<PlanesWorker>,
    /// Nodes whose pods are processes. They start once the control plane is ready.
    pub(super) processes: Option<Processes>,
    /// The clock of those nodes.
    pub(super) clock: Clock,
}

/// A control plane whose listeners are open, with its tasks.
pub(super) struct Running {
    open: OpenStore,
    /// Becomes true once requests are served.
    ready: watch::Receiver<bool>,
    serving: JoinSet<Result<(), ServeError>>,
    stop: CancellationToken,
    /// Tasks that end after the control plane, except for the harness's planes.
    background: JoinSet<()>,
    stop_background: CancellationToken,
    /// What process nodes use.
    client: Client,
    clock: Clock,
    processes: Option<Processes>,
    /// They end before the control plane, to which they report.
    nodes: JoinSet<anyhow::Result<()>>,
    stop_nodes: CancellationToken,
}

/// Why the program stops.
enum Cause {
    /// A signal, or the process nodes have ended, which may have failed: without them no pod runs.
    Asked(Option<anyhow::Error>),
    /// The process that started this one has ended.
    Orphaned,
    /// The control plane has ended by itself.
    Ended(anyhow::Result<()>),
}

impl Running {
    /// Spawns the tasks. `client` is for process nodes.
    ///
    /// # Errors
    ///
    /// The socket of the data folder cannot be opened.
    pub(super) fn start(serving: Serving, client: Client, beside: Beside) -> anyhow::Result<Self> {
        let Beside { open, audit, exporter, keepers, signer, planes, processes, clock } = beside;
        let ready = serving.ready();
        let (stop, stop_background) = (CancellationToken::new(), CancellationToken::new());
        let mut background = JoinSet::new();
        if let Some((disk, folder)) = open.disk() {
            let control = Control::bind(folder, disk.clone())?;
            background.spawn(control.run(stop_background.clone()));
        }
        for (_, worker) in audit {
            // Ends after the control plane, so that the last requests are written.
            background.spawn(worker.run(stop_background.clone()));
        }
        if let Some(exporter) = exporter {
            // Ends after the control plane as well.
            background.spawn(exporter.run(stop_background.clone()));
        }
        if let Some(keepers) = keepers {
            background.spawn(keepers.run(stop_background.clone()));
        }
        if let Some(signer) = signer {
            background.spawn(signer.run(stop_background.clone()));
        }
        if let Some(worker) = planes {
            // Ends at once: answers that last as long as a plane would keep the listener open.
            background.spawn(worker.run(stop.clone()));
        }
        let mut running = JoinSet::new();
        running.spawn(serving.run(stop.clone()));
        Ok(Self {
            open,
            ready,
            serving: running,
            stop,
            background,
            stop_background,
            client,
            clock,
            processes,
            nodes: JoinSet::new(),
            stop_nodes: CancellationToken::new(),
        })
    }

    /// Runs until a signal, or until `parent` has ended; then `leftovers` are removed. Calls
    /// `announce` once requests are served.
    ///
    /// # Errors
    ///
    /// The control plane or the process nodes have failed, or `announce` has.
    pub(super) async fn run(
        mut self,
        announce: impl FnOnce() -> anyhow::Result<()>,
        (parent, leftovers): (Option<Parent>, Vec<PathBuf>),
        signals: &mut Signals,
    ) -> anyhow::Result<()> {
        let mut orphaned = pin!(async move {
            match parent {
                Some(parent) => parent.ended().await,
                None => std::future::pending().await,
            }
        });
        let cause = match self.started(signals, orphaned.as_mut()).await? {
            Some(cause) => cause,
            None => {
                if let Some(processes) = self.processes.take() {
                    let (client, clock) = (self.client.clone(), self.clock.clone());
                    self.nodes.spawn(processes.run(client, clock, self.stop_nodes.clone()));
                }
                announce()?;
                self.served(signals, orphaned).await
            }
        };
        if let Cause::Ended(ended) = cause {
            return ended;
        }
        tokio::select! {
            biased;
            stopped = self.stop(cause, leftovers) => stopped,
            // Cancel safe: the process ends. As after a kill, acknowledged writes are in the store.
            name = signals.next() => end_at_once(name),
        }
    }

    /// Waits until requests are served. `Some`: the program stops before that.
    async fn started(
        &mut self,
        signals: &mut Signals,
        orphaned: Pin<&mut impl Future<Output = ()>>,
    ) -> anyhow::Result<Option<Cause>> {
        let Self { open, ready, serving, .. } = self;
        tokio::select! {
            // Cancel safe: a dropped `join_next` has taken no result.
            Some(ended) = serving.join_next() => {
                Ok(Some(Cause::Ended(of_plane(ended, "start the control plane", open))))
            }
            // Cancel safe: it waits for a state and is not polled again.
            started = ready.wait_for(|ready| *ready) => {
                started.context("start the registry")?;
                Ok(None)
            }
            // Cancel safe: the first signal ends the program.
            _ = signals.next() => Ok(Some(Cause::Asked(None))),
            () = orphaned => Ok(Some(Cause::Orphaned)),
        }
    }

    /// Waits until the program has to stop.
    async fn served(
        &mut self,
        signals: &mut Signals,
        orphaned: Pin<&mut impl Future<Output = ()>>,
    ) -> Cause {
        tokio::select! {
            // Cancel safe: the first signal ends the program.
            name = signals.next() => {
                tracing::info!("{name}: stopping");
                Cause::Asked(None)
            }
            () = orphaned => Cause::Orphaned,
            // Cancel safe: a dropped `join_next` has taken no result.
            Some(ended) = self.nodes.join_next() => Cause::Asked(failed_nodes(ended)),
            Some(ended) = self.serving.join_next() => {
                Cause::Ended(of_plane(ended, "run the control plane", &self.open))
            }
        }
    }

    /// Stops everything in order: process nodes, the control plane, the background, the store.
    async fn stop(mut self, cause: Cause, leftovers: Vec<PathBuf>) -> anyhow::Result<()> {
        let is_orphan = matches!(cause, Cause::Orphaned);
        let mut failure = match cause {
            Cause::Asked(failure) => failure,
            Cause::Orphaned | Cause::Ended(_) => None,
        };
        self.stop_nodes.cancel();
        while let Some(ended) = self.nodes.join_next().await {
            failure = failure.or(failed_nodes(ended));
        }
        if is_orphan {
            tracing::info!("the process that started this one has ended: stopping");
        }
        self.stop.cancel();
        while let Some(ended) = self.serving.join_next().await {
            ended?.context("stop the control plane")?;
        }
        self.stop_background.cancel();
        while self.background.join_next().await.is_some() {}
        self.open.close().await;
        if is_orphan {
            remove_leftovers(&leftovers);
        }
        failure.map_or(Ok(()), Err)
    }
}

/// How the control plane has ended. If the store is damaged, that is why.
fn of_plane(
    ended: Result<Result<(), ServeError>, JoinError>,
    what: &'static str,
    open: &OpenStore,
) -> anyhow::Result<()> {
    ended?.context(what).map_err(|error| open.cause_of(error))
}

/// Why the process nodes have ended, if they have failed.
fn failed_nodes(ended: Result<anyhow::Result<()>, JoinError>) -> Option<anyhow::Error> {
    ended.context("join the process nodes").flatten().err()
}

/// Ends the process without waiting for requests, or for a disk that does not answer.
fn end_at_once(signal: &str) -> ! {
    tracing::warn!("{signal} while stopping: ending at once");
    std::process::exit(1)
}
