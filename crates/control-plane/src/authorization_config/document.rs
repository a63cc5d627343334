//! The document of an authorization configuration.

use super::{ConfiguredAuthorizers, validate};
use crate::abac::Abac;
use crate::remote::RemoteError;
use serde::{Deserialize, Deserializer};
use setpoint_configuration::{DocumentError, Kind};
use setpoint_egress::Dialer;
use setpoint_object::{duration, field};
use setpoint_small_file::SmallFileError;
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a configuration file in bytes: 1 MiB.
pub const FILE_BYTES_MAX: usize = 1 << 20;

const KIND: Kind = Kind {
    name: "AuthorizationConfiguration",
    versions: &[
        "apiserver.config.k8s.io/v1",
        "apiserver.config.k8s.io/v1beta1",
        "apiserver.config.k8s.io/v1alpha1",
    ],
};

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorizationConfigError {
    /// The file cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// More than [`FILE_BYTES_MAX`] bytes.
    #[error("more than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// Not YAML or JSON, another kind, unknown members, or members of another type.
    #[error("failed to load AuthorizationConfiguration from file: {0}")]
    Document(#[from] DocumentError),
    /// Invalid values.
    #[error("{}", field::aggregate(.0))]
    Invalid(Vec<field::Error>),
    /// The names or types do not fit.
    #[error("{0}")]
    Names(String),
    /// The client of a webhook cannot be made.
    #[error("open the webhook of an authorizer")]
    Webhook(#[from] RemoteError),
}

/// A chain of authorizers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AuthorizationConfig {
    /// In the order of their calls.
    pub authorizers: Vec<AuthorizerConfig>,
}

/// One authorizer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AuthorizerConfig {
    /// `Webhook`, `RBAC`, `Node`, `AlwaysAllow` or `AlwaysDeny`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name; of others than webhooks their type in lower case.
    pub name: String,
    /// The settings of a webhook.
    pub webhook: Option<WebhookConfig>,
}

/// A webhook.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WebhookConfig {
    /// How long an allowed request stays allowed. Default: 5 min.
    #[serde(rename = "authorizedTTL")]
    pub authorized_ttl: Length,
    /// Whether allowed requests are remembered. Default: true.
    pub cache_authorized_requests: bool,
    /// How long any other decision counts. Default: 30 s.
    #[serde(rename = "unauthorizedTTL")]
    pub unauthorized_ttl: Length,
    /// Whether other decisions are remembered. Default: true.
    pub cache_unauthorized_requests: bool,
    /// Timeout of one attempt, at most 30 s.
    pub timeout: Length,
    /// `v1` or `v1beta1`.
    pub subject_access_review_version: String,
    /// `v1`, with match conditions.
    pub match_condition_subject_access_review_version: String,
    /// `NoOpinion` or `Deny`.
    pub failure_policy: String,
    /// Where the webhook is.
    pub connection_info: ConnectionInfo,
    /// All must be true for a call about the request.
    pub match_conditions: Vec<MatchCondition>,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            authorized_ttl: Length::default(),
            cache_authorized_requests: true,
            unauthorized_ttl: Length::default(),
            cache_unauthorized_requests: true,
            timeout: Length::default(),
            subject_access_review_version: String::new(),
            match_condition_subject_access_review_version: String::new(),
            failure_policy: String::new(),
            connection_info: ConnectionInfo::default(),
            match_conditions: Vec::new(),
        }
    }
}

impl WebhookConfig {
    pub(super) fn cached(&self, ttl: Length, is_cached: bool) -> Duration {
        if is_cached { ttl.max() } else { Duration::ZERO }
    }
}

/// Where a webhook is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConnectionInfo {
    /// `KubeConfigFile` or `InClusterConfig`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The absolute path of a kubeconfig.
    pub kube_config_file: Option<String>,
}

/// A condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MatchCondition {
    /// An expression about `request`.
    pub expression: String,
}

/// A length of time, as Go writes it; zero: not set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Length(i64);

impl Length {
    /// So many seconds.
    pub(super) const fn seconds(seconds: i64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    pub(super) fn is_zero(self) -> bool {
        self.0 == 0
    }

    pub(super) fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The length, zero if it is negative.
    pub(super) fn max(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// As Go prints it.
    pub(super) fn shown(self) -> String {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        if seconds == 0 && rest > 0 {
            let (unit, n) = match rest {
                0..1_000 => ("ns", 1.0),
                1_000..1_000_000 => ("µs", 1e3),
                _ => ("ms", 1e6),
            };
            return format!("{sign}{}{unit}", rest as f64 / n);
        }
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let fraction = format!("{rest:09}");
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        let last = format!("{}{dot}{fraction}s", seconds % 60);
        match (hours, minutes) {
            (0, 0) => format!("{sign}{last}"),
            (0, minutes) => format!("{sign}{minutes}m{last}"),
            (hours, minutes) => format!("{sign}{hours}h{minutes}m{last}"),
        }
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        duration::parse(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl AuthorizationConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or as [`parse`](Self::parse) and [`validate`](Self::validate).
    pub fn load(path: &Path) -> Result<Self, AuthorizationConfigError> {
        Ok(Self::load_hashed(path)?.0)
    }

    /// [`load`](Self::load), with the SHA-256 of what was read.
    fn load_hashed(path: &Path) -> Result<(Self, [u8; 32]), AuthorizationConfigError> {
        let document = setpoint_small_file::read(path, FILE_BYTES_MAX)?;
        let config = Self::parse(&document)?;
        config.validate()?;
        Ok((config, Sha256::digest(&document).into()))
    }

    /// Reads a document in YAML or JSON, with defaults.
    ///
    /// # Errors
    ///
    /// It has another kind, unknown members, or members of another type.
    pub fn parse(document: &[u8]) -> Result<Self, AuthorizationConfigError> {
        let mut config: Self = KIND.parse(document)?;
        for webhook in config.authorizers.iter_mut().filter_map(|one| one.webhook.as_mut()) {
            let or = |length: &mut Length, seconds| {
                if length.is_zero() {
                    *length = Length::seconds(seconds);
                }
            };
            or(&mut webhook.authorized_ttl, 300);
            or(&mut webhook.unauthorized_ttl, 30);
        }
        Ok(config)
    }

    /// Checks all values, in kube-apiserver's words.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn validate(&self) -> Result<(), AuthorizationConfigError> {
        let errors = validate::validate(self);
        if !errors.is_empty() {
            return Err(AuthorizationConfigError::Invalid(errors));
        }
        validate::names(self, &[]).map_err(AuthorizationConfigError::Names)
    }

    /// Reads a file once, and opens its authorizers and the worker that reads the file again.
    /// `abac`: the policies of the type `ABAC`, which needs them. Call it within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, a webhook's kubeconfig cannot be used, or the policies of
    /// `ABAC` are missing.
    pub async fn open(
        path: &Path,
        abac: Option<Arc<Abac>>,
        dialer: Dialer,
    ) -> Result<(Arc<ConfiguredAuthorizers>, super::AuthorizationWorker), AuthorizationConfigError>
    {
        let (config, hash) = Self::load_hashed(path)?;
        let chain = Arc::new(ConfiguredAuthorizers::new(&config, abac, dialer).await?);
        let worker = super::AuthorizationWorker::new(chain.clone(), (config, hash), path);
        Ok((chain, worker))
    }
}

impl From<SmallFileError> for AuthorizationConfigError {
    fn from(error: SmallFileError) -> Self {
        match error {
            SmallFileError::Read { path, source } => Self::Read { path, source },
            SmallFileError::TooLong { .. } => Self::TooLarge,
        }
    }
}
