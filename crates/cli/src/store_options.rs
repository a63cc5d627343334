//! The store options of `setpoint up`, and opening the store that they select.

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use setpoint::egress::Dialer;
use setpoint::etcd::{EtcdError, EtcdOptions, EtcdStore, EtcdTls, Pem};
use setpoint::object::{keys, time::Clock};
use setpoint::registry::StorageMediaType;
use setpoint::store::{
    DiskOptions, DiskStore, MemoryOptions, MemoryStore, OnDamage, Revision, Store,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Default of `--etcd-prefix`, as kube-apiserver's.
const PREFIX: &str = "/registry";
/// Pause between two attempts to reach etcd at start.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of damaged objects that are logged. `setpoint store check` lists all.
const LOGGED_MAX: usize = 20;
/// Maximum bytes of a password file: 64 KiB.
const PASSWORD_BYTES_MAX: usize = 64 << 10;
/// Environment variable with the password of `--etcd-user`, if no file is given.
const PASSWORD: &str = "SETPOINT_ETCD_PASSWORD";

/// The options.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreOptions {
    /// Where objects are stored. Default: `etcd` if endpoints are given, `disk` if there is a data
    /// folder, otherwise `memory`.
    #[arg(long, value_enum)]
    store: Option<StoreKind>,
    /// The folder that stores objects across restarts. It is made if it is missing. One program at
    /// a time can use it.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What to do if objects in the data folder's file are damaged.
    #[arg(long, value_enum, default_value_t = Damaged::Refuse, requires = "data")]
    damaged: Damaged,
    #[command(flatten)]
    etcd: EtcdFlags,
}

/// The etcd options, named as kube-apiserver's.
#[derive(Debug, Clone, Args)]
struct EtcdFlags {
    /// Client addresses of etcd's members: `http://host:port` or `https://host:port`. One is used
    /// at a time; if it fails, the next. Several servers may use one etcd.
    #[arg(long, alias = "etcd-servers", value_name = "URL,…", value_delimiter = ',')]
    etcd_endpoints: Vec<String>,
    /// The CA of the certificates of etcd's members (PEM).
    #[arg(long, value_name = "FILE", requires = "etcd_endpoints")]
    etcd_cafile: Option<PathBuf>,
    /// The client certificate for etcd (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["etcd_keyfile", "etcd_cafile"])]
    etcd_certfile: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// The user name at etcd, if its authentication is enabled. The password is in a file, or in
    /// the variable SETPOINT_ETCD_PASSWORD.
    #[arg(long, value_name = "NAME", requires = "etcd_endpoints")]
    etcd_user: Option<String>,
    /// A file that contains only that user's password. A line break at its end is ignored.
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// Prefix of every key in etcd, as `/registry` is in `/registry/pods/default/x`. It separates
    /// control planes that share one etcd.
    #[arg(long, value_name = "PREFIX", default_value = PREFIX)]
    etcd_prefix: String,
    /// How built-in kinds are encoded in etcd. CustomResourceDefinitions, APIServices and custom
    /// resources are stored in JSON. Objects in either encoding are read.
    #[arg(
        long,
        value_name = "application/json|application/vnd.kubernetes.protobuf",
        value_parser = str::parse::<StorageMediaType>,
        default_value = StorageMediaType::Protobuf.as_str()
    )]
    storage_media_type: StorageMediaType,
    /// How many seconds to wait at start for an etcd that cannot be reached.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    etcd_start_timeout: u64,
}

/// What to do if objects are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Damaged {
    /// Report the damaged objects and tables, and exit with code 3.
    Refuse,
    /// Move the damaged file aside and serve every object that can be read. A request for a damaged
    /// object is answered with 500.
    Serve,
}

/// Where objects are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    /// This process's memory; lost when it ends.
    Memory,
    /// A file in the data folder: acknowledged writes survive any end of the process.
    Disk,
    /// An etcd cluster, which other servers may use too.
    Etcd,
}

impl StoreOptions {
    /// The encoding of built-in kinds in a store that other servers may use.
    pub(crate) fn media_type(&self) -> StorageMediaType {
        self.etcd.storage_media_type
    }
}

/// An open store.
#[derive(Debug)]
pub(crate) struct OpenStore {
    /// The store of the control plane.
    pub(crate) store: Arc<dyn Store>,
    engine: Engine,
}

/// The engine behind the store.
#[derive(Debug)]
enum Engine {
    Memory,
    Disk(DiskStore, PathBuf),
    Etcd(EtcdStore),
}

/// The revision at which a store in memory begins: the time in thousandths of a second. The writes
/// of a program's life are fewer, so its next start begins above all revisions that clients know,
/// and they list again.
fn first_revision(clock: &Clock) -> Revision {
    Revision(u64::try_from(clock.now().0.as_millis()).unwrap_or(u64::MAX / 2))
}

