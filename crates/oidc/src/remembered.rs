//! Results of tokens, for a short time.

use crate::authenticator::User;
use parking_lot::Mutex;
use setpoint_object::time::Timestamp;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long the user of a token is remembered: 10 s, as in kube-apiserver. A token that ends within
/// it is accepted that much longer at most.
pub const REMEMBERED: Duration = Duration::from_secs(10);

/// Maximum number of tokens that are remembered.
const TOKENS_MAX: usize = 4096;

/// The users of verified tokens, by the digests of the tokens.
#[derive(Debug, Default)]
pub(crate) struct Remembered(Mutex<HashMap<Digest, (Arc<User>, Timestamp)>>);

/// The SHA-256 of a token, so that no token is kept.
type Digest = [u8; 32];

impl Remembered {
    pub(crate) fn digest(token: &str) -> Digest {
        Sha256::digest(token).into()
    }

    pub(crate) fn get(&self, digest: &Digest, now: Timestamp) -> Option<Arc<User>> {
        let known = self.0.lock();
        known.get(digest).filter(|(_, until)| now < *until).map(|(user, _)| user.clone())
    }

    pub(crate) fn put(&self, digest: Digest, user: Arc<User>, now: Timestamp) {
        let mut known = self.0.lock();
        if known.len() >= TOKENS_MAX {
            known.retain(|_, (_, until)| now < *until);
        }
        // As many within ten seconds: the next ones are verified each time.
        if known.len() < TOKENS_MAX {
            known.insert(digest, (user, now + REMEMBERED));
        }
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
        let first = Remembered::digest("0");
        assert!(known.get(&first, now + Duration::from_secs(9)).is_some());
        assert!(known.get(&first, now + REMEMBERED).is_none());
        known.put(Remembered::digest("x"), user, now + REMEMBERED);
        assert_eq!(known.0.lock().len(), 1);
    }
}
