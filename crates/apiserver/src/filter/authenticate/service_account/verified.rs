//! Tokens whose signature was checked some seconds ago.

use super::claims::Token;
use parking_lot::Mutex;
use setpoint_object::time::Timestamp;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The age of a generation. A token is in one or two of them: its signature is checked again after
/// ten seconds at most, as in the reference.
const GENERATION: Duration = Duration::from_secs(5);

/// Maximum number of tokens of a generation. Further ones are not remembered.
///
/// 4,096: more than the pods of most clusters. Each has some hundred bytes.
const TOKENS_MAX: usize = 4096;

type Digests = HashMap<[u8; 32], Arc<Token>>;

/// Claims of verified tokens, by digest. Tokens themselves are not kept.
#[derive(Debug, Default)]
pub(super) struct Verified(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    present: Digests,
    former: Digests,
    began: Timestamp,
}

impl Verified {
    /// The key of a token.
    pub(super) fn digest(token: &str) -> [u8; 32] {
        Sha256::digest(token).into()
    }

    pub(super) fn get(&self, digest: &[u8; 32], now: Timestamp) -> Option<Arc<Token>> {
        let mut generations = self.0.lock();
        let dropped = generations.advance(now);
        let found = generations.present.get(digest).or_else(|| generations.former.get(digest));
        let found = found.cloned();
        drop(generations);
        drop(dropped);
        found
    }

    pub(super) fn put(&self, digest: [u8; 32], token: Arc<Token>, now: Timestamp) {
        let mut generations = self.0.lock();
        let dropped = generations.advance(now);
        if generations.present.len() < TOKENS_MAX {
            generations.present.insert(digest, token);
        }
        drop(generations);
        drop(dropped);
    }
}

impl Generations {
    /// Begins a generation if the present one is old. Returns what is no longer known.
    fn advance(&mut self, now: Timestamp) -> [Digests; 2] {
        let age = now.since(self.began);
        if age < GENERATION {
            return [Digests::new(), Digests::new()];
        }
        self.began = now;
        let former = std::mem::take(&mut self.present);
        if age < 2 * GENERATION {
            return [std::mem::replace(&mut self.former, former), Digests::new()];
        }
        [std::mem::take(&mut self.former), former]
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
    fn tokens_are_known_for_some_seconds_and_at_most_ten() {
        for start in 1000..1005 {
            let verified = Verified::default();
            let at = Timestamp::from_secs;
            // A generation begins at 1000.
            assert!(verified.get(&[0; 32], at(1000)).is_none());
            verified.put([1; 32], token(), at(start));
            let last = (start..1100).take_while(|now| verified.get(&[1; 32], at(*now)).is_some());
            let known = last.last().unwrap() - start;
            assert!((4..10).contains(&known), "{known}");
        }
    }

    #[test]
    fn number_of_tokens_is_bounded() {
        let verified = Verified::default();
        for n in 0..TOKENS_MAX + 10 {
            let digest = Verified::digest(&n.to_string());
            verified.put(digest, token(), Timestamp::from_secs(1000));
        }
        assert_eq!(verified.0.lock().present.len(), TOKENS_MAX);
    }
}