/// Opens the selected store. Waits for an etcd that cannot be reached; dropping the future opens
/// nothing.
///
/// etcd is reached with the dialer. `history` is how far back watches may begin. The memory and
/// disk stores retain twice as much, because that is how far compaction may lag.
pub(crate) async fn open_store(
    options: &StoreOptions,
    clock: &Clock,
    history: Duration,
    dialer: Dialer,
) -> anyhow::Result<OpenStore> {
    let history_age_max = history.saturating_mul(2);
    let (data, etcd) = (&options.data, &options.etcd);
    if data.is_some() && !etcd.etcd_endpoints.is_empty() {
        bail!("give --data DIR or --etcd-endpoints URL,…, not both");
    }
    let default = match (data, etcd.etcd_endpoints.is_empty()) {
        (Some(_), _) => StoreKind::Disk,
        (None, false) => StoreKind::Etcd,
        (None, true) => StoreKind::Memory,
    };
    match (options.store.unwrap_or(default), data) {
        (StoreKind::Memory | StoreKind::Disk, _) if !etcd.etcd_endpoints.is_empty() => {
            bail!("--etcd-endpoints needs --store etcd")
        }
        (StoreKind::Memory, None) => {
            let mut options = MemoryOptions::default();
            options.history_age_max = history_age_max;
            options.first_revision = first_revision(clock);
            Ok(OpenStore { store: Arc::new(MemoryStore::new(options)), engine: Engine::Memory })
        }
        (StoreKind::Memory, Some(_)) => {
            bail!("--store memory does not use a folder: remove --data or --store")
        }
        (StoreKind::Disk, Some(folder)) => {
            open_disk(folder, clock, history_age_max, options.damaged).await
        }
        (StoreKind::Disk, None) => bail!("--store disk needs a folder: --data DIR"),
        (StoreKind::Etcd, None) if !etcd.etcd_endpoints.is_empty() => open_etcd(etcd, dialer).await,
        (StoreKind::Etcd, _) => {
            bail!("--store etcd needs --etcd-endpoints URL,…, and no --data")
        }
    }
}

async fn open_disk(
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
    let path = folder.to_owned();
    // Reads the whole file. The caller waits for signals meanwhile.
    let opened = tokio::task::spawn_blocking(move || DiskStore::open(path, options)).await;
    let disk = opened.context("open the data folder")?.context("open the data folder")?;
    if let Some(damage) = disk.damage() {
        tracing::warn!(%damage, "serving a damaged store");
        for (key, _) in damage.objects.iter().take(LOGGED_MAX) {
            tracing::warn!(%key, "damaged object");
        }
    }
    let store = Arc::new(disk.clone());
    Ok(OpenStore { store, engine: Engine::Disk(disk, folder.to_owned()) })
}

async fn open_etcd(flags: &EtcdFlags, dialer: Dialer) -> anyhow::Result<OpenStore> {
    let mut options = etcd_options(flags)?;
    options.dialer = dialer;
    let timeout = Duration::from_secs(flags.etcd_start_timeout);
    let deadline = Instant::now() + timeout;
    // Of the attempt before: the last one may have no time to find its own.
    let mut earlier = None;
    let etcd = loop {
        let problem =
            match tokio::time::timeout_at(deadline, EtcdStore::connect(options.clone())).await {
                Ok(Ok(etcd)) => break etcd,
                Ok(Err(error @ EtcdError::Unreachable { .. })) => error.to_string(),
                Ok(Err(error)) => return Err(error).context("open etcd"),
                Err(_) => earlier.take().unwrap_or_else(|| {
                    format!("no etcd member of {} answers", flags.etcd_endpoints.join(", "))
                }),
            };
        if Instant::now() + RETRY_PAUSE >= deadline {
            bail!("{problem}; gave up after {} s (--etcd-start-timeout)", timeout.as_secs());
        }
        tracing::warn!(problem, "cannot reach etcd; retrying");
        earlier = Some(problem);
        tokio::time::sleep(RETRY_PAUSE).await;
    };
    Ok(OpenStore { store: Arc::new(etcd.clone()), engine: Engine::Etcd(etcd) })
}

fn etcd_options(flags: &EtcdFlags) -> anyhow::Result<EtcdOptions> {
    let mut options = EtcdOptions::new(&flags.etcd_endpoints);
    options.root = keys::ROOT.into();
    options.namespace = namespace(&flags.etcd_prefix).into();
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
            Some(path) => setpoint_small_file::read_text(path, PASSWORD_BYTES_MAX)
                .context("use --etcd-password-file")?
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

/// A prefix as kube-apiserver cleans it, with a slash at its end: `a//other/` is `/a/other/`, `.`
/// and `..` are steps of a path.
fn namespace(prefix: &str) -> String {
    let mut parts = Vec::new();
    for part in prefix.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let parts = parts.into_iter().flat_map(|part| [part, "/"]);
    std::iter::once("/").chain(parts).collect()
}

impl OpenStore {
    /// The data folder and its store; `None` for other engines.
    pub(crate) fn disk(&self) -> Option<(&DiskStore, &Path)> {
        match &self.engine {
            Engine::Disk(disk, folder) => Some((disk, folder)),
            Engine::Memory | Engine::Etcd(_) => None,
        }
    }

    /// The reason why a control plane ended: the damage that the store found, if any, otherwise
    /// `error`.
    pub(crate) fn cause_of(&self, error: anyhow::Error) -> anyhow::Error {
        match self.disk().and_then(|(disk, _)| disk.damage_met()) {
            Some(damage) => anyhow::Error::new(damage),
            None => error,
        }
    }

    /// Whether other servers may use the same store.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.engine, Engine::Etcd(_))
    }

    /// Closes the store. The last action of the program.
    pub(crate) async fn close(self) {
        match self.engine {
            Engine::Memory => {}
            Engine::Disk(disk, _) => disk.close().await,
            Engine::Etcd(etcd) => etcd.close().await,
        }
    }
}
