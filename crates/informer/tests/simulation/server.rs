//! The model server. Its objects are known exactly; its answers have faults.
use crate::coverage::CoverPoint;
use crate::fault::{self, OutageKind};
use crate::history::{Change, Defect, History, ModelObject, Name, Verb, item};
use crate::oracle::Oracle;
use crate::reference::Reference;
use crate::watching::Watching;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use setpoint_informer::source::{
    ListHead, ListItem, ListPage, ListPart, ListRequest, ListStream, WatchRequest, WatchStream,
};
use setpoint_informer::{ListWatch, SourceError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// How a server handles `sendInitialEvents`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamSupport {
    /// It sends a streamed list.
    Supported,
    /// It rejects the parameter.
    Rejected,
    /// It ignores the parameter, so it never sends the end marker.
    Ignored,
}

/// The configuration of a server during one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerConfig {
    pub(crate) streams: StreamSupport,
    /// The fraction of events that are followed by a bookmark.
    pub(crate) bookmarks: f64,
    /// Whether a list at `"0"` is paged, as from a server without a watch cache.
    pub(crate) pages_any_state: bool,
    /// The maximum number of objects in a page, whatever the limit.
    pub(crate) page_max: usize,
    /// The fraction of requests and frames with a fault.
    pub(crate) faults: f64,
}

#[derive(Clone)]
pub(crate) struct Server(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The newest version. Watches wait for its changes.
    newest: watch::Sender<u64>,
}

pub(crate) struct State {
    pub(crate) rng: SmallRng,
    pub(crate) config: ServerConfig,
    pub(crate) history: History,
    pub(crate) oracle: Oracle,
    pub(crate) reference: Reference,
    /// No more faults are injected.
    pub(crate) is_healed: bool,
    /// The informer is being stopped, so dropped requests are not checked.
    pub(crate) is_stopping: bool,
    /// The number of rejections by index functions that the informer has reported.
    pub(crate) n_reported: u64,
    /// The number of calls of the transform.
    pub(crate) transformed: u64,
    down: Option<(Instant, OutageKind)>,
    trace: Option<Vec<String>>,
    start: Instant,
}

impl State {
    pub(crate) fn count(&mut self, point: CoverPoint) {
        self.oracle.coverage.count(point);
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        !self.is_healed && self.rng.random_bool(share)
    }

    /// Draws whether a fault happens, at this server's rate.
    pub(crate) fn draws_fault(&mut self, weight: f64) -> bool {
        let share = (self.config.faults * weight).min(1.0);
        self.chance(share)
    }

    pub(crate) fn trace(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let at = self.start.elapsed().as_secs_f64();
            trace.push(format!("{at:>9.3} {}", line()));
        }
    }

    /// The error of every request during an outage.
    pub(crate) fn down(&mut self) -> Option<SourceError> {
        let (until, down) = self.down?;
        if self.is_healed || Instant::now() >= until {
            self.down = None;
            return None;
        }
        self.count(CoverPoint::Outage);
        Some(down.error())
    }

    /// The version and objects of a list or a streamed list, not older than requested.
    pub(crate) fn serve_state(
        &mut self,
        requested: &str,
    ) -> Result<(u64, Vec<(Name, ModelObject)>), SourceError> {
        // `"0"` allows any state. Only a client without a version may request it.
        let is_latest = requested.is_empty();
        let since = match requested {
            "" => self.history.version(),
            // After a list without a version, the client has no version but has seen a state.
            "0" if self.oracle.has_no_version() => self.seen_version(),
            requested => requested.parse().unwrap_or(u64::MAX),
        };
        if !matches!(requested, "" | "0") && self.draws_fault(0.3) {
            return Err(fault::too_large());
        }
        let newest = is_latest || self.is_healed;
        let (version, objects) =
            self.history.state_since(since, newest, &mut self.rng).ok_or_else(fault::too_large)?;
        if version < self.history.version() {
            self.count(CoverPoint::ListStale);
        }
        Ok((version, objects.iter().map(|(name, model)| (*name, *model)).collect()))
    }

    fn seen_version(&self) -> u64 {
        if self.reference.first_list().is_none() { 0 } else { self.history.version() }
    }

    fn answer_list(&mut self, request: &ListRequest) -> Result<Page, SourceError> {
        if let Some(error) = self.down() {
            return Err(error);
        }
        if self.draws_fault(1.0) {
            return Err(fault::of_list(self));
        }
        let (version, items, after) = match &request.continue_token {
            None => {
                let (version, items) = self.serve_state(&request.resource_version)?;
                (version, items, 0)
            }
            // A token has the version and the number of items before it.
            Some(token) => {
                let (version, after) = token.split_once('/').unwrap_or_default();
                let version = version.parse().unwrap_or_default();
                let kept =
                    if self.draws_fault(1.0) { None } else { self.history.state_at(version) };
                let objects = kept.ok_or_else(fault::expired)?;
                let items = objects.iter().map(|(name, model)| (*name, *model)).collect();
                (version, items, after.parse().unwrap_or_default())
            }
        };
        let in_pages = match &*request.resource_version {
            "0" => self.config.pages_any_state,
            _ => true,
        };
        let left = items.len() - after;
        let n = match request.limit {
            Some(limit) if in_pages => left.min(self.config.page_max).min(limit as usize),
            _ => left,
        };
        let mut items = items[after..after + n].to_vec();
        let token = (n < left).then(|| format!("{version}/{}", after + n));
        // Violations of the API in lists.
        let mut version = version.to_string();
        if self.draws_fault(0.1) && !items.is_empty() {
            let again = items[self.rng.random_range(0..items.len())];
            items.push(again);
            self.count(CoverPoint::ListDuplicateKeys);
        }
        if request.continue_token.is_none() && self.draws_fault(0.3) {
            version.clear();
            self.count(CoverPoint::ListVersionEmpty);
        }
        let is_poisoned = items.iter().any(|(_, model)| self.reference.is_poison(*model));
        Ok(Page { version, token, items: items.into(), is_poisoned, is_over: false })
    }
}

