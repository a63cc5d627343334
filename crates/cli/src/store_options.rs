//! What objects are kept in: the options of `setpoint up` that choose the store, and the store they
//! choose.

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use setpoint::etcd::{EtcdError, EtcdOptions, EtcdStore, EtcdTls, Pem};
use setpoint::object::time::Clock;
use setpoint::store::{DiskOptions, DiskStore, MemoryOptions, MemoryStore, OnDamage, Store};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Where Kubernetes keeps its keys, and so do we.
const ROOT: &str = "/registry";
/// How long an etcd that cannot be reached at start is left alone in between.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How many damaged objects are named in the log; `setpoint store check` lists them all.
const LOGGED_MAX: usize = 20;
/// Holds the password of `--etcd-user`, where no file does.
const PASSWORD: &str = "SETPOINT_ETCD_PASSWORD";

/// The options.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreOptions {
    /// What objects are kept in. Default: `etcd` when endpoints are given, `disk` when there is a
    /// data folder, else `memory`.
    #[arg(long, value_enum)]
    store: Option<StoreKind>,
    /// The folder that keeps objects over restarts. It is made if it is missing; one program at a
    /// time can use it.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What happens when objects in the data folder's file are damaged.
    #[arg(long, value_enum, default_value_t = Damaged::Refuse, requires = "data")]
    damaged: Damaged,
    #[command(flatten)]
    etcd: EtcdFlags,
}

/// Where etcd is, under the names that kube-apiserver has for it.
#[derive(Debug, Clone, Args)]
struct EtcdFlags {
    /// Client addresses of etcd's members: `http://host:port` or `https://host:port`. Any of them
    /// will do; the others are for when it cannot serve. Several servers may use one etcd.
    #[arg(long, alias = "etcd-servers", value_name = "URL,…", value_delimiter = ',')]
    etcd_endpoints: Vec<String>,
    /// The authority that signed the certificates of etcd's members (PEM).
    #[arg(long, value_name = "FILE", requires = "etcd_endpoints")]
    etcd_cafile: Option<PathBuf>,
    /// The certificate that etcd asks clients for (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["etcd_keyfile", "etcd_cafile"])]
    etcd_certfile: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// The user to be in etcd, where its authentication is on. The password is in a file, or in the
    /// variable SETPOINT_ETCD_PASSWORD.
    #[arg(long, value_name = "NAME", requires = "etcd_endpoints")]
    etcd_user: Option<String>,
    /// The file with that user's password, and nothing else; a line break at its end does not
    /// count.
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// What every key in etcd begins with. It ends in `/registry`; what is before that parts
    /// several control planes in one etcd.
    #[arg(long, value_name = "PREFIX", default_value = ROOT)]
    etcd_prefix: String,
    /// How many seconds an etcd that cannot be reached at start is waited for.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    etcd_start_timeout: u64,
}

/// What happens when objects are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Damaged {
    /// Say which objects and tables it is, and exit with code 3.
    Refuse,
    /// Move the damaged file aside, and serve every object that can be read. A request for a
    /// damaged one is answered 500.
    Serve,
}

/// What objects are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    /// This process's memory; gone when it ends.
    Memory,
    /// A file in the data folder: what was acknowledged is there after any end.
    Disk,
    /// An etcd cluster, which other servers may use as well.
    Etcd,
}

/// An open store.
#[derive(Debug)]
pub(crate) struct OpenStore {
    /// What the control plane stands on.
    pub(crate) store: Arc<dyn Store>,
    engine: Engine,
}

/// What is behind it.
#[derive(Debug)]
enum Engine {
    Memory,
    Disk(DiskStore, PathBuf),
    Etcd(EtcdStore),
}

/// Opens the store that the options choose. Waits for an etcd that cannot be reached; dropping it
/// opens nothing.
///
/// `history` is how far back watches may begin: stores of our own keep twice as much, as compaction
/// keeps up to that.
pub(crate) async fn open_store(
    options: &StoreOptions,
    clock: &Clock,
    history: Duration,
) -> anyhow::Result<OpenStore> {
    let history_age_max = history.saturating_mul(2);
    let (data, etcd) = (&options.data, &options.etcd);
    if data.is_some() && !etcd.etcd_endpoints.is_empty() {
        bail!("objects are kept in one place: --data DIR or --etcd-endpoints URL,…, not both");
    }
    let default = match (data, etcd.etcd_endpoints.is_empty()) {
        (Some(_), _) => StoreKind::Disk,
        (None, false) => StoreKind::Etcd,
        (None, true) => StoreKind::Memory,
    };
    match (options.store.unwrap_or(default), data) {
        (StoreKind::Memory | StoreKind::Disk, _) if !etcd.etcd_endpoints.is_empty() => {
            bail!("--etcd-endpoints are for --store etcd")
        }
        (StoreKind::Memory, None) => {
            let mut options = MemoryOptions::default();
            options.history_age_max = history_age_max;
            Ok(OpenStore { store: Arc::new(MemoryStore::new(options)), engine: Engine::Memory })
        }
        (StoreKind::Memory, Some(_)) => {
            bail!("--store memory keeps nothing: leave --data out, or the store")
        }
        (StoreKind::Disk, Some(folder)) => {
            open_disk(folder, clock, history_age_max, options.damaged)
        }
        (StoreKind::Disk, None) => bail!("--store disk needs a folder: --data DIR"),
        (StoreKind::Etcd, None) if !etcd.etcd_endpoints.is_empty() => open_etcd(etcd).await,
        (StoreKind::Etcd, _) => {
            bail!("--store etcd needs to know where etcd is, and no folder: --etcd-endpoints URL,…")
        }
    }
}

