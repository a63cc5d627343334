//! TLS sessions that clients may resume.

use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use std::sync::{Arc, OnceLock};

/// Maximum number of sessions that are kept, as rustls' default.
const SESSIONS_MAX: usize = 256;

/// rustls' own cache of sessions, made for the first one: it reserves 31 KiB, and a listener may
/// never have a client.
#[derive(Debug, Default)]
pub struct Sessions(OnceLock<Arc<ServerSessionMemoryCache>>);

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.0.get_or_init(|| ServerSessionMemoryCache::new(SESSIONS_MAX)).put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get()?.get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get()?.take(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_kept_once_there_is_one() {
        let sessions = Sessions::default();
        assert_eq!((sessions.get(b"a"), sessions.take(b"a")), (None, None));
        assert!(sessions.0.get().is_none());
        assert!(sessions.can_cache() && sessions.put(b"a".to_vec(), b"1".to_vec()));
        assert_eq!(sessions.get(b"a"), Some(b"1".to_vec()));
        assert_eq!((sessions.take(b"a"), sessions.get(b"a")), (Some(b"1".to_vec()), None));
    }
}
