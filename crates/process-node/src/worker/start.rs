//! Volumes and starts of containers.

use super::turn::turns;
use super::{Live, REFRESH, RETRY, Worker, grace_of};
use crate::container::Run;
use crate::env::{Lookup, expand, variables};
use crate::guard::{CONTAINER_MARK, NODE_MARK};
use crate::logs::Log;
use crate::paths::below;
use crate::shared::{CommandEnvironment, log_path};
use crate::status::State;
use crate::volumes::{Volumes, mounts};
use k8s_openapi::api::core::v1::Container;
use setpoint_runtime::BoxError;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;

/// The search path of programs, if the node has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Worker {
    /// Makes volumes and starts the containers whose turn it is.
    pub(super) async fn bring_up(&mut self) {
        if Instant::now() >= self.volumes_due {
            self.refresh_volumes().await;
        }
        let now = Instant::now();
        // A start changes whose turn it is. One that fails is tried again later than now.
        loop {
            let next = self.turns(now).find(|(_, at)| *at <= now);
            let Some((idx, _)) = next else { break };
            self.start(idx).await;
        }
    }

    /// Which containers may start, and when. None before the volumes are there.
    pub(super) fn turns(&self, now: Instant) -> impl Iterator<Item = (usize, Instant)> {
        let containers = if self.volumes.is_some() { &*self.containers } else { &[] };
        turns(containers, &self.live, now)
    }

    async fn refresh_volumes(&mut self) {
        let volumes = Volumes {
            shared: &self.parts.shared,
            client: &self.parts.client,
            pod: &self.parts.pod,
            namespace: &self.parts.key.namespace,
            uid: &self.uid,
            addresses: self.addresses,
            tokens: &self.tokens,
            now: self.parts.clock.now(),
        };
        match volumes.prepare().await {
            Ok(folders) => {
                self.volumes = Some(folders);
                self.volumes_due = Instant::now() + REFRESH;
            }
            Err((volume, error)) => {
                let is_up = self.volumes.is_some();
                self.volumes_due = Instant::now() + if is_up { REFRESH } else { RETRY };
                let message = format!("MountVolume.SetUp failed for volume \"{volume}\" : {error}");
                self.event(true, "FailedMount", message, String::new());
            }
        }
    }

    async fn start(&mut self, idx: usize) {
        let tracked = &self.containers[idx];
        let container = tracked.container.clone();
        let has_run = tracked.ended().is_some() || tracked.last.is_some();
        // The number is from a status, which others may write.
        let n = tracked.n_restarts.saturating_add(i32::from(has_run));
        let mark = format!("{}.{}.{n}", self.uid, container.name);
        match self.launch(&container, &mark, n).await {
            Ok((surroundings, words)) => {
                let log = Log::new(log_path(&self.folder, &container.name, n));
                self.show_log(&container.name, n, &log);
                let tracked = &mut self.containers[idx];
                if let Some(ended) = tracked.ended().cloned() {
                    tracked.last = Some(ended);
                }
                (tracked.n_restarts, tracked.id, tracked.is_live) = (n, mark.clone(), true);
                let (stop, stopped) = watch::channel(None);
                let live = Live { stop: Some(stop), due: None, is_replaced: false };
                self.live.insert(container.name.clone(), live);
                let run = Run {
                    message_file: self.own_folder(&container.name).join("termination-log"),
                    words,
                    mark,
                    surroundings: Arc::new(surroundings),
                    ip: self.addresses.pod,
                    log,
                    pod: self.visible.clone(),
                    clock: self.parts.clock.clone(),
                    reports: self.reports.clone(),
                    stop: stopped,
                    grace: grace_of(&self.parts.pod),
                    container,
                };
                self.runs.spawn(run.run());
            }
            Err(error) => {
                let (name, message) = (container.name, error.to_string());
                self.live.entry(name.clone()).or_default().due = Some(Instant::now() + RETRY);
                let reason = "CreateContainerConfigError".to_owned();
                let waiting = State::Waiting { reason, message: message.clone() };
                let tracked = &mut self.containers[idx];
                if tracked.state != waiting {
                    tracked.state = waiting;
                    let path = format!("spec.{}{{{name}}}", tracked.list.of_spec());
                    self.event(true, "Failed", format!("Error: {message}"), path);
                }
            }
        }
    }

    fn own_folder(&self, container: &str) -> std::path::PathBuf {
        self.folder.join("containers").join(container)
    }

    /// Shows a new log, and the one before it. Older ones are removed.
    fn show_log(&self, name: &str, n: i32, log: &Log) {
        let mut containers = self.visible.containers.lock();
        let visible = containers.entry(name.to_owned()).or_default();
        visible.previous = visible.log.replace(log.clone());
        drop(containers);
        for suffix in ["", ".1"] {
            let mut path = log_path(&self.folder, name, n.saturating_sub(2)).into_os_string();
            path.push(suffix);
            // It may not exist.
            _ = std::fs::remove_file(path);
        }
    }

    /// What a container runs, and where.
    async fn launch(
        &self,
        container: &Container,
        mark: &str,
        n: i32,
    ) -> Result<(CommandEnvironment, Vec<String>), BoxError> {
        let (client, namespace) = (&self.parts.client, &*self.parts.key.namespace);
        let lookup = Lookup { client, namespace };
        let pod = &*self.parts.pod;
        let volumes = self.volumes.clone().unwrap_or_default();
        let own = variables(&lookup, pod, container, self.addresses, &volumes).await?;
        let words: Vec<String> = [&container.command, &container.args]
            .into_iter()
            .flat_map(|words| words.iter().flatten())
            .map(|word| expand(word, &own))
            .collect();
        if container.command.as_ref().is_none_or(Vec::is_empty) {
            return Err("no command: a process node reads no images, so it must be given".into());
        }
        let own_folder = self.own_folder(&container.name);
        let root = own_folder.join("root");
        tokio::fs::create_dir_all(&root).await?;
        let log = log_path(&self.folder, &container.name, n);
        if let Some(parent) = log.parent() {
            tokio::fs::create_dir_all(parent).await?;
        }
        let mounts = mounts(container, &volumes, &own, &own_folder)?;
        for (path, target) in mounts.iter() {
            link(&root, path, target)?;
        }
        let path = std::env::var("PATH").unwrap_or_else(|_| PATH.to_owned());
        let folder_text = root.to_string_lossy().into_owned();
        let spec = pod.spec.as_ref();
        let hostname =
            spec.and_then(|spec| spec.hostname_override.as_ref().or(spec.hostname.as_ref()));
        let hostname = hostname.cloned().unwrap_or_else(|| self.parts.key.name.to_string());
        let mut env = vec![
            ("PATH".to_owned(), path),
            ("HOME".to_owned(), folder_text.clone()),
            ("HOSTNAME".to_owned(), hostname),
            ("SETPOINT_ROOT".to_owned(), folder_text),
        ];
        env.extend(own.into_iter().map(|(name, value)| (name, mounts.map(&value))));
        env.push((NODE_MARK.to_owned(), self.parts.shared.run.clone()));
        env.push((CONTAINER_MARK.to_owned(), mark.to_owned()));
        let folder = match container.working_dir.as_deref().filter(|path| !path.is_empty()) {
            Some(path) => {
                let mapped = std::path::PathBuf::from(mounts.map(path));
                if mapped.is_dir() { mapped } else { root.clone() }
            }
            None => root.clone(),
        };
        let id = |of: fn(&IdPair) -> Option<i64>| {
            let own = container.security_context.as_ref();
            let own = own.map(|context| IdPair(context.run_as_user, context.run_as_group));
            let pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
            let pod = pod.map(|context| IdPair(context.run_as_user, context.run_as_group));
            let given = own.as_ref().and_then(of).or_else(|| pod.as_ref().and_then(of));
            // Only root may choose.
            let is_root = rustix::process::geteuid().is_root();
            given.filter(|_| is_root).and_then(|id| u32::try_from(id).ok())
        };
        let (user, group) = (id(|pair| pair.0), id(|pair| pair.1));
        if user.is_some() || group.is_some() {
            // Its home, and where its termination message is.
            for folder in [&own_folder, &root] {
                std::os::unix::fs::chown(folder, user, group)?;
            }
        }
        Ok((CommandEnvironment { env, folder, mounts, user, group }, words))
    }
}

/// A user and a group of a security context.
struct IdPair(Option<i64>, Option<i64>);

/// Makes a link at a mount path below the container's own folder, so that relative paths work.
fn link(root: &Path, path: &str, target: &Path) -> std::io::Result<()> {
    let Some(at) = below(root, path.trim_start_matches('/')) else { return Ok(()) };
    if let Some(parent) = at.parent() {
        // A parent may be a link itself, of a mount above this one.
        std::fs::create_dir_all(parent)?;
    }
    match std::os::unix::fs::symlink(target, &at) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}
