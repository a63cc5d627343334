//! Random histories: writers, watchers that join at any time, feeds that break. Every watcher must
//! see exactly what happened.
use super::{EventKind, WatchStream};
use crate::testing::{Bench, options};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use proptest::prelude::*;
use serde_json::json;
use setpoint_object::{Skim, encode};
use setpoint_store::fault::{FaultStore, Faults};
use setpoint_store::{MemoryStore, Op};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One step of a history. Numbers select among what exists.
#[derive(Debug, Clone)]
enum Step {
    Put {
        name: u8,
        label: bool,
    },
    Delete {
        name: u8,
    },
    /// Several objects, and one of another resource, in one revision.
    Together {
        names: Vec<(u8, bool)>,
    },
    /// A watcher that lists first, or starts at a revision.
    Join {
        selection: Selection,
        from: Option<prop::sample::Index>,
    },
    Leave {
        watcher: prop::sample::Index,
    },
    /// A watcher takes all its events.
    Drain {
        watcher: prop::sample::Index,
    },
    /// Every watch of the resource is ended.
    Close,
    /// The feed breaks; the cache is filled again.
    Break,
    /// Time passes for bookmarks.
    Minute,
}
/// Selection a watcher selects. Objects with an even name are in one namespace, the others in
/// another.
#[derive(Debug, Clone, Copy)]
enum Selection {
    All,
    Namespace,
    On,
    OnInNamespace,
    Off,
    /// Any value of the label, but indexed by it.
    OnOrOff,
    NotOn,
    Name(u8),
    /// One object, in its namespace.
    One(u8),
    NotName(u8),
}
fn selection() -> impl Strategy<Value = Selection> {
    prop_oneof![
        Just(Selection::All),
        Just(Selection::Namespace),
        Just(Selection::On),
        Just(Selection::OnInNamespace),
        Just(Selection::Off),
        Just(Selection::OnOrOff),
        Just(Selection::NotOn),
        (0..5u8).prop_map(Selection::Name),
        (0..5u8).prop_map(Selection::One),
        (0..5u8).prop_map(Selection::NotName),
    ]
}
fn namespace(name: u8) -> &'static str {
    if name.is_multiple_of(2) { "d" } else { "e" }
}
impl Selection {
    fn path(self) -> String {
        match self {
            Self::Namespace | Self::OnInNamespace => "v1/configmaps/d".to_owned(),
            Self::One(name) => format!("v1/configmaps/{}", namespace(name)),
            _ => "v1/configmaps".to_owned(),
        }
    }
    fn options(self) -> String {
        match self {
            Self::All | Self::Namespace => String::new(),
            Self::On | Self::OnInNamespace => "labels=on=true".to_owned(),
            Self::Off => "labels=on=false,on".to_owned(),
            Self::OnOrOff => "labels=on%in%(true,false)".to_owned(),
            Self::NotOn => "labels=on!=true".to_owned(),
            Self::Name(name) | Self::One(name) => format!("fields=metadata.name={name}"),
            Self::NotName(name) => format!("fields=metadata.name!={name}"),
        }
    }
    fn selects(self, name: u8, label: bool) -> bool {
        match self {
            Self::All | Self::OnOrOff => true,
            Self::Namespace => namespace(name) == "d",
            Self::On => label,
            Self::OnInNamespace => label && namespace(name) == "d",
            Self::Off | Self::NotOn => !label,
            Self::Name(only) | Self::One(only) => name == only,
            Self::NotName(other) => name != other,
        }
    }
}
fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..5u8, any::<bool>()).prop_map(|(name, label)| Step::Put { name, label }),
        3 => (0..5u8).prop_map(|name| Step::Delete { name }),
        2 => proptest::collection::btree_map(0..5u8, any::<bool>(), 1..4)
            .prop_map(|names| Step::Together { names: names.into_iter().collect() }),
        4 => (selection(), any::<Option<prop::sample::Index>>())
            .prop_map(|(selection, from)| Step::Join { selection, from }),
        1 => any::<prop::sample::Index>().prop_map(|watcher| Step::Leave { watcher }),
        6 => any::<prop::sample::Index>().prop_map(|watcher| Step::Drain { watcher }),
        1 => Just(Step::Close),
        1 => Just(Step::Break),
        1 => Just(Step::Minute),
    ]
}

