//! Decrypted sources, so that a plugin is asked once for each.

use super::envelope::{Dek, SourceId};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of decrypted sources of a plugin. A server makes one whenever it starts and
/// whenever the plugin's key changes, so a store has some dozens; beyond that, the least recently
/// used one is asked for again.
pub const SOURCES_MAX: usize = 4096;

/// How long a decrypted source is kept: a day, as in Kubernetes' API server. Then the plugin is
/// asked again, so a key that was revoked there ends here.
pub const SOURCE_TTL: Duration = Duration::from_secs(24 * 3600);

/// The sources with the time at which each is dropped.
#[derive(Debug)]
pub(crate) struct Sources(LruCache<SourceId, (Arc<Dek>, Instant)>);

impl Default for Sources {
    fn default() -> Self {
        Self(LruCache::new(NonZeroUsize::new(SOURCES_MAX).unwrap_or(NonZeroUsize::MIN)))
    }
}

impl Sources {
    /// The key of a source, if it is known.
    pub(crate) fn get(&mut self, id: &SourceId) -> Option<Arc<Dek>> {
        let (dek, until) = self.0.get(id)?;
        if Instant::now() < *until {
            return Some(dek.clone());
        }
        self.0.pop(id);
        None
    }

    /// Adds a source, and returns how many there are. Drops some that have expired.
    pub(crate) fn put(&mut self, id: SourceId, dek: Arc<Dek>) -> usize {
        let now = Instant::now();
        // Of those that nobody has used for long, a few at a time.
        for _ in 0..2 {
            if self.0.peek_lru().is_some_and(|(_, (_, until))| *until <= now) {
                self.0.pop_lru();
            }
        }
        self.0.put(id, (dek, now + SOURCE_TTL));
        self.0.len()
    }
}
