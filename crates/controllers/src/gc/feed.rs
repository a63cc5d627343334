//! A feed of all objects of a server in the same process. It replaces one informer per resource.

use super::Shared;
use super::elsewhere::is_service;
use bytes::Bytes;
use futures::future::BoxFuture;
use setpoint_object::Skim;
use setpoint_object::error::chain;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// Maximum number of types whose names the feed caches.
///
/// 4096, more than any server serves. When it is exceeded the cache is cleared.
const TYPES_MAX: usize = 4096;

/// All changes to the objects of a server, in the server's order.
///
/// An object's `apiVersion` may be any version of its kind.
pub trait ObjectFeed: Send + 'static {
    /// The next event; `None` when the feed has ended. Dropping the future loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Option<ObjectEvent>>;
}

/// One event of an [`ObjectFeed`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectEvent {
    /// All existing objects follow, then [`ObjectEvent::Synced`]. A known object that is not among
    /// them was deleted.
    Restarted,
    /// An object was created or updated, or exists: encoded JSON with `apiVersion`, `kind` and
    /// `metadata`.
    Put(Bytes),
    /// An object was deleted; its last state.
    Deleted(Bytes),
    /// Every existing object has been sent.
    Synced,
}

/// A feed, boxed.
pub(super) struct Feed(Box<dyn ObjectFeed>);

impl Feed {
    pub(super) fn new(feed: impl ObjectFeed) -> Self {
        Self(Box::new(feed))
    }

    /// Applies the feed to the graph until it ends. Sets `synced` to true once all existing objects
    /// have been applied.
    pub(super) async fn follow(
        mut self,
        shared: Arc<Shared>,
        synced: tokio::sync::watch::Sender<bool>,
    ) {
        let mut types = Types::default();
        // The objects received since the feed restarted, until it has synced.
        let mut listed: Option<HashSet<Arc<str>>> = Some(HashSet::new());
        while let Some(next) = self.0.next().await {
            match next {
                ObjectEvent::Restarted => listed = Some(HashSet::new()),
                ObjectEvent::Put(bytes) => {
                    let Some(skim) = skim(&bytes) else { continue };
                    if let Some(listed) = &mut listed {
                        listed.insert((&*skim.uid).into());
                    }
                    if is_service(&skim) {
                        shared.observe_service(&skim.uid, Some(&bytes));
                    }
                    let (api_version, kind) = types.of(&skim.api_version, &skim.kind);
                    shared.observe(&api_version, &kind, &skim);
                }
                ObjectEvent::Deleted(bytes) => {
                    let Some(skim) = skim(&bytes) else { continue };
                    if is_service(&skim) {
                        shared.observe_service(&skim.uid, None);
                    }
                    shared.forget(&skim.uid, &skim.kind);
                }
                ObjectEvent::Synced => {
                    if let Some(listed) = listed.take() {
                        shared.forget_others(&listed);
                    }
                    synced.send_replace(true);
                }
            }
        }
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Feed")
    }
}

fn skim(bytes: &[u8]) -> Option<Skim<'_>> {
    Skim::of(bytes)
        .inspect_err(|error| {
            tracing::debug!(error = chain(&error), "a stored object cannot be read")
        })
        .ok()
        // A server's own records may have the uid of an object.
        .filter(|skim| !skim.uid.is_empty() && !skim.kind.is_empty())
}

/// `apiVersion` and kind.
type Names = (Arc<str>, Arc<str>);

/// The names of types by `apiVersion` and kind, each stored once for all objects of the type.
#[derive(Default)]
struct Types(HashMap<String, HashMap<String, Names>>);

impl Types {
    fn of(&mut self, api_version: &str, kind: &str) -> Names {
        if let Some(known) = self.0.get(api_version).and_then(|kinds| kinds.get(kind)) {
            return known.clone();
        }
        if self.0.values().map(HashMap::len).sum::<usize>() >= TYPES_MAX {
            self.0.clear();
        }
        let names: Names = (api_version.into(), kind.into());
        self.0.entry(api_version.into()).or_default().insert(kind.into(), names.clone());
        names
    }
}