/// Detects that the informer drops a list before its end.
struct ListGuard {
    server: Server,
    is_over: bool,
}

impl Drop for ListGuard {
    fn drop(&mut self) {
        let is_over = self.is_over;
        self.server.with(|state| {
            if !is_over && !state.is_stopping {
                state.trace(|| "list      dropped".to_owned());
                state.oracle.list_dropped();
            }
        });
    }
}

/// A page that is being sent.
struct Page {
    version: String,
    token: Option<String>,
    items: VecDeque<(Name, ModelObject)>,
    is_poisoned: bool,
    is_over: bool,
}

impl Server {
    pub(crate) fn new(
        seed: u64,
        config: ServerConfig,
        oracle: Oracle,
        reference: Reference,
        traces: bool,
    ) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                rng: SmallRng::seed_from_u64(seed),
                config,
                history: History::new(),
                oracle,
                reference,
                is_healed: false,
                is_stopping: false,
                n_reported: 0,
                transformed: 0,
                down: None,
                trace: traces.then(Vec::new),
                start: Instant::now(),
            }),
            newest: watch::Sender::new(1),
        }))
    }

    /// Accesses the server's state.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.state.lock())
    }

    pub(crate) fn newest(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }

    /// The number of references to this server.
    pub(crate) fn n_references(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    pub(crate) fn take_trace(&self) -> Vec<String> {
        self.with(|state| state.trace.take().unwrap_or_default())
    }

    /// Writes a random object, and sometimes compacts the history.
    pub(crate) fn write(&self) {
        let version = self.with(|state| {
            let defect = match state.rng.random_range(0..40) {
                0 if !state.is_healed => Defect::Poison,
                1 if !state.is_healed => Defect::Undecodable,
                _ => Defect::Plain,
            };
            let recreated = state.history.write(&mut state.rng, defect);
            state.count(CoverPoint::Written);
            if recreated {
                state.count(CoverPoint::Recreated);
            }
            if state.chance(0.1) {
                let keep = state.rng.random_range(1..=state.history.n_states());
                if state.history.compact(keep) {
                    state.count(CoverPoint::Compacted);
                }
            }
            let version = state.history.version();
            state.trace(|| format!("history   {version}"));
            version
        });
        self.0.newest.send_replace(version);
    }

    /// Fails every request with the same error for this time.
    pub(crate) fn start_outage(&self, time: Duration, down: OutageKind) {
        self.with(|state| {
            state.trace(|| format!("outage    for {time:?}: {down:?}"));
            state.down = Some((Instant::now() + time, down));
        });
    }

    /// Ends all faults, and repairs all defective objects.
    pub(crate) fn heal(&self) {
        let version = self.with(|state| {
            state.is_healed = true;
            state.history.repair(&mut state.rng);
            state.trace(|| "healed".to_owned());
            state.history.version()
        });
        self.0.newest.send_replace(version);
    }

    /// Delays some answers.
    async fn lag(&self) {
        let lag =
            self.with(
                |state| {
                    if state.rng.random_bool(0.5) { 0 } else { state.rng.random_range(0..60) }
                },
            );
        if lag > 0 {
            sleep(Duration::from_millis(lag)).await;
        }
    }

    /// The next part of a page. `Err(None)`: the stream ends too early.
    async fn part(&self, page: &mut Page) -> Result<ListPart, Option<SourceError>> {
        self.lag().await;
        self.with(|state| {
            if state.draws_fault(0.15) {
                let is_lost = state.rng.random();
                let error = if is_lost { fault::lost() } else { fault::broken_off() };
                state.count(if is_lost {
                    CoverPoint::ListCutBetweenParts
                } else {
                    CoverPoint::ListBrokenOff
                });
                state.trace(|| "list      cut".to_owned());
                state.oracle.list_failed(&error);
                return Err(is_lost.then_some(error));
            }
            state.oracle.on_list_part();
            if page.items.is_empty() {
                page.is_over = true;
                state.trace(|| format!("list      ends at {:?} {:?}", page.version, page.token));
                state.page_ended(&page.version, page.token.as_deref());
                let mut head = ListHead::default();
                head.resource_version.clone_from(&page.version);
                head.continue_token.clone_from(&page.token);
                return Ok(ListPart::End(head));
            }
            let n = state.rng.random_range(1..=page.items.len());
            let part: Vec<_> = page.items.drain(..n).collect();
            state.trace(|| format!("list      {part:?}"));
            let mut items: Vec<ListItem> =
                part.iter().map(|(name, model)| ListItem::from(item(*name, *model))).collect();
            state.listing(&part);
            if page.is_poisoned && part.iter().any(|(_, model)| state.reference.is_poison(*model)) {
                state.count(CoverPoint::ListPoisoned);
                state.oracle.list_poisoned();
                page.is_over = true;
            }
            if state.draws_fault(0.1) {
                state.count(CoverPoint::ListNameless);
                items.push(ListItem::from(Bytes::from_static(br#"{"metadata":{"uid":"u"}}"#)));
                items.shuffle(&mut state.rng);
            }
            Ok(ListPart::Items(items))
        })
    }
}

impl State {
    /// Checks the cached object that a reader gets after it has waited for a change.
    pub(crate) fn check_read(&mut self, change: Change, cached: Option<ModelObject>) {
        let Change { verb, name, model } = change;
        self.count(CoverPoint::WroteThenRead);
        // A poisoned object is not in the cache, and a reader cannot decode an undecodable one.
        // Changes between a list without a version and its watch are lost.
        if model.defect != Defect::Plain || self.reference.needs_list {
            return;
        }
        let is_current = match (verb, cached) {
            (Verb::Deleted, cached) => cached.is_none_or(|cached| cached.uid > model.uid),
            (_, Some(cached)) => cached.uid > model.uid || cached.version >= model.version,
            (_, None) => self.history.objects().get(&name) != Some(&model),
        };
        if !is_current {
            self.oracle.violated(format!("a read after a write finds {cached:?}: {change:?}"));
        }
    }

    /// Adds items of the list in progress.
    fn listing(&mut self, part: &[(Name, ModelObject)]) {
        self.reference.listing.extend_from_slice(part);
        part.iter().for_each(|(name, model)| self.reference.count_delivered(*name, *model, true));
    }

    fn page_ended(&mut self, version: &str, token: Option<&str>) {
        if let Some(version) = self.oracle.page_ended(version, token) {
            self.reference.listed(&version);
        }
    }
}

impl ListWatch for Server {
    fn list(&self, _: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        async move { Err(fault::broken_off()) }.boxed()
    }

    fn list_in_parts(
        &self,
        request: ListRequest,
    ) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        async move {
            self.with(|state| {
                state.trace(|| {
                    let ListRequest { resource_version, limit, continue_token, .. } = &request;
                    format!("asks list {resource_version:?} {limit:?} {continue_token:?}")
                });
                state.oracle.on_list_request(&request);
                if state.oracle.is_new_list() {
                    state.reference.listing.clear();
                }
            });
            let mut guard = ListGuard { server: self.clone(), is_over: false };
            self.lag().await;
            if self.with(|state| state.draws_fault(0.03)) {
                self.with(|state| state.count(CoverPoint::ListHangs));
                std::future::pending::<()>().await;
            }
            let answer = self.with(|state| {
                let answer = state.answer_list(&request);
                if let Err(error) = &answer {
                    state.trace(|| format!("list      {error}"));
                    state.oracle.list_failed(error);
                }
                answer
            });
            guard.is_over = answer.is_err();
            let reading = Some((guard, answer?));
            let parts = stream::unfold(reading, |reading| async move {
                let (mut guard, mut page) = reading?;
                if page.is_over {
                    return None;
                }
                let part = guard.server.part(&mut page).await;
                guard.is_over = page.is_over || part.is_err();
                match part {
                    Ok(part) => Some((Ok(part), Some((guard, page)))),
                    Err(error) => Some((Err(error?), None)),
                }
            });
            Ok(parts.boxed())
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        async move {
            self.with(|state| {
                state.trace(|| {
                    let verb = if request.send_initial_events { "stream" } else { "watch" };
                    format!("asks {verb} {:?}", request.resource_version)
                });
                state.oracle.on_watch_request(&request);
            });
            self.lag().await;
            let watching = Watching::open(self, &request).await?;
            let frames = stream::unfold(Some(watching), |watching| async move {
                let mut watching = watching?;
                let frame = watching.next().await?;
                let next = watching.is_open().then_some(watching);
                Some((frame, next))
            });
            Ok(frames.boxed())
        }
        .boxed()
    }

    fn can_stream_list(&self) -> bool {
        true
    }
}
