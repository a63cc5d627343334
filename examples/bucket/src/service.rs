//! The service of buckets, outside of the cluster. This one is in memory; a real one is an HTTP
//! client with the same calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Maximum number of queued notices; further ones are dropped, as a message queue may do.
const NOTICES_MAX: usize = 1024;

/// A handle on the service. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Service(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The access key of each bucket.
    buckets: BTreeMap<String, Vec<u8>>,
    notices: Option<mpsc::Sender<String>>,
}

impl Service {
    /// Creates the bucket, or changes its access key. Idempotent.
    pub fn ensure(&self, name: &str, access_key: &[u8]) {
        self.state().buckets.insert(name.to_owned(), access_key.to_owned());
    }

    /// Deletes the bucket. Succeeds if it does not exist.
    pub fn remove(&self, name: &str) {
        self.state().buckets.remove(name);
    }

    /// The names of buckets that others change, from now on, for one receiver at a time.
    pub fn notices(&self) -> mpsc::Receiver<String> {
        let (sender, receiver) = mpsc::channel(NOTICES_MAX);
        self.state().notices = Some(sender);
        receiver
    }

    /// Deletes a bucket as a user of the service's own console does.
    pub fn delete_by_hand(&self, name: &str) {
        let mut state = self.state();
        state.buckets.remove(name);
        if let Some(notices) = &state.notices {
            // A dropped notice loses nothing: the next check finds the change.
            let _ = notices.try_send(name.to_owned());
        }
    }

    /// All buckets, with their access keys.
    pub fn buckets(&self) -> BTreeMap<String, Vec<u8>> {
        self.state().buckets.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
