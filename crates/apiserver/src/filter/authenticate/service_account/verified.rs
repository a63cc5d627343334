//! Tokens whose signature was checked some seconds ago.

use super::claims::Token;
use parking_lot::Mutex;
use setpoint_object::bounded::Expiring;
use setpoint_object::time::Timestamp;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// How long a token is remembered: its signature is checked again after ten seconds, as in the
/// reference.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Maximum number of tokens that are remembered: the last used ones.
///
/// 8,192: more than the pods of most clusters. Each has some hundred bytes.
const TOKENS_MAX: usize = 8192;

/// Claims of verified tokens, by digest. Tokens themselves are not stored.
#[derive(Debug)]
pub(super) struct Verified(Mutex<Expiring<[u8; 32], Arc<Token>, Timestamp>>);

impl Default for Verified {
    fn default() -> Self {
        Self(Mutex::new(Expiring::new(TOKENS_MAX)))
    }
}

impl Verified {
    /// The key of a token.
    pub(super) fn digest(token: &str) -> [u8; 32] {
        Sha256::digest(token).into()
    }

    pub(super) fn get(&self, digest: &[u8; 32], now: Timestamp) -> Option<Arc<Token>> {
        self.0.lock().get(digest, now).cloned()
    }

    pub(super) fn put(&self, digest: [u8; 32], token: Arc<Token>, now: Timestamp) {
        self.0.lock().put(digest, token, now + REMEMBERED);
    }
}

#[cfg(test)]
mod tests {
    use super::super::claims::{Legacy, Reference};
    use super::*;

    fn token() -> Arc<Token> {
        let account = Reference { name: "a".into(), uid: "1".into() };
        Arc::new(Token::Legacy(Legacy { namespace: "n".into(), secret: "s".into(), account }))
    }

    #[test]
    fn tokens_are_known_for_less_than_ten_seconds() {
        let (verified, at) = (Verified::default(), Timestamp::from_secs);
        assert!(verified.get(&[1; 32], at(1000)).is_none());
        verified.put([1; 32], token(), at(1000));
        assert!(verified.get(&[1; 32], at(1009)).is_some());
        assert!(verified.get(&[1; 32], at(1010)).is_none());
    }

    #[test]
    fn number_of_tokens_is_bounded() {
        let verified = Verified::default();
        for n in 0..TOKENS_MAX + 10 {
            let digest = Verified::digest(&n.to_string());
            verified.put(digest, token(), Timestamp::from_secs(1000));
        }
        assert_eq!(verified.0.lock().len(), TOKENS_MAX);
    }
}
