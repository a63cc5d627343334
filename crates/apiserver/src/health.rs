//! `/healthz`, `/livez` and `/readyz`.

use crate::body::Body;
use crate::figures::ServerFigures;
use crate::query::Query;
use crate::{BoxError, respond};
use futures::future::{BoxFuture, join_all};
use http::{Response, StatusCode};
use setpoint_object::field::quote;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// A check of `/healthz` and `/readyz` that a program adds. `/livez` has none, because to restart
/// the server would not mend what others lack.
///
/// ```
/// use futures::future::{BoxFuture, FutureExt as _};
/// use setpoint_apiserver::{BoxError, HealthCheck};
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// /// The program has imported its data.
/// #[derive(Debug)]
/// struct Imported(AtomicBool);
///
/// impl HealthCheck for Imported {
///     fn name(&self) -> &'static str {
///         "import"
///     }
///     fn check(&self) -> BoxFuture<'_, Result<(), BoxError>> {
///         let is_done = self.0.load(Ordering::Relaxed);
///         async move { if is_done { Ok(()) } else { Err("the import goes on".into()) } }.boxed()
///     }
/// }
/// ```
pub trait HealthCheck: fmt::Debug + Send + Sync + 'static {
    /// Its name, which is also the path of the single check.
    fn name(&self) -> &'static str;

    /// Checks. Must end within some seconds; the request waits.
    ///
    /// # Errors
    ///
    /// Why it does not pass. The answer to a request for all checks withholds that.
    fn check(&self) -> BoxFuture<'_, Result<(), BoxError>>;
}

/// The results of the added checks of an endpoint: of all, or of the requested one.
pub(crate) async fn added(
    checks: &[Arc<dyn HealthCheck>],
    endpoint: &str,
    check: Option<&str>,
    query: &Query,
) -> Vec<Added> {
    let is_excluded = &|name: &str| match check {
        Some(check) => check != name,
        None => query.all("exclude").any(|excluded| excluded == name),
    };
    let checks = checks.iter().filter(|_| endpoint != "livez").map(|check| async move {
        let result = match is_excluded(check.name()) {
            true => Ok(()),
            false => check.check().await.map_err(|error| error.to_string()),
        };
        Added { name: check.name(), result }
    });
    join_all(checks).await
}

/// The result of an added check.
#[derive(Debug)]
pub(crate) struct Added {
    name: &'static str,
    result: Result<(), String>,
}

/// The state that the checks report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Health {
    /// Start-up is done: the registry serves from filled caches.
    pub(crate) started: bool,
    /// Start-up is taken to succeed for some time: `/livez` does not wait for it.
    pub(crate) has_grace: bool,
    /// Shutdown has begun.
    pub(crate) is_ending: bool,
    /// The store answers.
    pub(crate) store: bool,
    /// What the server stores is registered; `None`: no write waits for it.
    pub(crate) storage_versions: Option<bool>,
}

/// The hooks of kube-apiserver's start, in its order. Dashboards and Kubernetes' own tests ask for
/// them by name. Here all they do is done, or watched, once the registry serves from filled caches.
const START_HOOKS: [&str; 31] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-wait-for-first-sync",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// The hook that ends when StorageVersions are written, and the one before it.
const STORAGE_VERSIONS: &str = "poststarthook/built-in-resources-storage-version-updater";
const BEFORE_STORAGE_VERSIONS: &str = "poststarthook/apiservice-discovery-controller";

/// The paths of all single checks. `storage_versions`: as [`Health::storage_versions`].
pub(crate) fn paths(
    added: &[Arc<dyn HealthCheck>],
    storage_versions: Option<bool>,
) -> impl Iterator<Item = String> {
    let all =
        Health { started: true, has_grace: false, is_ending: false, store: true, storage_versions };
    ["healthz", "livez", "readyz"].into_iter().flat_map(move |endpoint| {
        let added = added.iter().filter(|_| endpoint != "livez").map(|check| check.name());
        let own = all.checks(endpoint, &[]).into_iter().map(|(name, _)| name);
        let names: Vec<_> = own.chain(added).collect();
        names.into_iter().map(move |name| format!("/{endpoint}/{name}"))
    })
}

