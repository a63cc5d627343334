//! The source of nonces.

use parking_lot::Mutex;
use rand::RngCore;
use std::fmt;

type Fill = dyn FnMut(&mut [u8]) -> std::io::Result<()> + Send;

/// A source of random bytes for nonces and initialization vectors, supplied by the program.
///
/// Programs use the operating system's, tests a seeded one. If a nonce repeats under one AES-GCM
/// key, both values can be decrypted and others forged, so programs must never use a seeded source.
pub struct NonceSource {
    fill: Mutex<Box<Fill>>,
}

impl fmt::Debug for NonceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NonceSource").finish_non_exhaustive()
    }
}

impl NonceSource {
    /// Calls a function that fills the whole slice or fails. It is called under a lock and must not
    /// block.
    pub fn new(fill: impl FnMut(&mut [u8]) -> std::io::Result<()> + Send + 'static) -> Self {
        Self { fill: Mutex::new(Box::new(fill)) }
    }

    /// Uses a generator: the same seed gives the same nonces, for tests and simulations.
    pub fn from_rng(mut rng: impl RngCore + Send + 'static) -> Self {
        Self::new(move |bytes| {
            rng.fill_bytes(bytes);
            Ok(())
        })
    }

    pub(crate) fn fill(&self, bytes: &mut [u8]) -> std::io::Result<()> {
        (self.fill.lock())(bytes)
    }
}
