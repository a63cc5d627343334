//! KMS v2: the keys of values are encrypted by a *plugin*, a program behind a Unix socket.
//!
//! # Theory
//!
//! A value is encrypted with a key that is derived from a *seed* (`envelope.rs`). The server makes
//! the seed, lets the plugin encrypt it once, and stores the encrypted seed with every value. The
//! plugin never sees values, and is called rarely:
//!
//! | call | when | by whom |
//! |---|---|---|
//! | `Status` | at start, every minute, every ten seconds while it fails, for a health check | the [poller](crate::EncryptedStore::poll), or a request to `/readyz` |
//! | `Encrypt` | when `Status` reports another key id: makes a new seed | whoever has called `Status` |
//! | `Decrypt` | when a value has a seed that is not in memory | the read that needs it |
//!
//! Writes call nothing: they use the present seed, which `Status` confirms for three more minutes
//! each time. So a plugin that is down for three minutes stops writes, and reads of seeds that are
//! in memory go on. A value is stale if its key id is not the present one.
//!
//! Callers that need the same answer at the same time share one call, whose future is theirs: it
//! ends when nobody waits for it. A call ends within the provider's timeout. Reads resolve their
//! seeds in an asynchronous step, without a lock, and then decrypt. Of a reader of many values:
//!
//! - A range asks a plugin that has not answered once, and returns the rest sealed.
//! - A feed serves all resources. So it waits [`FEED_WAIT_MAX`] at most, and does not wait for a
//!   plugin that has not answered before.
//! - What they returned sealed is asked for again by the poller. When the plugin decrypts it, feeds
//!   end, and their readers read again.

mod cache;
mod envelope;
mod plugin;
mod proto;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use cache::{SOURCE_TTL, SOURCES_MAX};
pub use envelope::{EnvelopeError, KeyIdError};
pub use plugin::{FEED_WAIT_MAX, NEGATIVE_INTERVAL, POSITIVE_INTERVAL, WRITE_TTL};
pub use setpoint_grpc::{Code, RpcError};

use setpoint_object::error::aggregate;

pub(crate) use envelope::{Dek, SourceId, parse, source_id};
pub(crate) use plugin::Plugin;

/// A failure of a plugin, or of what it has answered. The texts are those of Kubernetes' API
/// server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KmsError {
    /// The plugin has not been healthy since this configuration is in use.
    #[error("got unexpected nil transformer")]
    NotReady,
    /// The plugin has not confirmed its key for [`WRITE_TTL`].
    #[error(
        "encryptedDEKSource with keyID hash {key_id_hash:?} expired at {expired} (current time is {now})"
    )]
    Expired {
        /// Hash of the key id.
        key_id_hash: String,
        /// When.
        expired: String,
        /// The present.
        now: String,
    },
    /// The stored value is not an encrypted object.
    #[error("{0}")]
    Envelope(#[from] EnvelopeError),
    /// A seed could not be decrypted.
    #[error("failed to decrypt DEK, error: {0}")]
    Decrypt(#[source] RpcError),
    /// A seed could not be encrypted.
    #[error("failed to encrypt DEK, error: {0}")]
    Encrypt(#[source] RpcError),
    /// A seed is too short or too long.
    #[error("invalid seed length {0} used for key generation")]
    SeedBytes(usize),
    /// A key of an impossible length.
    #[error("crypto/aes: invalid key size {0}")]
    KeyBytes(usize),
    /// The operating system has no randomness.
    #[error("failed to make a seed: {0}")]
    Randomness(String),
    /// `Status` has failed.
    #[error(
        "failed to perform status section of the healthz check for KMS Provider {name}, error: {source}"
    )]
    Status {
        /// The provider.
        name: String,
        /// The failure.
        source: RpcError,
    },
    /// `Status` has returned something that is not healthy.
    #[error("kmsv2 Provider {name} is not healthy, error: {reason}")]
    Unhealthy {
        /// The provider.
        name: String,
        /// All problems.
        reason: String,
    },
}

impl KmsError {
    /// The status code of a failed call.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Self::Decrypt(source) | Self::Encrypt(source) | Self::Status { source, .. } => {
                Some(source.code)
            }
            _ => None,
        }
    }

    /// Whether the plugin has not answered: the next call will hardly be answered either.
    pub(crate) fn is_unanswered(&self) -> bool {
        match self {
            Self::NotReady => true,
            Self::Decrypt(source) | Self::Encrypt(source) | Self::Status { source, .. } => {
                source.is_unanswered()
            }
            _ => false,
        }
    }
}

/// The plugins that are not healthy, by their place in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", text(.0))]
pub struct UnhealthyPlugins(pub(crate) Vec<(usize, KmsError)>);

/// The words of Kubernetes' health check.
fn text(unhealthy: &[(usize, KmsError)]) -> String {
    let text = |(idx, error): &(usize, KmsError)| format!("kms-provider-{idx}: {error}");
    aggregate(&unhealthy.iter().map(text).collect::<Vec<_>>())
}
