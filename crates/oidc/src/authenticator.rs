//! All trusted issuers, and the task that follows their keys and their configuration.

use crate::claims::full_issuer;
use crate::config::{AuthenticationConfig, ConfigError, Issuer};
use crate::issuer::{Shared, TrustedIssuer, text_of};
use crate::reload::{self, RELOAD_PERIOD, ReloadReport};
use parking_lot::RwLock;
use setpoint_dial::{Dialer, EgressSelector, EgressType};
use setpoint_jwt::{Algorithm, UnverifiedToken};
use setpoint_object::field::{Error, Path};
use setpoint_object::time::Clock;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How many tokens are checked on other threads at the same time.
pub const SLOW_AT_ONCE: usize = 2;

/// The user of a token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub username: String,
    /// Its uid; may be empty.
    pub uid: String,
    /// Its groups, without `system:authenticated`.
    pub groups: Vec<String>,
    /// Its extra values.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The result of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A trusted issuer has signed it for this server.
    User(Arc<User>),
    /// It is no token of a trusted issuer.
    NoOpinion,
    /// It names a trusted issuer and is not accepted, for this reason.
    Invalid(String),
}

/// Is told what happens with issuers, for metrics. Nothing of it may block.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A token of an issuer was checked, not remembered. `is_accepted`: it has a user.
    fn checked(&self, issuer: &str, took: Duration, is_accepted: bool);
    /// The keys of an issuer were read: the SHA-256 of the document; `None`: there was none, or it
    /// has no keys.
    fn keys_read(&self, issuer: &str, hash: Option<&[u8; 32]>);
    /// An issuer is not trusted any longer.
    fn left(&self, issuer: &str);
}

/// Nobody is told.
#[derive(Debug)]
struct Unobserved;

impl Observer for Unobserved {
    fn checked(&self, _: &str, _: Duration, _: bool) {}
    fn keys_read(&self, _: &str, _: Option<&[u8; 32]>) {}
    fn left(&self, _: &str) {}
}

/// What the configuration does not say.
pub struct OidcOptions {
    clock: Clock,
    algorithms: Vec<Algorithm>,
    disallowed_issuers: Vec<String>,
    file: Option<PathBuf>,
    period: Duration,
    report: Arc<dyn Fn(&ReloadReport) + Send + Sync>,
    observer: Arc<dyn Observer>,
    egress: Option<EgressSelector>,
}

impl OidcOptions {
    /// With all algorithms. `clock` decides about times of tokens and certificates.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            algorithms: Algorithm::ALL.to_vec(),
            disallowed_issuers: Vec::new(),
            file: None,
            period: RELOAD_PERIOD,
            report: Arc::new(|_| {}),
            observer: Arc::new(Unobserved),
            egress: None,
        }
    }

    /// Who is told of tokens and keys. Default: nobody.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// How issuers are reached that have an `egressSelectorType`. Others are reached directly.
    /// Default: no issuer may have one.
    #[must_use]
    pub fn egress(mut self, egress: EgressSelector) -> Self {
        self.egress = Some(egress);
        self
    }

    /// The algorithms that tokens may have. Default: all.
    #[must_use]
    pub fn algorithms(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        self.algorithms = algorithms.into_iter().collect();
        self
    }

    /// The issuers of this server's own tokens, which a configuration must not name. Default: none.
    #[must_use]
    pub fn disallowed_issuers(mut self, issuers: impl IntoIterator<Item = String>) -> Self {
        self.disallowed_issuers = issuers.into_iter().collect();
        self
    }

    /// The file of the configuration, which is read again and again. Default: none.
    #[must_use]
    pub fn reload(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// How often the file is read without a change. Default: [`RELOAD_PERIOD`].
    #[must_use]
    pub fn reload_period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Called with each configuration that was accepted or refused, for metrics. Must not block.
    #[must_use]
    pub fn report(mut self, report: impl Fn(&ReloadReport) + Send + Sync + 'static) -> Self {
        self.report = Arc::new(report);
        self
    }
}

impl fmt::Debug for OidcOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OidcOptions")
            .field("algorithms", &self.algorithms)
            .field("disallowed_issuers", &self.disallowed_issuers)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// Knows the users of tokens of other issuers. Cheap to clone.
///
/// Its [`OidcWorker`] must run: before it does, no token is accepted.
#[derive(Debug, Clone)]
pub struct Oidc(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    issuers: RwLock<Arc<IssuerSet>>,
}

/// The issuers of one configuration.
#[derive(Debug)]
pub(crate) struct IssuerSet {
    issuers: Vec<Arc<TrustedIssuer>>,
    /// Ends their tasks.
    stop: CancellationToken,
    _stop: DropGuard,
}

impl IssuerSet {
    /// # Errors
    ///
    /// The configuration is invalid, or its CAs cannot be used.
    fn new(
        config: &AuthenticationConfig,
        disallowed_issuers: &[String],
        shared: &Shared,
    ) -> Result<Self, ConfigError> {
        let mappings = config.compile(disallowed_issuers)?;
        let mut issuers = Vec::new();
        for (i, (jwt, mapping)) in config.jwt.iter().zip(mappings).enumerate() {
            let path = Path::new("jwt").index(i).child("issuer");
            let dialer = dialer(&jwt.issuer, &path, shared.egress.as_ref())?;
            let issuer = TrustedIssuer::new(jwt.clone(), mapping, dialer, shared.clone());
            let issuer = issuer.map_err(|error| {
                ConfigError::Invalid(vec![Error::internal(path, text_of(&error))])
            })?;
            issuers.push(Arc::new(issuer));
        }
        let stop = CancellationToken::new();
        Ok(Self { issuers, _stop: stop.clone().drop_guard(), stop })
    }

