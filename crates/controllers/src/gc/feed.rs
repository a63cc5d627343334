//! The objects of a server in the same process, told by the server itself: no informer for each
//! resource.

use super::Shared;
use bytes::Bytes;
use futures::future::BoxFuture;
use setpoint_object::Skim;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// How many types the feed remembers the names of.
///
/// 4096: more than any server serves. Beyond it the names are forgotten and remembered anew.
const TYPES_MAX: usize = 4096;

/// Everything that happens to the objects of a server, in the server's order.
///
/// An object's `apiVersion` may be any version of its kind.
pub trait ObjectFeed: Send + 'static {
    /// The next thing to know; `None` when the feed has ended. Dropping the future loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Option<Told>>;
}

/// One thing that a feed tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// All objects that exist follow, then [`Told::Synced`]. An object that was there before and
    /// is not among them is gone.
    Restarted,
    /// An object as it is now: encoded JSON with `apiVersion`, `kind` and `metadata`.
    Present(Bytes),
    /// An object as it last was; it is gone.
    Gone(Bytes),
    /// Every object that existed has been told.
    Synced,
}

/// A feed, boxed.
pub(super) struct Feed(Box<dyn ObjectFeed>);

impl Feed {
    pub(super) fn new(feed: impl ObjectFeed) -> Self {
        Self(Box::new(feed))
    }

    /// Takes the feed into the graph until it ends. `synced` becomes true once everything that
    /// existed has been told.
    pub(super) async fn follow(
        mut self,
        shared: Arc<Shared>,
        synced: tokio::sync::watch::Sender<bool>,
    ) {
        let mut types = Types::default();
        // The objects told since the feed restarted, until it has synced.
        let mut told: Option<HashSet<Arc<str>>> = Some(HashSet::new());
        while let Some(next) = self.0.next().await {
            match next {
                Told::Restarted => told = Some(HashSet::new()),
                Told::Present(bytes) => {
                    let Some(skim) = skim(&bytes) else { continue };
                    if let Some(told) = &mut told {
                        told.insert((&*skim.uid).into());
                    }
                    let (api_version, kind) = types.of(&skim.api_version, &skim.kind);
                    shared.observe(&api_version, &kind, &skim);
                }
                Told::Gone(bytes) => {
                    let Some(skim) = skim(&bytes) else { continue };
                    shared.forget(&skim.uid, &skim.kind);
                }
                Told::Synced => {
                    if let Some(told) = told.take() {
                        shared.forget_others(&told);
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
        .inspect_err(|error| tracing::debug!(%error, "a stored object cannot be read"))
        .ok()
        // What a server keeps for itself has none.
        .filter(|skim| !skim.uid.is_empty())
}

/// `apiVersion` and kind.
type Names = (Arc<str>, Arc<str>);

/// The names of types, each kept once for all objects of the type: by `apiVersion`, by kind.
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
