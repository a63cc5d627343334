//! Health checks: `/healthz` and `/readyz`.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    future::Future,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use http::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use setpoint_object::panic;

use super::{Endpoint, HEALTHZ_PATH, READYZ_PATH, serve::text};
use crate::error::{BoxError, chain};

/// The time-out of one check: 5 s. The kubelet's probes time out earlier.
pub const CHECK_MAX: Duration = Duration::from_secs(5);

/// The maximum number of checks of each path.
pub const CHECKS_MAX: usize = 256;

/// A health check, run at each probe.
#[derive(Clone)]
pub struct Check(Arc<dyn Fn() -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>);

/// Why a check was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HealthError {
    /// The path has a check with this name.
    #[error("a check named {name:?} already exists")]
    Duplicate {
        /// The name.
        name: Arc<str>,
    },
    /// The manager is running: checks must be added before.
    #[error("the manager is running: the check {name:?} cannot be added")]
    Started {
        /// The name.
        name: Arc<str>,
    },
    /// The name is empty, or has characters that are not valid in a path.
    #[error("{name:?} is not a valid name of a check: use letters, digits, `-`, `_` and `.`")]
    Name {
        /// The name.
        name: Arc<str>,
    },
    /// There are [`CHECKS_MAX`] checks.
    #[error("there are already {CHECKS_MAX} checks: {name:?} is not added")]
    TooMany {
        /// The name.
        name: Arc<str>,
    },
}

impl Check {
    /// A check by a function: passes if the function succeeds within [`CHECK_MAX`].
    pub fn new<Fut>(check: impl Fn() -> Fut + Send + Sync + 'static) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(check())))
    }

    /// A check that always passes.
    pub fn ping() -> Self {
        Self::new(async || Ok(()))
    }

    /// Runs the check; the error is the reason of the failure.
    async fn run(&self) -> Result<(), String> {
        let check = AssertUnwindSafe(async { (self.0)().await }).catch_unwind();
        match tokio::time::timeout(CHECK_MAX, check).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(chain(&*error)),
            Ok(Err(panic)) => Err(format!("it panicked: {}", panic::message(&*panic))),
            Err(_) => Err(format!("it timed out after {CHECK_MAX:?}")),
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check")
    }
}

/// The checks of a manager, by name. Cheap to clone. Checks are added before the manager runs.
///
/// | request                 | answer                                                                                  |
/// |-------------------------|-----------------------------------------------------------------------------------------|
/// | the path                | 200 and `ok`, also without checks; or 500 and a line per check, sorted, reasons withheld |
/// | with `?verbose`         | the same, with the lines in any case                                                    |
/// | with `?exclude=name`    | without this check, any number of times; a warning for an unknown name         |
/// | the path and `/name`    | this check alone, with its reason; 404 if there is none                                 |
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<Checks>>);

#[derive(Default)]
struct Checks {
    healthz: BTreeMap<Arc<str>, Check>,
    readyz: BTreeMap<Arc<str>, Check>,
    has_started: bool,
    defaults: Vec<(Probe, &'static str, Check)>,
}

/// One of the two paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    Healthz,
    Readyz,
}

impl Probe {
    fn path(self) -> &'static str {
        match self {
            Self::Healthz => HEALTHZ_PATH,
            Self::Readyz => READYZ_PATH,
        }
    }
}

impl Health {
    /// Adds a liveness check: a program that fails it is restarted.
    ///
    /// # Errors
    ///
    /// The name is taken or invalid, there are too many checks, or the manager is running.
    pub fn healthz(&self, name: impl Into<Arc<str>>, check: Check) -> Result<(), HealthError> {
        self.add(Probe::Healthz, name.into(), check)
    }

    /// Adds a readiness check: a program that fails it gets no traffic.
    ///
    /// # Errors
    ///
    /// As [`healthz`](Self::healthz).
    pub fn readyz(&self, name: impl Into<Arc<str>>, check: Check) -> Result<(), HealthError> {
        self.add(Probe::Readyz, name.into(), check)
    }

    /// Adds the manager's own checks. `ping` on both paths. `leader-election` on liveness, if there
    /// is an election: it fails if this process considers itself leader and has not renewed for the
    /// lease's duration plus 20 s (LE-16). `caches` on readiness: it names the informers of the
    /// manager's own cluster that have not synced, with their last errors.
    ///
    /// Other clusters do not count: one that cannot be reached must not take the program's webhooks
    /// away from all others. A program that serves nothing without one adds a check of
    /// [`Cache::unsynced`](crate::Cache::unsynced) of that cluster.
    ///
    /// # Errors
    ///
    /// As [`healthz`](Self::healthz).
    pub fn add_defaults(&self) -> Result<(), HealthError> {
        let defaults = self.0.lock().defaults.clone();
        defaults
            .into_iter()
            .try_for_each(|(probe, name, check)| self.add(probe, name.into(), check))
    }

