//! What the workers of pods and the agent share.

use crate::address::Addresses;
use crate::logs::Log;
use crate::paths::Mounts;
use crate::terminal::Terminal;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How a command runs in the surroundings of a container.
#[derive(Debug, Clone)]
pub(crate) struct CommandEnvironment {
    pub(crate) env: Vec<(String, String)>,
    pub(crate) folder: PathBuf,
    pub(crate) mounts: Mounts,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
}

/// The input of a container's process. Clients write to it in turns.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) bytes: mpsc::Sender<Bytes>,
    /// Cancelled to close the input, after what has been sent.
    pub(crate) end: CancellationToken,
    /// The first client's end is the input's end: `stdinOnce`.
    pub(crate) is_once: bool,
}

/// A container as clients see it.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    /// While it runs.
    pub(crate) surroundings: Option<Arc<CommandEnvironment>>,
    /// The input of its process, if it has one.
    pub(crate) input: Option<Input>,
    /// Its terminal, if it has one.
    pub(crate) terminal: Option<Terminal>,
    pub(crate) log: Option<Log>,
    pub(crate) previous: Option<Log>,
}

/// A pod as clients see it.
#[derive(Debug)]
pub(crate) struct VisiblePod {
    pub(crate) ip: Ipv4Addr,
    pub(crate) containers: Mutex<BTreeMap<String, Visible>>,
}

/// State of all nodes of this process.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The folder of everything.
    pub(crate) folder: PathBuf,
    /// The name of this run, which marks its processes.
    pub(crate) run: String,
    pub(crate) nodes: BTreeSet<String>,
    pub(crate) addresses: Mutex<Addresses>,
    pub(crate) pods: Mutex<BTreeMap<String, Arc<VisiblePod>>>,
    /// Numbers the commands that clients run.
    pub(crate) n_commands: AtomicU64,
}

impl Shared {
    pub(crate) fn pod(&self, uid: &str) -> Option<Arc<VisiblePod>> {
        self.pods.lock().get(uid).cloned()
    }

    /// The folder of a pod.
    pub(crate) fn pod_folder(&self, uid: &str) -> PathBuf {
        self.folder.join("pods").join(uid)
    }

    /// The folder of a claim's data.
    pub(crate) fn claim_folder(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.folder.join("claims").join(namespace).join(format!("{name}_{uid}"))
    }
}

/// The log of a run of a container.
pub(crate) fn log_path(pod: &Path, container: &str, n: i32) -> PathBuf {
    pod.join("logs").join(container).join(format!("{n}.log"))
}
