//! A model of a server with faults: what it holds is known exactly, what it says is not to be relied on.
use crate::support::{bookmark, busy, expired, internal, item, marker, missing, refused};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use setpoint_informer::source::scripted::Step;
use setpoint_informer::source::{ListPage, ListRequest, WatchFrame, WatchRequest, WatchStream};
use setpoint_informer::{ListWatch, SourceError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// Name to version.
pub(crate) type Objects = BTreeMap<String, u64>;

#[derive(Clone)]
pub(crate) struct Model {
    state: Arc<Mutex<State>>,
    /// The newest version: watches wait on it.
    version: Arc<watch::Sender<u64>>,
    can_stream: bool,
}

struct State {
    rng: SmallRng,
    has_faults: bool,
    /// What there was at each version that is kept; the last is the present.
    kept: VecDeque<(u64, Objects)>,
    /// What led to each of those versions but the first.
    events: VecDeque<(u64, Event)>,
    requests: Vec<String>,
}

#[derive(Clone)]
enum Event {
    Added(String),
    Modified(String),
    Deleted(String),
}

fn whole(name: &str, version: u64) -> Bytes {
    let item = item(name, version);
    let rest = std::str::from_utf8(&item[1..]).unwrap();
    Bytes::from(format!(r#"{{"kind":"ConfigMap","apiVersion":"v1",{rest}"#))
}

fn frame(step: Step) -> WatchFrame {
    match step {
        Step::Frame(frame) => frame,
        _ => unreachable!("a frame"),
    }
}

impl State {
    fn now(&self) -> u64 {
        self.kept.back().unwrap().0
    }

    fn oldest(&self) -> u64 {
        self.kept.front().unwrap().0
    }

    fn chance(&mut self, share: f64) -> bool {
        self.has_faults && self.rng.random_bool(share)
    }

    fn fault(&mut self) -> SourceError {
        match self.rng.random_range(0..6) {
            0 => refused(),
            1 => busy(),
            2 => internal(),
            3 => missing(),
            4 => expired(),
            _ => SourceError::Transport("connection reset".into()),
        }
    }

    /// A kept state that is not older than asked, as a lagging replica or a watch cache may give it.
    fn state_since(&mut self, asked: &str) -> Result<(u64, Objects), SourceError> {
        let at = match asked {
            "" => self.kept.len() - 1,
            asked => {
                let asked: u64 = asked.parse().unwrap();
                let first = self.kept.iter().position(|(version, _)| *version >= asked);
                let Some(first) = first else { return Err(crate::support::too_large()) };
                if self.has_faults { self.rng.random_range(first..self.kept.len()) } else { first }
            }
        };
        Ok(self.kept[at].clone())
    }
}

impl Model {
    pub(crate) fn new(seed: u64, can_stream: bool) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                rng: SmallRng::seed_from_u64(seed),
                has_faults: true,
                kept: VecDeque::from([(1, Objects::new())]),
                events: VecDeque::new(),
                requests: Vec::new(),
            })),
            version: Arc::new(watch::Sender::new(1)),
            can_stream,
        }
    }

    /// One write: creates, changes or deletes a random object, and perhaps forgets history.
    pub(crate) fn write(&self) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let version = state.now() + state.rng.random_range(1..4);
        let mut objects = state.kept.back().unwrap().1.clone();
        let name = format!("o{}", state.rng.random_range(0..6));
        let event = if !objects.contains_key(&name) {
            objects.insert(name.clone(), version);
            Event::Added(name)
        } else if state.rng.random_bool(0.4) {
            objects.remove(&name);
            Event::Deleted(name)
        } else {
            objects.insert(name.clone(), version);
            Event::Modified(name)
        };
        state.kept.push_back((version, objects));
        state.events.push_back((version, event));
        if state.chance(0.1) {
            let keep = state.rng.random_range(1..=state.kept.len());
            while state.kept.len() > keep {
                state.kept.pop_front();
                state.events.pop_front();
            }
        }
        drop(guard);
        self.version.send_replace(version);
    }

    pub(crate) fn heal(&self) {
        self.state.lock().has_faults = false;
    }

    pub(crate) fn objects(&self) -> Objects {
        self.state.lock().kept.back().unwrap().1.clone()
    }

    pub(crate) fn version(&self) -> u64 {
        self.state.lock().now()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.lock().requests.clone()
    }

    fn answer_list(&self, request: &ListRequest) -> Result<ListPage, SourceError> {
        let mut state = self.state.lock();
        state.requests.push(format!("{request:?}"));
        if state.chance(0.3) {
            return Err(state.fault());
        }
        // A token is the version and the last name of the page before.
        let (version, objects, after) = match &request.continue_token {
            None => {
                let (version, objects) = state.state_since(&request.resource_version)?;
                (version, objects, String::new())
            }
            Some(token) => {
                assert_eq!(request.resource_version, "", "REF-2");
                let (version, after) = token.split_once('/').unwrap();
                let version: u64 = version.parse().unwrap();
                let kept = state.kept.iter().find(|(kept, _)| *kept == version);
                let Some((_, objects)) = kept else { return Err(expired()) };
                (version, objects.clone(), after.to_owned())
            }
        };
        let left: Vec<_> = objects.iter().filter(|(name, _)| **name > after).collect();
        // Pages of two, whatever limit was sent, when one was.
        let n = if request.limit.is_some() { left.len().min(2) } else { left.len() };
        let items = left[..n].iter().map(|(name, version)| item(name, **version)).collect();
        let page = ListPage::new(version.to_string(), items);
        Ok(if n < left.len() {
            page.continued(format!("{version}/{}", left[n - 1].0))
        } else {
            page
        })
    }

    fn open(&self, request: &WatchRequest) -> Result<Watching, SourceError> {
        let mut state = self.state.lock();
        state.requests.push(format!("{request:?}"));
        if state.chance(0.3) {
            return Err(state.fault());
        }
        let mut ready = VecDeque::new();
        let from = if request.send_initial_events {
            let (version, objects) = state.state_since(&request.resource_version)?;
            let mut objects: Vec<_> = objects.into_iter().collect();
            objects.shuffle(&mut state.rng);
            ready.extend(objects.iter().map(|(name, v)| WatchFrame::Added(whole(name, *v))));
            ready.push_back(frame(marker(version)));
            version
        } else {
            request.resource_version.parse().unwrap()
        };
        if from < state.oldest() {
            return Err(expired());
        }
        Ok(Watching { model: self.clone(), version: self.version.subscribe(), from, ready })
    }
}