    pub(crate) fn issuers(&self) -> &[Arc<TrustedIssuer>] {
        &self.issuers
    }
}

/// What is wrong with an issuer's selector while none may have one.
const EGRESS_IS_OFF: &str = "egress selector is not supported when StructuredAuthenticationConfigurationEgressSelector feature gate is disabled";

/// How an issuer is reached.
///
/// # Errors
///
/// It has a selector that is not configured.
fn dialer(
    issuer: &Issuer,
    path: &Path,
    egress: Option<&EgressSelector>,
) -> Result<Dialer, ConfigError> {
    let named = &issuer.egress_selector_type;
    let Some(wanted) = EgressType::named(named) else { return Ok(Dialer::default()) };
    let Some(egress) = egress else {
        let path = path.child("egressSelectorType");
        let wrong = Error::invalid(path, &named.as_str().into(), EGRESS_IS_OFF);
        return Err(ConfigError::Invalid(vec![wrong]));
    };
    if egress.is_none() {
        return Err(ConfigError::NoEgress(wanted));
    }
    egress.configured(wanted).ok_or(ConfigError::NoDialer(wanted))
}

impl Oidc {
    /// Creates the handle and its worker. Nothing is read before the worker runs.
    ///
    /// # Errors
    ///
    /// The configuration is invalid.
    pub fn new(
        config: &AuthenticationConfig,
        options: OidcOptions,
    ) -> Result<(Self, OidcWorker), ConfigError> {
        let OidcOptions {
            clock,
            algorithms,
            disallowed_issuers,
            file,
            period,
            report,
            observer,
            egress,
        } = options;
        let slow = Arc::new(Semaphore::new(SLOW_AT_ONCE));
        let shared = Shared { clock, algorithms: algorithms.into(), slow, observer, egress };
        let first = Arc::new(IssuerSet::new(config, &disallowed_issuers, &shared)?);
        let oidc = Self(Arc::new(Inner { issuers: RwLock::new(first) }));
        let source =
            Source { current: config.clone(), disallowed_issuers, shared, file, period, report };
        Ok((oidc.clone(), OidcWorker { oidc, source }))
    }

    /// The user of a token.
    ///
    /// Dropping the future has no side effects.
    pub async fn authenticate(&self, token: &str) -> Outcome {
        let Ok(parsed) = UnverifiedToken::parse(token) else { return Outcome::NoOpinion };
        let named = full_issuer(parsed.issuer());
        let set = self.0.issuers.read().clone();
        match set.issuers.iter().find(|issuer| issuer.url() == named) {
            Some(issuer) => issuer.authenticate(token).await,
            None => Outcome::NoOpinion,
        }
    }

    /// The URLs of the trusted issuers.
    pub fn issuers(&self) -> Vec<String> {
        let set = self.0.issuers.read().clone();
        set.issuers.iter().map(|issuer| issuer.url().to_owned()).collect()
    }

    pub(crate) fn replace(&self, set: Arc<IssuerSet>, observer: &dyn Observer) {
        let former = std::mem::replace(&mut *self.0.issuers.write(), set.clone());
        let stays = |url: &str| set.issuers.iter().any(|issuer| issuer.url() == url);
        let urls: Vec<String> =
            former.issuers.iter().map(|issuer| issuer.url().to_owned()).collect();
        // Nothing more is read for them.
        former.stop.cancel();
        drop(former);
        urls.iter().filter(|url| !stays(url)).for_each(|url| observer.left(url));
    }
}

/// Where new configurations come from.
pub(crate) struct Source {
    pub(crate) current: AuthenticationConfig,
    disallowed_issuers: Vec<String>,
    pub(crate) shared: Shared,
    pub(crate) file: Option<PathBuf>,
    pub(crate) period: Duration,
    pub(crate) report: Arc<dyn Fn(&ReloadReport) + Send + Sync>,
}

impl Source {
    pub(crate) fn set(&self, config: &AuthenticationConfig) -> Result<IssuerSet, ConfigError> {
        IssuerSet::new(config, &self.disallowed_issuers, &self.shared)
    }
}

/// Follows the keys of the issuers and the configuration file. Its owner runs it.
#[must_use = "no token is accepted before it runs"]
pub struct OidcWorker {
    oidc: Oidc,
    source: Source,
}

impl fmt::Debug for OidcWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OidcWorker").field("file", &self.source.file).finish_non_exhaustive()
    }
}

impl OidcWorker {
    /// Runs until `stop`. Dropping the future stops it at once.
    pub async fn run(self, stop: CancellationToken) {
        let Self { oidc, source } = self;
        let mut tasks = JoinSet::new();
        let follow = |tasks: &mut JoinSet<()>, set: &IssuerSet| {
            for issuer in &set.issuers {
                let (issuer, stop) = (issuer.clone(), set.stop.clone());
                tasks.spawn(async move { issuer.run(&stop).await });
            }
        };
        follow(&mut tasks, &oidc.0.issuers.read().clone());
        let (begin, mut begun) = mpsc::channel(1);
        let reloads = reload::run(&oidc, source, begin);
        tokio::pin!(reloads);
        let mut reloads_end = false;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: a dropped `recv` has taken nothing.
                Some(set) = begun.recv() => {
                    let set: Arc<IssuerSet> = set;
                    follow(&mut tasks, &set);
                }
                // Cancel safe: a dropped `join_next` has taken no result.
                Some(_) = tasks.join_next() => {}
                () = &mut reloads, if !reloads_end => reloads_end = true,
                else => {
                    // Without issuers there is nothing to do.
                    stop.cancelled().await;
                    return;
                }
            }
        }
    }
}
