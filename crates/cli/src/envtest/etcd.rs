//! The program under the name `etcd`: one member, objects in memory.

use super::flags::{ParsedFlags, Style, Takes, help, parse};
use super::kube_apiserver::print;
use super::parent::{Parent, remove_leftovers};
use anyhow::{Context as _, bail};
use setpoint::log::LogFormat;
use setpoint::object::error::chain;
use setpoint_etcd_server::{EtcdServer, Options, VERSION};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The exit code for a command line that etcd's flag package refuses.
const BAD_FLAGS: u8 = 2;
/// Maximum number of addresses.
const URLS_MAX: usize = 16;

use Takes::{Bool, Value};

const USED: &[(&str, Takes)] = &[
    ("advertise-client-urls", Value),
    ("data-dir", Value),
    ("help", Bool),
    ("h", Bool),
    ("listen-client-urls", Value),
    ("max-request-bytes", Value),
    ("max-txn-ops", Value),
    ("name", Value),
    ("quota-backend-bytes", Value),
    ("version", Bool),
];

/// Flags of a cluster, of a disk and of tuning, which one member in memory does not need.
const WITHOUT_EFFECT: &[(&str, Takes)] = &[
    ("auth-token", Value),
    ("auth-token-ttl", Value),
    ("auto-compaction-mode", Value),
    ("auto-compaction-retention", Value),
    ("backend-batch-interval", Value),
    ("backend-batch-limit", Value),
    ("backend-bbolt-freelist-type", Value),
    ("bcrypt-cost", Value),
    ("cors", Value),
    ("election-timeout", Value),
    ("enable-grpc-gateway", Bool),
    ("enable-log-rotation", Bool),
    ("enable-pprof", Bool),
    ("enable-v2", Bool),
    ("force-new-cluster", Bool),
    ("grpc-keepalive-interval", Value),
    ("grpc-keepalive-min-time", Value),
    ("grpc-keepalive-timeout", Value),
    ("heartbeat-interval", Value),
    ("host-whitelist", Value),
    ("initial-advertise-peer-urls", Value),
    ("initial-cluster", Value),
    ("initial-cluster-state", Value),
    ("initial-cluster-token", Value),
    ("initial-election-tick-advance", Bool),
    ("listen-metrics-urls", Value),
    ("listen-peer-urls", Value),
    ("log-format", Value),
    ("log-level", Value),
    ("log-outputs", Value),
    ("log-rotation-config-json", Value),
    ("logger", Value),
    ("max-concurrent-streams", Value),
    ("max-snapshots", Value),
    ("max-wals", Value),
    ("metrics", Value),
    ("pre-vote", Bool),
    ("raft-read-timeout", Value),
    ("raft-write-timeout", Value),
    ("snapshot-count", Value),
    ("socket-reuse-address", Bool),
    ("socket-reuse-port", Bool),
    ("strict-reconfig-check", Bool),
    ("unsafe-no-fsync", Bool),
    ("v2-deprecation", Value),
    ("wal-dir", Value),
];

/// Flags of TLS, of discovery and of configuration files: refused, because a client that needs them
/// would not work.
const REFUSED: &[&str] = &[
    "auto-tls",
    "cert-file",
    "client-cert-auth",
    "config-file",
    "discovery",
    "discovery-srv",
    "key-file",
    "listen-client-http-urls",
    "peer-auto-tls",
    "peer-cert-file",
    "peer-client-cert-auth",
    "peer-key-file",
    "peer-trusted-ca-file",
    "trusted-ca-file",
];

fn takes(name: &str) -> Option<Takes> {
    let known = USED.iter().chain(WITHOUT_EFFECT).find(|(known, _)| *known == name);
    known.map(|(_, takes)| *takes).or_else(|| {
        let is_bool = name.ends_with("auto-tls") || name.ends_with("-auth");
        REFUSED.contains(&name).then_some(if is_bool { Bool } else { Value }).or_else(|| {
            // Their values, if they have one, follow a `=`.
            let is_experimental = name.starts_with("experimental-") || name.starts_with("feature-");
            is_experimental.then_some(Value)
        })
    })
}

