//! Results of tokens, for a short time.

use crate::authenticator::User;
use parking_lot::Mutex;
use setpoint_object::bounded::{LruCache, lru};
use setpoint_object::time::Timestamp;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// How long the user of a token is remembered: 10 s, as in kube-apiserver. A token that ends within
/// it is accepted that much longer at most.
pub const REMEMBERED: Duration = Duration::from_secs(10);

/// Maximum number of tokens that are remembered: the last used ones.
const TOKENS_MAX: usize = 4096;

/// Maximum size of all remembered users in bytes: 64 MiB. A token has some KiB, but its groups may
/// be a mebibyte elsewhere.
const BYTES_MAX: usize = 64 << 20;

/// What an entry and a text take besides their bytes, about.
const ENTRY_BYTES: usize = 256;
const TEXT_BYTES: usize = 24;

/// The users of verified tokens, by the digests of the tokens.
#[derive(Debug)]
pub(crate) struct Remembered(Mutex<State>);

#[derive(Debug)]
struct State {
    entries: LruCache<Digest, Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    end: Timestamp,
    user: Arc<User>,
    bytes: usize,
}

impl Default for Remembered {
    fn default() -> Self {
        Self(Mutex::new(State { entries: lru(TOKENS_MAX), bytes: 0 }))
    }
}

/// The SHA-256 of a token, so that no token is kept.
pub(crate) type Digest = [u8; 32];

impl Remembered {
    pub(crate) fn digest(token: &str) -> Digest {
        Sha256::digest(token).into()
    }

    pub(crate) fn get(&self, digest: &Digest, now: Timestamp) -> Option<Arc<User>> {
        self.0.lock().get(digest, now)
    }

    pub(crate) fn put(&self, digest: Digest, user: Arc<User>, now: Timestamp) {
        let bytes = bytes(&user);
        self.0.lock().put(digest, Entry { end: now + REMEMBERED, user, bytes });
    }
}

impl State {
    fn get(&mut self, digest: &Digest, now: Timestamp) -> Option<Arc<User>> {
        let entry = self.entries.get(digest)?;
        if entry.end > now {
            return Some(entry.user.clone());
        }
        self.bytes -= self.entries.pop(digest).map_or(0, |entry| entry.bytes);
        None
    }

    fn put(&mut self, digest: Digest, entry: Entry) {
        self.bytes += entry.bytes;
        if let Some((_, former)) = self.entries.push(digest, entry) {
            self.bytes -= former.bytes;
        }
        while self.bytes > BYTES_MAX
            && let Some((_, former)) = self.entries.pop_lru()
        {
            self.bytes -= former.bytes;
        }
    }
}

/// What a user takes in memory, about.
fn bytes(user: &User) -> usize {
    let text = |text: &String| TEXT_BYTES + text.len();
    let texts = |texts: &Vec<String>| texts.iter().map(text).sum::<usize>();
    let extra = user.extra.iter().map(|(key, values)| text(key) + texts(values));
    ENTRY_BYTES
        + text(&user.username)
        + text(&user.uid)
        + texts(&user.groups)
        + extra.sum::<usize>()
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
        assert_eq!(known.0.lock().entries.len(), TOKENS_MAX);
        assert_eq!(known.0.lock().bytes, TOKENS_MAX * bytes(&user));
        let (first, last) = ("0", (TOKENS_MAX + 4).to_string());
        let (first, last) = (Remembered::digest(first), Remembered::digest(&last));
        assert!(known.get(&first, now).is_none());
        assert!(known.get(&last, now + Duration::from_secs(9)).is_some());
        assert!(known.get(&last, now + REMEMBERED).is_none());
        assert_eq!(known.0.lock().bytes, (TOKENS_MAX - 1) * bytes(&user));
    }

    #[test]
    fn large_users_are_bounded_together() {
        let known = Remembered::default();
        let groups = vec!["g".repeat(1 << 20)];
        let user = Arc::new(User { groups, ..User::default() });
        let now = Timestamp::from_secs(100);
        for n in 0..200_u32 {
            known.put(Remembered::digest(&n.to_string()), user.clone(), now);
        }
        assert_eq!(known.0.lock().entries.len(), 63);
        assert!(known.0.lock().bytes <= BYTES_MAX);
        assert!(known.get(&Remembered::digest("199"), now).is_some());
        // The same token again counts once.
        known.put(Remembered::digest("199"), user, now);
        assert_eq!(known.0.lock().entries.len(), 63);
    }
}
