//! Results of tokens, for a short time.

use crate::authenticator::User;
use parking_lot::Mutex;
use setpoint_object::bounded::Expiring;
use setpoint_object::time::Timestamp;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// How long the user of a token is remembered: 10 s, as in kube-apiserver. A token that ends within
/// it is accepted that much longer at most.
pub const REMEMBERED: Duration = Duration::from_secs(10);

/// Maximum number of tokens that are remembered: the last used ones.
const TOKENS_MAX: usize = 4096;

/// The users of verified tokens, by the digests of the tokens.
#[derive(Debug)]
pub(crate) struct Remembered(Mutex<Expiring<Digest, Arc<User>, Timestamp>>);

impl Default for Remembered {
    fn default() -> Self {
        Self(Mutex::new(Expiring::new(TOKENS_MAX)))
    }
}

/// The SHA-256 of a token, so that no token is kept.
type Digest = [u8; 32];

impl Remembered {
    pub(crate) fn digest(token: &str) -> Digest {
        Sha256::digest(token).into()
    }

    pub(crate) fn get(&self, digest: &Digest, now: Timestamp) -> Option<Arc<User>> {
        self.0.lock().get(digest, now).cloned()
    }

    pub(crate) fn put(&self, digest: Digest, user: Arc<User>, now: Timestamp) {
        self.0.lock().put(digest, user, now + REMEMBERED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_forgotten_and_bounded() {
        let known = Remembered::default();
        let user = Arc::new(User::default());
        let now = Timestamp::from_secs(100);
        for n in 0..TOKENS_MAX + 5 {
            known.put(Remembered::digest(&n.to_string()), user.clone(), now);
        }
        assert_eq!(known.0.lock().len(), TOKENS_MAX);
        let (first, last) = ("0", (TOKENS_MAX + 4).to_string());
        let (first, last) = (Remembered::digest(first), Remembered::digest(&last));
        assert!(known.get(&first, now).is_none());
        assert!(known.get(&last, now + Duration::from_secs(9)).is_some());
        assert!(known.get(&last, now + REMEMBERED).is_none());
    }
}