/// One check: its name and whether it passes.
type Check = (&'static str, bool);

impl Health {
    /// The checks of an endpoint, in the order they are printed.
    fn checks(self, endpoint: &str, added: &[Added]) -> Vec<Check> {
        let mut checks = vec![("ping", true), ("log", true)];
        if endpoint != "readyz" {
            // Of the certificate that the reference's own client checks: here it needs none.
            checks.extend([("loopback-serving-certificate", true), ("etcd", self.store)]);
        }
        checks.extend(added.iter().map(|added| (added.name, added.result.is_ok())));
        if endpoint == "readyz" {
            checks.push(("informer-sync", self.started));
        }
        let has_started = self.started || self.has_grace && endpoint == "livez";
        for hook in START_HOOKS {
            checks.push((hook, has_started));
            if let Some(are_registered) = self.storage_versions
                && hook == BEFORE_STORAGE_VERSIONS
            {
                let has_grace = self.has_grace && endpoint == "livez";
                checks.push((STORAGE_VERSIONS, are_registered || has_grace));
            }
        }
        if endpoint == "readyz" {
            checks.push(("shutdown", !self.is_ending));
        }
        checks
    }

    /// Answers a request for all checks, or for a single one.
    pub(crate) fn respond(
        self,
        endpoint: &'static str,
        check: Option<&str>,
        query: &Query,
        added: &[Added],
        figures: &ServerFigures,
    ) -> Response<Body> {
        let checks = self.checks(endpoint, added);
        if let Some(name) = check {
            return match checks.iter().find(|(n, _)| *n == name) {
                None => respond::page_not_found(),
                Some((_, true)) => respond::text(StatusCode::OK, "ok"),
                Some((name, false)) => respond::plain(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format!("internal server error: {}\n", reason(name, added)),
                ),
            };
        }
        let mut excluded: Vec<&str> = query.all("exclude").collect();
        let made = checks.iter().filter(|(name, _)| !excluded.contains(name));
        figures.checked(endpoint, made.copied());
        let (mut lines, mut failed) = (String::new(), false);
        for (name, passes) in checks {
            let before = excluded.len();
            excluded.retain(|excluded| *excluded != name);
            // Writing to a String does not fail.
            let _ = if excluded.len() < before {
                writeln!(lines, "[+]{name} excluded: ok")
            } else if passes {
                writeln!(lines, "[+]{name} ok")
            } else {
                failed = true;
                writeln!(lines, "[-]{name} failed: reason withheld")
            };
        }
        if !excluded.is_empty() {
            excluded.sort_unstable();
            excluded.dedup();
            let names: Vec<String> = excluded.iter().map(|name| quote(name)).collect();
            let _ = writeln!(
                lines,
                "warn: some health checks cannot be excluded: no matches for {}",
                names.join(",")
            );
        }
        if failed {
            let _ = writeln!(lines, "{endpoint} check failed");
            return respond::plain(StatusCode::INTERNAL_SERVER_ERROR, lines);
        }
        if query.get("verbose").is_none() {
            return respond::plain(StatusCode::OK, "ok");
        }
        let _ = writeln!(lines, "{endpoint} check passed");
        respond::plain(StatusCode::OK, lines)
    }
}

/// The reason in the answer to a failed single check.
fn reason(name: &str, added: &[Added]) -> String {
    if let Some(Err(error)) = added.iter().find(|added| added.name == name).map(|a| &a.result) {
        return error.clone();
    }
    match name {
        "etcd" => "etcd failed: the store does not answer".to_owned(),
        "shutdown" => "process is shutting down".to_owned(),
        name => format!("{name} is not finished"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(health: Health, endpoint: &'static str, query: &str) -> (u16, String) {
        let figures = ServerFigures::default();
        let response = health.respond(endpoint, None, &Query::parse(query), &[], &figures);
        let body = String::from_utf8(response.body().as_bytes().unwrap().to_vec()).unwrap();
        (response.status().as_u16(), body)
    }

    const UP: Health = Health {
        started: true,
        has_grace: false,
        is_ending: false,
        store: true,
        storage_versions: None,
    };

    #[test]
    fn an_unreachable_store_fails_healthz_and_livez_only() {
        let lost = Health { store: false, ..UP };
        assert_eq!(get(lost, "readyz", "").0, 200);
        for endpoint in ["healthz", "livez"] {
            let (code, body) = get(lost, endpoint, "");
            assert_eq!(code, 500);
            assert!(body.contains("[-]etcd failed: reason withheld\n"), "{body}");
        }
        assert_eq!(get(lost, "livez", "exclude=etcd").0, 200);
    }

    #[test]
    fn passing_checks_are_ok_without_a_newline() {
        assert_eq!(get(UP, "healthz", ""), (200, "ok".into()));
        let (code, body) = get(UP, "livez", "verbose=false&exclude=etcd");
        assert_eq!(code, 200);
        let first = "[+]ping ok\n[+]log ok\n[+]loopback-serving-certificate ok\n[+]etcd excluded: ok\n[+]poststarthook/start-apiserver-";
        assert!(body.starts_with(first), "{body}");
        assert!(
            body.ends_with("apiservice-openapiv3-controller ok\nlivez check passed\n"),
            "{body}"
        );
    }

    #[test]
    fn start_hooks_of_kube_apiserver_are_checks() {
        for endpoint in ["healthz", "livez", "readyz"] {
            for (started, code, mark) in [(true, 200, '+'), (false, 500, '-')] {
                let (is, body) = get(Health { started, ..UP }, endpoint, "verbose");
                assert_eq!(is, code);
                for hook in ["poststarthook/rbac/bootstrap-roles", "autoregister-completion"] {
                    assert!(body.contains(&format!("[{mark}]{hook} ")), "{body}");
                }
            }
        }
    }

    #[test]
    fn health_waits_for_storage_versions_if_writes_do() {
        for endpoint in ["healthz", "livez", "readyz"] {
            for (registered, code, mark) in [(true, 200, '+'), (false, 500, '-')] {
                let health = Health { storage_versions: Some(registered), ..UP };
                let (is, body) = get(health, endpoint, "verbose");
                assert_eq!(is, code);
                let line = format!("[{mark}]{STORAGE_VERSIONS} ");
                let after = body.split(BEFORE_STORAGE_VERSIONS).nth(1).unwrap();
                assert!(after.lines().nth(1).unwrap().starts_with(&line), "{body}");
            }
            assert!(!get(UP, endpoint, "verbose").1.contains(STORAGE_VERSIONS));
        }
        let path = format!("/livez/{STORAGE_VERSIONS}");
        assert!(paths(&[], Some(true)).any(|listed| listed == path));
        assert!(!paths(&[], None).any(|listed| listed == path));
    }

    #[derive(Debug)]
    struct Broken;

    impl HealthCheck for Broken {
        fn name(&self) -> &'static str {
            "kms-providers"
        }
        fn check(&self) -> BoxFuture<'_, Result<(), BoxError>> {
            Box::pin(async { Err("no plugin".into()) })
        }
    }

    #[tokio::test]
    async fn added_check_fails_healthz_and_readyz_only() {
        let checks: [Arc<dyn HealthCheck>; 1] = [Arc::new(Broken)];
        let figures = ServerFigures::default();
        let mut answers = Vec::new();
        for (endpoint, check, query) in [
            ("healthz", None, ""),
            ("readyz", None, ""),
            ("livez", None, ""),
            ("readyz", None, "exclude=kms-providers"),
            ("readyz", Some("kms-providers"), ""),
            ("livez", Some("kms-providers"), ""),
        ] {
            let query = Query::parse(query);
            let added = added(&checks, endpoint, check, &query).await;
            let response = UP.respond(endpoint, check, &query, &added, &figures);
            let body = String::from_utf8_lossy(response.body().as_bytes().unwrap()).into_owned();
            let lines = body.lines().filter(|line| line.contains("kms-") || line.contains("no pl"));
            answers.push((response.status().as_u16(), lines.collect::<Vec<_>>().join("")));
        }
        let failed = (500, "[-]kms-providers failed: reason withheld".to_owned());
        let (passed, missing) = ((200, String::new()), (404, String::new()));
        let alone = (500, "internal server error: no plugin".to_owned());
        assert_eq!(answers, [failed.clone(), failed, passed.clone(), passed, alone, missing]);
        let paths: Vec<_> =
            paths(&checks, None).filter(|path| path.ends_with("kms-providers")).collect();
        assert_eq!(paths, ["/healthz/kms-providers", "/readyz/kms-providers"]);
    }

    #[test]
    fn livez_does_not_wait_for_a_start_that_has_grace() {
        let starting = Health { started: false, has_grace: true, ..UP };
        let codes = ["livez", "healthz", "readyz"].map(|endpoint| get(starting, endpoint, "").0);
        assert_eq!(codes, [200, 500, 500]);
    }

    #[test]
    fn ending_server_is_alive_but_not_ready() {
        let ending = Health { is_ending: true, ..UP };
        assert_eq!(get(ending, "livez", "").0, 200);
        let (code, body) = get(ending, "readyz", "exclude=y&exclude=x&exclude=y");
        assert_eq!(code, 500);
        assert!(body.contains("[-]shutdown failed: reason withheld\n"), "{body}");
        assert!(
            body.ends_with("warn: some health checks cannot be excluded: no matches for \"x\",\"y\"\nreadyz check failed\n"),
            "{body}"
        );
    }
}
