//! `setpoint up`: a control plane behind a socket.

use crate::data::control::Control;
use crate::encryption::{self, EncryptionOptions};
use crate::kubeconfig;
use crate::log::{self, LogFormat};
use crate::pki_folder;
use crate::store_options::{StoreOptions, open_store};
use anyhow::Context as _;
use clap::Args;
use setpoint::ControlPlane;
use setpoint_apiserver::listen::{Listener, Pki};
use setpoint_apiserver::{Credentials, Identity};
use setpoint_object::time::Clock;
use setpoint_runtime::election::machine_identity;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Threads that serve: what a control plane does is short, and the rest of the machine is its users'.
const WORKERS: usize = 2;

/// How far back watches of before a restart may go on. Clients are seldom further behind, and reading them takes a moment.
const REPLAYED_REVISIONS: u64 = 10_000;

/// Options of `setpoint up`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreOptions,
    #[command(flatten)]
    encryption: EncryptionOptions,
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
    /// How long an Event is kept after it was written last: seconds, or a duration such as `1h30m`. Default: one hour.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    event_ttl: Option<Duration>,
    /// How far back watches, and pages of a list, may begin: older history is let go, in memory and in the store, which keeps up to twice
    /// as much. Less of it takes less memory and room; clients that are away longer list anew. Default: five minutes.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    history: Option<Duration>,
    /// How logs are written to standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
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
    let history = options.history.unwrap_or(setpoint_registry::HISTORY_PERIOD);
    let open = tokio::select! {
        biased;
        // Cancel safe: the program ends.
        open = open_store(&options.store, &clock, history) => open?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    let names = [options.bind_address.to_string()];
    let pki = match open.disk() {
        // The open store holds the folder's lock.
        Some((_, folder)) => pki_folder::open(folder, clock.now(), &names)?,
        None => Pki::generate(clock.now(), &names).context("make certificates")?,
    };
    let wrapped = encryption::wrap(open.store.clone(), &options.encryption)?;
    let mut plane = ControlPlane::builder()
        .store(wrapped.store)
        .replayed_revisions(REPLAYED_REVISIONS)
        .event_ttl(options.event_ttl.unwrap_or(setpoint_registry::EVENT_TTL))
        .history(history)
        .clock(clock)
        .credentials(Credentials::none().token(pki.admin_token(), Identity::admin()));
    if open.is_shared() {
        plane = plane.shared_as(machine_identity().context("ask the machine for chance")?);
    }
    let plane = plane.build();
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
    if let Some((disk, folder)) = open.disk() {
        let control = Control::bind(folder, disk.clone())?;
        let stop = stop_listeners.clone();
        listeners.spawn(control.run(stop));
    }
    if let Some(reloader) = wrapped.reloader {
        let stop = stop_listeners.clone();
        listeners.spawn(reloader.run(stop));
    }
    let mut running = JoinSet::new();
    running.spawn(plane.run(stop_plane.clone()));

    let is_ready = tokio::select! {
        // Cancel safe: it is state, and not asked again.
        started = ready.wait_for(|ready| *ready) => {
            started.context("start the registry")?;
            true
        }
        Some(ended) = running.join_next() => return ended?.context("start the control plane"),
        // Cancel safe: whichever comes first ends the program.
        _ = interrupt.recv() => false,
        _ = terminate.recv() => false,
    };
    if is_ready {
        announce(&url, &path)?;
        tokio::select! {
            // Cancel safe: whichever comes first ends the program.
            _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
            _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
            Some(ended) = running.join_next() => return ended?.context("run the control plane"),
        }
    }
    // Listeners first, so that what is being answered is answered by something that still runs.
    stop_listeners.cancel();
    while listeners.join_next().await.is_some() {}
    stop_plane.cancel();
    while let Some(ended) = running.join_next().await {
        ended?.context("stop the control plane")?;
    }
    open.close().await;
    Ok(())
}

/// `90`, `90s`, `1h0m0s`: whole hours, minutes and seconds, at least one second in all.
fn duration(text: &str) -> Result<Duration, String> {
    let (mut sum, mut number) = (0_u64, String::new());
    // A bare number counts seconds.
    for c in text.chars().chain((!text.ends_with(['h', 'm', 's'])).then_some('s')) {
        let unit = match c {
            '0'..='9' => {
                number.push(c);
                continue;
            }
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return Err("give hours, minutes and seconds: 1h30m".into()),
        };
        let n = number.parse::<u64>().map_err(|error| error.to_string())?;
        let seconds = n.checked_mul(unit).and_then(|seconds| sum.checked_add(seconds));
        sum = seconds.ok_or("too long")?;
        number.clear();
    }
    if sum == 0 { Err("at least one second".into()) } else { Ok(Duration::from_secs(sum)) }
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

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_are_read_as_kube_apiserver_is_given_them() {
        let seconds = |text| duration(text).map(|ttl| ttl.as_secs()).ok();
        assert_eq!(seconds("1h0m0s"), Some(3600));
        assert_eq!(seconds("90s"), Some(90));
        assert_eq!(seconds("1m5"), Some(65));
        assert_eq!(seconds("7"), Some(7));
        for bad in ["", "0", "0s", "h", "1d", "-1s", "1.5s", "99999999999999999999h"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
