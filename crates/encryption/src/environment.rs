//! What a store takes from the program that runs it.

use crate::metrics::EncryptionMetrics;
use crate::nonce::NonceSource;
use setpoint_object::time::Clock;

/// Randomness, time, and what is counted.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) nonces: NonceSource,
    pub(crate) clock: Clock,
    pub(crate) metrics: EncryptionMetrics,
}
