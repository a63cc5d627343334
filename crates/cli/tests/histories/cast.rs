//! The watchers and clients of one history. Many histories run concurrently, in real time.

use crate::client::{NAMESPACES, Person, Place};
use crate::record::Record;
use crate::watcher::{Ends, Watcher};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Clients of one history.
const CLIENTS: usize = 16;
/// Requests of each client.
const REQUESTS: usize = 4;
/// Longer than any operation takes, including an election and waiting requests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Running watchers, and a factory for clients.
pub(crate) struct Cast {
    rng: SmallRng,
    place: Arc<Place>,
    record: Arc<Record>,
    /// The longest pause of a client.
    pause_max: Duration,
    end: watch::Sender<Ends>,
    watching: JoinSet<()>,
}

impl Cast {
    /// Starts watching every namespace. `n` is the history's number.
    pub(crate) fn new(n: u64, place: Arc<Place>, record: Arc<Record>, pause_max: Duration) -> Self {
        let mut rng = SmallRng::seed_from_u64(n);
        let (end, ends) = watch::channel(Ends::None);
        let mut watching = JoinSet::new();
        for namespace in 0..NAMESPACES {
            let watcher = Watcher {
                rng: SmallRng::from_rng(&mut rng),
                place: place.clone(),
                record: record.clone(),
                namespace: Some(namespace),
                ends: ends.clone(),
            };
            watching.spawn(watcher.live());
        }
        Self { rng, place, record, pause_max, end, watching }
    }

    /// Creates another client.
    pub(crate) fn person(&mut self) -> Person {
        Person {
            rng: SmallRng::from_rng(&mut self.rng),
            place: self.place.clone(),
            record: self.record.clone(),
            known: BTreeMap::new(),
            newest: 0,
            pause_max: self.pause_max,
        }
    }

    /// Runs [`CLIENTS`] clients concurrently to their end.
    pub(crate) async fn ask(&mut self) {
        let mut asking = JoinSet::new();
        for _ in 0..CLIENTS {
            asking.spawn(self.person().live(REQUESTS));
        }
        while let Some(ended) = asking.join_next().await {
            ended.unwrap();
        }
    }

    /// Gives the watchers the last revision of each namespace, and waits until they have seen it.
    /// Returns false if one never does.
    pub(crate) async fn see(&mut self, last: Vec<u64>) -> bool {
        self.end.send_replace(Some(last));
        let watched = async {
            while let Some(ended) = self.watching.join_next().await {
                ended.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, watched).await.is_ok()
    }
}
