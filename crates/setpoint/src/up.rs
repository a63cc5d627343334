//! `setpoint up`: a control plane behind a socket.
//!
//! This is the program's edge: the wall clock is read here, and the seed comes from it.

use crate::kubeconfig;
use crate::log::{self, LogFormat};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use setpoint::ControlPlane;
use setpoint_apiserver::listen::{Listener, Pki};
use setpoint_apiserver::{Credentials, Identity};
use setpoint_object::time::Clock;
use setpoint_store::{MemoryStore, Store};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Threads that serve: what a control plane does is short, and the rest of the machine is its users'.
const WORKERS: usize = 2;

/// Options of `setpoint up`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What objects are kept in.
    #[arg(long, value_enum, default_value_t = StoreKind::Memory)]
    store: StoreKind,
    /// Port of the HTTPS listener; 0 picks a free one.
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    secure_port: u16,
    /// Address of the HTTPS listener.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "IP")]
    bind_address: IpAddr,
    /// Port of a listener on 127.0.0.1 without TLS and without authentication; 0 picks a free one. Off by default.
    #[arg(long, value_name = "PORT")]
    insecure_port: Option<u16>,
    /// Where the administrator's kubeconfig is written. Default: a file named after the port, in the user's runtime directory
    /// or the directory of temporary files.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How logs are written to standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// What objects are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    /// This process's memory; gone when it ends.
    Memory,
}

/// Starts a control plane, prints one line when it serves, and runs until SIGINT or SIGTERM.
pub(crate) fn up(options: Options) -> anyhow::Result<()> {
    log::init(options.log_format)?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("start the runtime")?
        .block_on(serve(options))
}

async fn serve(options: Options) -> anyhow::Result<()> {
    // Before anything is served: a signal during start-up must not be lost.
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;

    let clock = Clock::wall();
    let pki = Pki::generate(clock.now(), &[options.bind_address.to_string()])
        .context("make certificates")?;
    let store: Arc<dyn Store> = match options.store {
        StoreKind::Memory => Arc::new(MemoryStore::default()),
    };
    let plane = ControlPlane::builder()
        .store(store)
        // Nanoseconds since 1970: no two starts have the same.
        .seed(u64::try_from(clock.now().0.as_nanos()).unwrap_or(u64::MAX))
        .clock(clock)
        .credentials(Credentials::none().token(pki.admin_token(), Identity::admin()))
        .build();
    let address = SocketAddr::new(options.bind_address, options.secure_port);
    let secure = Listener::secure(plane.server().clone(), address, &pki).await?;
    let insecure = match options.insecure_port {
        Some(port) => {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            Some(Listener::insecure(plane.server().clone(), address).await?)
        }
        None => None,
    };
    let url = url(secure.address());
    let path = options.kubeconfig.unwrap_or_else(|| default_path(secure.address().port()));
    kubeconfig::write(&path, &kubeconfig::render(&url, &pki)?)?;
    if let Some(insecure) = &insecure {
        tracing::info!(
            url = format!("http://{}", insecure.address()),
            "serving without authentication"
        );
    }

    let mut ready = plane.ready();
    let stop_listeners = CancellationToken::new();
    let stop_plane = CancellationToken::new();
    let mut listeners = JoinSet::new();
    for listener in std::iter::once(secure).chain(insecure) {
        listeners.spawn(listener.run(stop_listeners.clone()));
    }
    let mut running = JoinSet::new();
    running.spawn(plane.run(stop_plane.clone()));

    tokio::select! {
        // Cancel safe: it is state, and not asked again.
        started = ready.wait_for(|ready| *ready) => drop(started.context("start the registry")?),
        Some(ended) = running.join_next() => return ended?.context("start the control plane"),
    }
    announce(&url, &path)?;

    tokio::select! {
        // Cancel safe: whichever comes first ends the program.
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        Some(ended) = running.join_next() => return ended?.context("run the control plane"),
    }
    // Listeners first, so that what is being answered is answered by something that still runs.
    stop_listeners.cancel();
    while listeners.join_next().await.is_some() {}
    stop_plane.cancel();
    while let Some(ended) = running.join_next().await {
        ended?.context("stop the control plane")?;
    }
    Ok(())
}

/// The one line on standard output.
fn announce(url: &str, kubeconfig: &std::path::Path) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready {url} kubeconfig={}", kubeconfig.display())
        .and_then(|()| out.flush())
        .context("write to standard output")
}

/// How clients on this machine reach an address.
fn url(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("https://localhost:{}", address.port())
    } else {
        format!("https://{address}")
    }
}

fn default_path(port: u16) -> PathBuf {
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_dir())
        .unwrap_or_else(std::env::temp_dir)
        .join(format!("setpoint-{port}.kubeconfig"))
}