/// A change of one object: its label before and after.
#[derive(Debug, Clone, Copy)]
struct Entry {
    revision: u64,
    name: u8,
    before: Option<bool>,
    after: Option<bool>,
}
type Seen = (EventKind, u8, u64);
impl Entry {
    /// The event that a watcher gets.
    fn event(&self, selection: Selection) -> Option<Seen> {
        let is_in =
            |label: Option<bool>| label.is_some_and(|label| selection.selects(self.name, label));
        let kind = match (is_in(self.before), is_in(self.after)) {
            (false, true) => EventKind::Added,
            (true, true) => EventKind::Modified,
            (true, false) => EventKind::Deleted,
            (false, false) => return None,
        };
        Some((kind, self.name, self.revision))
    }
}

struct Watcher {
    selection: Selection,
    stream: Option<WatchStream>,
    /// Initial events are not complete yet.
    is_initial: bool,
    state: BTreeMap<u8, u64>,
    /// Events up to this position of the log have been seen.
    log_at: usize,
    /// The last revision seen, where the client resumes.
    revision: u64,
}

struct World {
    bench: Bench,
    store: Arc<FaultStore<MemoryStore>>,
    log: Vec<Entry>,
    labels: BTreeMap<u8, bool>,
    watchers: Vec<Watcher>,
}
impl World {
    async fn new() -> Self {
        let store = Arc::new(FaultStore::new(MemoryStore::default(), Faults::default(), 1));
        let bench = Bench::over(store.clone()).await;
        Self { bench, store, log: Vec::new(), labels: BTreeMap::new(), watchers: Vec::new() }
    }
    async fn write(&mut self, names: &[(u8, Option<bool>)], others: bool) {
        let key =
            |name: u8| Bytes::from(format!("/registry/configmaps/{}/{name}", namespace(name)));
        let mut ops: Vec<_> = names
            .iter()
            .filter(|(name, label)| label.is_some() || self.labels.contains_key(name))
            .map(|(name, label)| match label {
                None => Op::Delete(key(*name)),
                Some(label) => Op::Put(
                    key(*name),
                    encode::to_bytes(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata":
                        {"name": name.to_string(), "labels": {"on": label.to_string()}}})),
                ),
            })
            .collect();
        if others {
            ops.push(Op::Put("/registry/secrets/d/s".into(), "{}".into()));
        }
        if ops.is_empty() {
            return;
        }
        let revision = self.bench.commit(ops).await;
        for (name, label) in names {
            let before = match label {
                Some(label) => self.labels.insert(*name, *label),
                None => self.labels.remove(name),
            };
            if before.is_some() || label.is_some() {
                self.log.push(Entry { revision, name: *name, before, after: *label });
            }
        }
    }
    /// The position in the log after everything up to a revision.
    fn log_at(&self, revision: u64) -> usize {
        self.log.partition_point(|entry| entry.revision <= revision)
    }
    async fn open(&self, selection: Selection, from: Option<u64>) -> Option<WatchStream> {
        let selector = selection.options();
        let text = match from {
            Some(revision) => format!("rv={revision} bookmarks {selector}"),
            None => format!("initial fresh bookmarks {selector}"),
        };
        match self.bench.watch(&selection.path(), options(&text)).await {
            Ok(stream) => Some(stream),
            // The cache is being filled: the client retries.
            Err(error) => {
                assert_eq!(error.code(), 429);
                None
            }
        }
    }
    fn join(&mut self, selection: Selection, from: Option<u64>) {
        let (is_initial, revision) = (from.is_none(), from.unwrap_or(0));
        let log_at = self.log_at(revision);
        let mut watcher = Watcher {
            selection,
            stream: None,
            is_initial,
            state: BTreeMap::new(),
            log_at,
            revision,
        };
        if from.is_some() {
            watcher.state = self.state_at(selection, log_at);
        }
        self.watchers.push(watcher);
    }
    /// The revisions of the selected objects after the first entries of the log.
    fn state_at(&self, selection: Selection, log_at: usize) -> BTreeMap<u8, u64> {
        let mut state = BTreeMap::new();
        for (kind, name, revision) in self.log[..log_at].iter().filter_map(|e| e.event(selection)) {
            match kind {
                EventKind::Deleted => state.remove(&name),
                _ => state.insert(name, revision),
            };
        }
        state
    }

    /// Takes all events of a watcher's stream, and reopens it if it ended.
    async fn drain(&mut self, idx: usize) {
        let mut n_idle = 0;
        while n_idle < 4 {
            let mut watcher = self.watchers.swap_remove(idx);
            if watcher.stream.is_none() {
                let from = (!watcher.is_initial).then_some(watcher.revision);
                watcher.log_at = self.log_at(watcher.revision);
                watcher.stream = self.open(watcher.selection, from).await;
            }
            let next = match &mut watcher.stream {
                None => None,
                Some(stream) => stream.next().now_or_never(),
            };
            match next {
                None => {
                    n_idle += 1;
                    tokio::task::yield_now().await;
                }
                Some(None) => {
                    watcher.stream = None;
                    if watcher.is_initial {
                        watcher.state.clear();
                    }
                }
                Some(Some(Err(error))) => {
                    // Too old, or not as fresh as requested in time: the client starts over.
                    assert!(matches!(error.code(), 410 | 504), "{error}");
                    watcher.stream = None;
                    watcher.is_initial = true;
                    watcher.state.clear();
                }
                Some(Some(Ok(event))) => self.see(&mut watcher, &event),
            }
            self.watchers.push(watcher);
            let last = self.watchers.len() - 1;
            self.watchers.swap(idx, last);
        }
    }
    fn see(&self, watcher: &mut Watcher, event: &super::Event) {
        let object = event.object();
        let skim = Skim::of(&object).unwrap();
        assert_eq!(skim.resource_version, event.revision.to_string());
        if event.kind == EventKind::Bookmark {
            assert!(
                event.revision >= watcher.revision || watcher.is_initial,
                "bookmarks go forwards"
            );
            let log_at = self.log_at(event.revision);
            if watcher.is_initial {
                watcher.is_initial = false;
                watcher.log_at = log_at;
                let state = self.state_at(watcher.selection, log_at);
                assert_eq!(watcher.state, state, "the initial state is the state at its bookmark");
            }
            let missed = self.log[watcher.log_at.min(log_at)..log_at]
                .iter()
                .find_map(|e| e.event(watcher.selection));
            assert_eq!(missed, None, "nothing before a bookmark is left out");
            watcher.log_at = watcher.log_at.max(log_at);
            watcher.revision = event.revision;
            return;
        }
        let name = skim.name.parse().unwrap();
        if watcher.is_initial {
            assert_eq!(event.kind, EventKind::Added);
            assert_eq!(watcher.state.insert(name, event.revision), None, "each object once");
            return;
        }
        let expected = loop {
            let entry = self.log.get(watcher.log_at).expect("no event without a change");
            watcher.log_at += 1;
            if let Some(expected) = entry.event(watcher.selection) {
                break expected;
            }
        };
        assert_eq!((event.kind, name, event.revision), expected);
        assert!(event.revision >= watcher.revision);
        // Within a transaction a client could not resume; Kubernetes has none over two objects.
        let is_whole = self.log.get(watcher.log_at).is_none_or(|e| e.revision > event.revision);
        watcher.revision = if is_whole { event.revision } else { event.revision - 1 };
        match event.kind {
            EventKind::Deleted => watcher.state.remove(&name),
            _ => watcher.state.insert(name, event.revision),
        };
    }

    async fn run(mut self, steps: Vec<Step>) {
        for step in steps {
            let n_watchers = self.watchers.len();
            match step {
                Step::Put { name, label } => self.write(&[(name, Some(label))], false).await,
                Step::Delete { name } => self.write(&[(name, None)], false).await,
                Step::Together { names } => {
                    let names: Vec<_> = names.into_iter().map(|(n, l)| (n, Some(l))).collect();
                    self.write(&names, true).await;
                }
                Step::Join { selection, from } => {
                    let newest = self.store.inner().clone();
                    let newest = setpoint_store::Store::revision(&newest).await.unwrap().0;
                    let from = from.map(|index| 1 + index.index(newest as usize) as u64);
                    self.join(selection, from);
                }
                Step::Leave { watcher } if n_watchers > 0 => {
                    self.watchers.swap_remove(watcher.index(n_watchers));
                }
                Step::Drain { watcher } if n_watchers > 0 => {
                    self.drain(watcher.index(n_watchers)).await;
                }
                Step::Leave { .. } | Step::Drain { .. } => {}
                Step::Close => self.bench.inner().cache.close_watches("/registry/configmaps/"),
                Step::Break => {
                    self.store.set_faults(Faults { feed_broken: 1.0, ..Faults::default() });
                    self.write(&[], true).await;
                    for _ in 0..4 {
                        tokio::task::yield_now().await;
                    }
                    self.store.set_faults(Faults::default());
                }
                Step::Minute => tokio::time::advance(Duration::from_secs(80)).await,
            }
        }
        // No more writes: every watcher catches up.
        tokio::time::advance(Duration::from_secs(5)).await;
        self.bench.settle().await;
        for idx in 0..self.watchers.len() {
            for _ in 0..3 {
                self.drain(idx).await;
            }
            let watcher = &self.watchers[idx];
            assert!(!watcher.is_initial && watcher.stream.is_some());
            let state = self.state_at(watcher.selection, self.log.len());
            assert_eq!(watcher.state, state, "the folded events are the store's state");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn every_watcher_sees_exactly_the_changes(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async { World::new().await.run(steps).await });
    }
}