fn open_disk(
    folder: &Path,
    clock: &Clock,
    history_age_max: Duration,
    damaged: Damaged,
) -> anyhow::Result<OpenStore> {
    let clock = clock.clone();
    let now_ms = move || u64::try_from(clock.now().0.as_millis()).unwrap_or(u64::MAX);
    let on_damage = match damaged {
        Damaged::Refuse => OnDamage::Refuse,
        Damaged::Serve => OnDamage::Serve,
    };
    let now_ms = Arc::new(now_ms);
    let options = DiskOptions { history_age_max, now_ms, on_damage, ..DiskOptions::default() };
    crate::data::quiet_engine();
    let disk = DiskStore::open(folder, options).context("open the data folder")?;
    if let Some(damage) = disk.damage() {
        tracing::warn!(%damage, "serving a store in which objects are damaged");
        for (key, _) in damage.objects.iter().take(LOGGED_MAX) {
            tracing::warn!(%key, "this object is damaged");
        }
    }
    let store = Arc::new(disk.clone());
    Ok(OpenStore { store, engine: Engine::Disk(disk, folder.to_owned()) })
}

async fn open_etcd(flags: &EtcdFlags) -> anyhow::Result<OpenStore> {
    let options = etcd_options(flags)?;
    let patience = Duration::from_secs(flags.etcd_start_timeout);
    let deadline = Instant::now() + patience;
    let etcd = loop {
        let problem =
            match tokio::time::timeout_at(deadline, EtcdStore::connect(options.clone())).await {
                Ok(Ok(etcd)) => break etcd,
                Ok(Err(error @ EtcdError::Unreachable { .. })) => error.to_string(),
                Ok(Err(error)) => return Err(error).context("open etcd"),
                Err(_) => format!("no etcd member of {} answers", flags.etcd_endpoints.join(", ")),
            };
        if Instant::now() + RETRY_PAUSE >= deadline {
            bail!("{problem}; gave up after {} s (--etcd-start-timeout)", patience.as_secs());
        }
        tracing::warn!(problem, "etcd cannot be reached; trying again");
        tokio::time::sleep(RETRY_PAUSE).await;
    };
    Ok(OpenStore { store: Arc::new(etcd.clone()), engine: Engine::Etcd(etcd) })
}

fn etcd_options(flags: &EtcdFlags) -> anyhow::Result<EtcdOptions> {
    let Some(before) = flags.etcd_prefix.strip_suffix(ROOT) else {
        bail!("--etcd-prefix {} does not end in {ROOT}", flags.etcd_prefix);
    };
    let mut options = EtcdOptions::new(&flags.etcd_endpoints);
    options.namespace = before.to_owned().into();
    let file = |path: &Path| Pem::File(path.to_owned());
    options.tls = flags.etcd_cafile.as_deref().map(|ca| EtcdTls {
        ca: file(ca),
        client: flags
            .etcd_certfile
            .as_deref()
            .map(file)
            .zip(flags.etcd_keyfile.as_deref().map(file)),
    });
    if let Some(user) = &flags.etcd_user {
        let password = match &flags.etcd_password_file {
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("read the password in {}", path.display()))?
                .trim_end_matches(['\r', '\n'])
                .to_owned(),
            None => std::env::var(PASSWORD).with_context(|| {
                format!("--etcd-user needs a password: --etcd-password-file FILE, or {PASSWORD}")
            })?,
        };
        options.user = Some((user.clone(), password));
    }
    Ok(options)
}

impl OpenStore {
    /// The data folder and the store in it, if that is the engine.
    pub(crate) fn disk(&self) -> Option<(&DiskStore, &Path)> {
        match &self.engine {
            Engine::Disk(disk, folder) => Some((disk, folder)),
            Engine::Memory | Engine::Etcd(_) => None,
        }
    }

    /// Why a control plane over it ended: damage that the store has met, where that is the reason.
    pub(crate) fn blame(&self, error: anyhow::Error) -> anyhow::Error {
        match self.disk().and_then(|(disk, _)| disk.damage_met()) {
            Some(damage) => anyhow::Error::new(damage),
            None => error,
        }
    }

    /// Whether other servers may stand on it, too.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.engine, Engine::Etcd(_))
    }

    /// Closes it: the last thing a program does.
    pub(crate) async fn close(self) {
        match self.engine {
            Engine::Memory => {}
            Engine::Disk(disk, _) => disk.close().await,
            Engine::Etcd(etcd) => etcd.close().await,
        }
    }
}
