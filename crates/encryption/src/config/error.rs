//! Errors of a configuration.

use crate::kms::UnhealthyPlugins;
use setpoint_small_file::SmallFileError;
use std::path::PathBuf;

/// Why a configuration is refused. Contains no secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("read the encryption configuration {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// It is empty.
    #[error("the encryption configuration is empty")]
    Empty,
    /// It is larger than [`FILE_BYTES_MAX`](super::FILE_BYTES_MAX).
    #[error("the encryption configuration has more than {max} bytes")]
    TooLarge {
        /// The limit.
        max: usize,
    },
    /// It is neither YAML nor JSON.
    #[error("the encryption configuration is not YAML: line {line}, column {column}")]
    Syntax {
        /// Starts at one; zero if unknown.
        line: u64,
        /// Starts at one; zero if unknown.
        column: u64,
    },
    /// It is valid YAML or JSON, but an invalid configuration. Has every fault, at most
    /// [`FAULTS_MAX`](Self::FAULTS_MAX).
    #[error("the encryption configuration is invalid: {}", joined(.0, ", ", true))]
    Faults(Vec<Fault>),
    /// Its plugins are not healthy.
    #[error("health check for new transformers failed: {0}")]
    Plugins(#[source] UnhealthyPlugins),
}

impl From<SmallFileError> for ConfigError {
    fn from(error: SmallFileError) -> Self {
        match error {
            SmallFileError::Read { path, source } => Self::Read { path, source },
            SmallFileError::TooLong { bytes_max: max, .. } => Self::TooLarge { max },
        }
    }
}

impl ConfigError {
    /// Maximum number of reported faults.
    pub const FAULTS_MAX: usize = 20;
}

/// A fault and its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {why}")]
pub struct Fault {
    /// The path, such as `resources[0].providers[1].aesgcm.keys[0].secret`.
    pub path: String,
    /// The problem.
    pub why: Violation,
}

/// The problem at one place. The texts are those of Kubernetes' API server, where it refuses the
/// same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Another API version or kind.
    #[error(
        "got unexpected config type: {found}, expected apiserver.config.k8s.io/v1 EncryptionConfiguration"
    )]
    Kind {
        /// `apiVersion` and `kind` of the file.
        found: String,
    },
    /// An unknown member.
    #[error("unknown field")]
    Unknown,
    /// A value of another type.
    #[error("expected {wanted}")]
    Type {
        /// `a string`, `a list` or `an object`.
        wanted: &'static str,
    },
    /// An empty list, by its name in Kubernetes' text.
    #[error("Required value: at least one {0} is required")]
    NoElement(String),
    /// A missing member.
    #[error("Required value: {0} is a mandatory field for a key")]
    NoMember(&'static str),
    /// An element of `providers` without a provider.
    #[error(
        "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
    )]
    NoProvider,
    /// An element of `providers` with several providers.
    #[error(
        "more than one provider specified in a single element, should split into different list elements"
    )]
    TwoProviders,
    /// A missing member of `kms`.
    #[error("Required value: name is a mandatory field for a provider")]
    NoKmsName,
    /// A missing socket.
    #[error("Invalid value: \"\": endpoint is a mandatory field for a kms")]
    NoEndpoint,
    /// A name with a colon, which ends it in the prefix of values.
    #[error("Invalid value: {0:?}: invalid KMS provider name {0}, must not contain ':'")]
    KmsName(String),
    /// Two plugins of one name.
    #[error("Invalid value: {0:?}: duplicate KMS provider name {0}, names must be unique")]
    DuplicateKmsName(String),
    /// A timeout that is not positive, or not a duration.
    #[error("Invalid value: {0:?}: timeout should be a positive value")]
    Timeout(String),
    /// Not a duration.
    #[error("time: invalid duration {0:?}")]
    Duration(String),
    /// An endpoint that is not a URL.
    #[error(
        "Invalid value: {endpoint:?}: invalid endpoint for kms provider, error: parse {endpoint:?}: {why}"
    )]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// The problem.
        why: &'static str,
    },
    /// An endpoint that is not a Unix socket.
    #[error(
        "Invalid value: {endpoint:?}: unsupported scheme {scheme:?} for KMS provider, only unix is supported"
    )]
    Scheme {
        /// The endpoint.
        endpoint: String,
        /// Its scheme.
        scheme: String,
    },
    /// `cachesize` with `v2`.
    #[error("Invalid value: {0}: cachesize is not supported in v2")]
    CacheSize(i64),
    /// A version that is neither `v1` nor `v2`.
    #[error(
        "Invalid value: {0:?}: unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"
    )]
    KmsVersion(String),
    /// Version 1, which Kubernetes refuses by default.
    #[error(
        "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature."
    )]
    KmsV1,
    /// A secret that is not base64.
    #[error("Invalid value: \"REDACTED\": secrets must be base64 encoded")]
    Base64,
    /// A secret of a length that the cipher does not support.
    #[error(
        "Invalid value: \"REDACTED\": secret is not of the expected length, got {got}, expected one of [{}]",
        joined(wanted, " ", false)
    )]
    KeyBytes {
        /// Its length in bytes.
        got: usize,
        /// The supported lengths.
        wanted: &'static [usize],
    },
    /// The same resource twice in this list.
    #[error("Invalid value: {}: the same resource cannot be specified multiple times", list(.0))]
    Duplicate(Vec<String>),
    /// A resource and a wildcard that covers it in this list.
    #[error(
        "Invalid value: {}: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked",
        list(.0)
    )]
    Overlap(Vec<String>),
    /// `Secrets`.
    #[error("Invalid value: {0:?}: resource name should not contain capital letters")]
    Capital(String),
    /// `*`.
    #[error(
        "Invalid value: \"*\": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
    )]
    Star,
    /// `serviceipallocations` and its like.
    #[error("Invalid value: {0:?}: resources which do not have REST API/s cannot be encrypted")]
    NoApi(String),
    /// `events.events.k8s.io`.
    #[error(
        "Invalid value: {0:?}: '*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
    )]
    Events(String),
    /// `ingresses.extensions`.
    #[error(
        "Invalid value: {0:?}: 'extensions' group has been removed and cannot be used for encryption"
    )]
    Extensions(String),
    /// `secrets.*`.
    #[error("Invalid value: {0:?}: encrypting the same resource across groups is not supported")]
    AcrossGroups(String),
    /// An earlier entry covers it.
    #[error("resource {resource:?} is masked by earlier rule {rule:?}")]
    Masked {
        /// The resource named here.
        resource: String,
        /// The rule that covers it.
        rule: String,
    },
}

/// Joins items. Several are in brackets if that is wanted.
fn joined<T: ToString>(items: &[T], separator: &str, in_brackets: bool) -> String {
    let text = items.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator);
    if in_brackets && items.len() > 1 { format!("[{text}]") } else { text }
}

/// Names as a list in JSON.
fn list(names: &[String]) -> String {
    serde_json::Value::from(names).to_string()
}

/// A word of the file that may be shown. Longer words than any valid one may be a secret in the
/// wrong place.
pub(super) fn shown(word: &str) -> &str {
    const WORD_BYTES_MAX: usize = 30;
    let is_word = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"./-_*".contains(&b));
    if is_word && word.len() <= WORD_BYTES_MAX { word } else { "…" }
}