/// Runs the program.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    if arguments.first().is_some_and(|argument| argument == "version") {
        return version();
    }
    let given = match parse("etcd", Style::Go, arguments, takes) {
        Ok(given) => given,
        Err(error) => {
            eprintln!("{error}\nUsage of etcd: etcd --help");
            return ExitCode::from(BAD_FLAGS);
        }
    };
    let asks = |names: [&str; 2]| {
        given.iter().any(|(name, value)| names.contains(&name.as_str()) && value == "true")
    };
    if asks(["help", "h"]) {
        let about = "etcd, as setpoint takes its place for tests: one member, in memory.";
        let flags = USED.iter().chain(WITHOUT_EFFECT).copied();
        return print(&help("etcd", about, flags));
    }
    if asks(["version", "version"]) {
        return version();
    }
    match start(&given) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("etcd: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn version() -> ExitCode {
    print(&format!("etcd Version: {VERSION}\nGit SHA: setpoint\n"))
}

/// The addresses of `http://host:port,...`.
fn addresses(urls: &str) -> anyhow::Result<Vec<&str>> {
    let urls: Vec<&str> = urls.split(',').filter(|url| !url.is_empty()).collect();
    if urls.len() > URLS_MAX {
        bail!("more than {URLS_MAX} addresses in --listen-client-urls");
    }
    if let Some(url) = urls.iter().find(|url| !url.starts_with("http://")) {
        bail!("{url}: only http:// is served");
    }
    let addresses = urls.into_iter().filter_map(|url| url.strip_prefix("http://"));
    Ok(addresses.map(|address| address.trim_end_matches('/')).collect())
}

fn start(given: &ParsedFlags) -> anyhow::Result<()> {
    let last: BTreeMap<&str, &str> =
        given.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    if let Some(name) = REFUSED.iter().find(|name| last.contains_key(**name)) {
        bail!("--{name} is a flag of etcd that setpoint does not have");
    }
    setpoint::log::init(LogFormat::Text)?;
    for (name, _) in WITHOUT_EFFECT.iter().filter(|(name, _)| last.contains_key(name)) {
        tracing::info!("--{name} has no effect: one member keeps everything in memory");
    }
    let number = |name: &str| -> anyhow::Result<Option<usize>> {
        let Some(text) = last.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let parsed = text.parse();
        Ok(Some(parsed.with_context(|| format!("invalid value {text:?} for flag -{name}"))?))
    };
    let mut options = Options::default();
    if let Some(name) = last.get("name") {
        options.name = (*name).to_owned();
    }
    if let Some(urls) = last.get("advertise-client-urls") {
        options.advertised = urls.split(',').map(str::to_owned).collect();
    }
    options.request_bytes_max = number("max-request-bytes")?.unwrap_or(options.request_bytes_max);
    options.txn_ops_max = number("max-txn-ops")?.unwrap_or(options.txn_ops_max);
    if let Some(quota) = number("quota-backend-bytes")?.filter(|quota| *quota > 0) {
        options.quota_bytes = quota;
    }
    let listen = last.get("listen-client-urls").copied().unwrap_or("http://localhost:2379");
    let addresses = addresses(listen)?;
    let leftovers: Vec<PathBuf> = last.get("data-dir").map(PathBuf::from).into_iter().collect();
    let parent = Parent::from_environment();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().build().context("start the runtime")?;
    runtime.block_on(serve(options, &addresses, parent, &leftovers))
}

async fn serve(
    options: Options,
    addresses: &[&str],
    parent: Parent,
    leftovers: &[PathBuf],
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let server = EtcdServer::new(options);
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    for address in addresses {
        let socket = TcpListener::bind(address).await;
        let socket = socket.with_context(|| format!("listen on {address}"))?;
        let (server, stop) = (server.clone(), stop.clone());
        running.spawn(async move { server.run(socket, stop).await });
    }
    tracing::info!(addresses = addresses.join(","), "ready to serve client requests");
    let is_orphan = tokio::select! {
        // Cancel safe: the first signal ends the program.
        _ = interrupt.recv() => false,
        _ = terminate.recv() => false,
        () = parent.ended() => true,
    };
    stop.cancel();
    while running.join_next().await.is_some() {}
    if is_orphan {
        tracing::info!("the process that started this one has ended: stopping");
        remove_leftovers(leftovers);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_plain_urls() {
        assert_eq!(
            addresses("http://127.0.0.1:1/,http://0.0.0.0:2").unwrap(),
            ["127.0.0.1:1", "0.0.0.0:2"]
        );
        assert!(addresses("https://127.0.0.1:1").is_err());
    }

    #[test]
    fn flags_of_harnesses_are_known_and_others_are_not() {
        for name in ["unsafe-no-fsync", "wal-dir", "initial-cluster", "experimental-x"] {
            assert!(takes(name).is_some(), "{name}");
        }
        assert_eq!(takes("nope"), None);
    }
}