    /// Offers a check that [`add_defaults`](Self::add_defaults) adds.
    pub(crate) fn offer(&self, probe: Probe, name: &'static str, check: Check) {
        self.0.lock().defaults.push((probe, name, check));
    }

    fn add(&self, probe: Probe, name: Arc<str>, check: Check) -> Result<(), HealthError> {
        let is_name = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(HealthError::Name { name });
        }
        let mut checks = self.0.lock();
        if checks.has_started {
            return Err(HealthError::Started { name });
        }
        let checks = checks.of(probe);
        if checks.contains_key(&name) {
            return Err(HealthError::Duplicate { name });
        }
        if checks.len() >= CHECKS_MAX {
            return Err(HealthError::TooMany { name });
        }
        checks.insert(name, check);
        Ok(())
    }

    /// Refuses further checks.
    pub(crate) fn start(&self) {
        self.0.lock().has_started = true;
    }

    /// Serves the checks at an endpoint.
    pub(crate) fn serve_at(&self, endpoint: &mut Endpoint) {
        for probe in [Probe::Healthz, Probe::Readyz] {
            let health = self.clone();
            endpoint.reserved(probe.path(), move |request| {
                let health = health.clone();
                async move { health.answer(probe, &request).await }
            });
        }
    }

    async fn answer(&self, probe: Probe, request: &Request<Bytes>) -> Response<Bytes> {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
        }
        // Runs the checks outside of the lock.
        let checks = self.0.lock().of(probe).clone();
        let name = request.uri().path().strip_prefix(probe.path()).unwrap_or_default();
        let name = name.trim_matches('/');
        if !name.is_empty() && !checks.contains_key(name) {
            return text(StatusCode::NOT_FOUND, "404 page not found\n");
        }
        if let Some(check) = checks.get(name) {
            return match check.run().await {
                Ok(()) => text(StatusCode::OK, "ok"),
                Err(why) => text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format!("internal server error: {why}\n"),
                ),
            };
        }
        let query = request.uri().query().unwrap_or_default();
        let mut excluded = Vec::new();
        let mut is_verbose = false;
        for part in query.split('&') {
            match part.split_once('=').unwrap_or((part, "")) {
                ("exclude", name) => excluded.push(name),
                ("verbose", _) => is_verbose = true,
                _ => {}
            }
        }
        self.report(probe, checks, &excluded, is_verbose).await
    }

    async fn report(
        &self,
        probe: Probe,
        checks: BTreeMap<Arc<str>, Check>,
        excluded: &[&str],
        is_verbose: bool,
    ) -> Response<Bytes> {
        let outcomes = checks.iter().map(|(name, check)| async move {
            let is_excluded = excluded.contains(&&**name);
            (name, if is_excluded { None } else { Some(check.run().await) })
        });
        let (mut lines, mut has_failed) = (String::new(), false);
        for (name, outcome) in join_all(outcomes).await {
            // Writing to a String does not fail.
            _ = match outcome {
                None => writeln!(lines, "[+]{name} excluded: ok"),
                Some(Ok(())) => writeln!(lines, "[+]{name} ok"),
                Some(Err(why)) => {
                    has_failed = true;
                    tracing::warn!(path = probe.path(), check = %name, why, "a check fails");
                    writeln!(lines, "[-]{name} failed: reason withheld")
                }
            };
        }
        let unknown: Vec<String> = excluded
            .iter()
            .filter(|name| !checks.contains_key(**name))
            .map(|name| format!("{name:?}"))
            .collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            _ = writeln!(
                lines,
                "warn: some health checks cannot be excluded: no matches for {unknown}"
            );
            tracing::warn!(path = probe.path(), unknown, "a probe excludes unknown checks");
        }
        let of = &probe.path()[1..];
        if has_failed {
            _ = writeln!(lines, "{of} check failed");
            return text(StatusCode::INTERNAL_SERVER_ERROR, lines);
        }
        if !is_verbose {
            return text(StatusCode::OK, "ok");
        }
        _ = writeln!(lines, "{of} check passed");
        text(StatusCode::OK, lines)
    }
}

impl Checks {
    fn of(&mut self, probe: Probe) -> &mut BTreeMap<Arc<str>, Check> {
        match probe {
            Probe::Healthz => &mut self.healthz,
            Probe::Readyz => &mut self.readyz,
        }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.0.lock();
        f.debug_struct("Health")
            .field("healthz", &checks.healthz.keys())
            .field("readyz", &checks.readyz.keys())
            .finish_non_exhaustive()
    }
}