struct Watching {
    model: Model,
    version: watch::Receiver<u64>,
    from: u64,
    ready: VecDeque<WatchFrame>,
}

impl Watching {
    /// The next frame; `None` closes the watch.
    async fn next(&mut self) -> Option<Result<WatchFrame, SourceError>> {
        loop {
            let lag = {
                let mut state = self.model.state.lock();
                if state.chance(0.05) {
                    return None;
                }
                if state.chance(0.05) {
                    return Some(match state.fault() {
                        SourceError::Api(error) => Ok(WatchFrame::Error(error)),
                        error => Err(error),
                    });
                }
                if self.ready.is_empty() {
                    if self.from < state.oldest() {
                        let SourceError::Api(error) = expired() else { unreachable!() };
                        return Some(Ok(WatchFrame::Error(error)));
                    }
                    let next = state.events.iter().find(|(version, _)| *version > self.from);
                    if let Some((version, event)) = next.cloned() {
                        self.from = version;
                        self.ready.push_back(match event {
                            Event::Added(name) => WatchFrame::Added(whole(&name, version)),
                            Event::Modified(name) => WatchFrame::Modified(whole(&name, version)),
                            Event::Deleted(name) => WatchFrame::Deleted(whole(&name, version)),
                        });
                        if state.rng.random_bool(0.2) {
                            self.ready.push_back(frame(bookmark(version)));
                        }
                    }
                }
                if state.chance(0.3) { state.rng.random_range(1..400) } else { 0 }
            };
            if let Some(frame) = self.ready.pop_front() {
                sleep(Duration::from_millis(lag)).await;
                return Some(Ok(frame));
            }
            self.version.changed().await.unwrap();
        }
    }
}

impl ListWatch for Model {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        async move {
            let lag = self.state.lock().rng.random_range(0..50);
            sleep(Duration::from_millis(lag)).await;
            self.answer_list(&request)
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        async move {
            let watching = self.open(&request)?;
            let frames = stream::unfold(Some(watching), |watching| async move {
                let mut watching = watching?;
                let frame = watching.next().await?;
                let open = matches!(&frame, Ok(frame) if !matches!(frame, WatchFrame::Error(_)));
                Some((frame, open.then_some(watching)))
            });
            Ok(frames.boxed())
        }
        .boxed()
    }

    fn can_stream_list(&self) -> bool {
        self.can_stream
    }
}
