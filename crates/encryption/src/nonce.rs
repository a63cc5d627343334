//! Where nonces come from.

use parking_lot::Mutex;
use rand::RngCore;
use std::fmt;

type Fill = dyn FnMut(&mut [u8]) -> std::io::Result<()> + Send;

/// A source of random bytes for nonces and initialization vectors, given by whoever builds the
/// store.
///
/// A program gives the operating system's; a test a seeded one. A nonce that comes twice under one
/// key of AES-GCM gives away what both values hold and lets others forge, so nothing that can be
/// seeded alike belongs in a program.
pub struct NonceSource {
    fill: Mutex<Box<Fill>>,
}

impl fmt::Debug for NonceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NonceSource").finish_non_exhaustive()
    }
}

impl NonceSource {
    /// Asks a function, which fills the whole slice or fails. It is called under a lock and must
    /// not wait.
    pub fn new(fill: impl FnMut(&mut [u8]) -> std::io::Result<()> + Send + 'static) -> Self {
        Self { fill: Mutex::new(Box::new(fill)) }
    }

    /// Asks a generator: the same seed gives the same nonces, for tests and simulations.
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
