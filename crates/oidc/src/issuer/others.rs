//! Issuers that are trusted only for claims that a trusted issuer says are theirs.

use crate::config::Issuer;
use crate::fetch::Fetcher;
use crate::keys::Keys;
use parking_lot::Mutex;
use setpoint_object::bounded::{LruCache, lru};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How many other issuers are followed for one issuer: the 16 that were used last. One or two are
/// usual.
pub const OTHER_ISSUERS_MAX: usize = 16;

/// Other issuers of claims, by their URLs.
#[derive(Debug)]
pub(super) struct Others {
    state: Mutex<State>,
    begun: Notify,
}

#[derive(Debug)]
struct State {
    followed: LruCache<String, Arc<Other>>,
    /// Those that have no task yet.
    new: Vec<Arc<Other>>,
}

/// Another issuer.
#[derive(Debug)]
pub(super) struct Other {
    issuer: Issuer,
    keys: Keys,
    /// Ends its task.
    stop: CancellationToken,
}

impl Other {
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }
}

impl Others {
    pub(super) fn new() -> Self {
        let state = State { followed: lru(OTHER_ISSUERS_MAX), new: Vec::new() };
        Self { state: Mutex::new(state), begun: Notify::new() }
    }

    /// The issuer with this URL, whose keys are followed from now on. Replaces the one that was not
    /// used for the longest time.
    pub(super) fn get(&self, url: &str) -> Arc<Other> {
        let other = {
            let mut state = self.state.lock();
            if let Some(known) = state.followed.get(url) {
                return known.clone();
            }
            let issuer = Issuer { url: url.to_owned(), ..Issuer::default() };
            let stop = CancellationToken::new();
            let other = Arc::new(Other { issuer, keys: Keys::new(), stop });
            if let Some((_, former)) = state.followed.push(url.to_owned(), other.clone()) {
                former.stop.cancel();
            }
            state.new.retain(|other| !other.stop.is_cancelled());
            state.new.push(other.clone());
            other
        };
        self.begun.notify_one();
        other
    }

    /// Follows their keys until `stop`.
    pub(super) async fn run(&self, fetcher: &Fetcher, stop: &CancellationToken) {
        let mut tasks = JoinSet::new();
        loop {
            let new = std::mem::take(&mut self.state.lock().new);
            for other in new {
                let fetcher = fetcher.clone();
                tasks.spawn(async move {
                    // The metrics are about issuers of the configuration.
                    other.keys.follow(&other.issuer, &fetcher, |_| {}, &other.stop).await;
                });
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: a dropped `notified` leaves the permit, a dropped `join_next` the
                // result.
                () = self.begun.notified() => {}
                Some(_) = tasks.join_next() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_issuers_used_last_are_followed() {
        let others = Others::new();
        let first = others.get("https://first");
        let used = others.get("https://used");
        for n in 0..OTHER_ISSUERS_MAX - 1 {
            others.get(&format!("https://{n}"));
            assert!(Arc::ptr_eq(&others.get("https://used"), &used));
        }
        assert!(first.stop.is_cancelled());
        assert!(!used.stop.is_cancelled());
        let state = others.state.lock();
        assert_eq!((state.followed.len(), state.new.len()), (OTHER_ISSUERS_MAX, OTHER_ISSUERS_MAX));
    }
}
