//! The modelled server: what it holds is known exactly, what it says is not to be relied on.
use crate::coverage::Seen;
use crate::fault::{self, Down};
use crate::oracle::Oracle;
use crate::reference::Reference;
use crate::watching::Watching;
use crate::world::{Change, Flavor, Name, Thing, Verb, World, item};
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

/// What a server does with `sendInitialEvents`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Streams {
    /// Sends a streamed list.
    Knows,
    /// Refuses it.
    Refuses,
    /// Takes it for any other watch, and never sends the end marker.
    Ignores,
}

/// How one server is, for a whole life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    pub(crate) streams: Streams,
    /// The share of events that a bookmark follows.
    pub(crate) bookmarks: f64,
    /// Whether a list at `"0"` comes in pages: it has no watch cache.
    pub(crate) pages_any_state: bool,
    /// Objects in a page, whatever the limit.
    pub(crate) page_max: usize,
    /// The share of requests and frames that something happens to.
    pub(crate) faults: f64,
}

#[derive(Clone)]
pub(crate) struct Server(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The newest version: watches wait on it.
    moved: watch::Sender<u64>,
}

pub(crate) struct State {
    pub(crate) rng: SmallRng,
    pub(crate) manners: Manners,
    pub(crate) world: World,
    pub(crate) oracle: Oracle,
    pub(crate) reference: Reference,
    /// No faults any more.
    pub(crate) is_healed: bool,
    /// The informer is being stopped: what it lets go of is no concern.
    pub(crate) is_stopping: bool,
    /// How many objects an index function rejected, as the informer says.
    pub(crate) misfits_told: u64,
    /// How many objects the transform saw.
    pub(crate) transformed: u64,
    down: Option<(Instant, Down)>,
    trace: Option<Vec<String>>,
    start: Instant,
}

impl State {
    pub(crate) fn note(&mut self, seen: Seen) {
        self.oracle.coverage.note(seen);
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        !self.is_healed && self.rng.random_bool(share)
    }

    /// Whether something is to happen, at this server's rate.
    pub(crate) fn fails(&mut self, weight: f64) -> bool {
        let share = (self.manners.faults * weight).min(1.0);
        self.chance(share)
    }

    pub(crate) fn trace(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let at = self.start.elapsed().as_secs_f64();
            trace.push(format!("{at:>9.3} {}", line()));
        }
    }

    /// What every request is answered with while the server is down.
    pub(crate) fn down(&mut self) -> Option<SourceError> {
        let (until, down) = self.down?;
        if self.is_healed || Instant::now() >= until {
            self.down = None;
            return None;
        }
        self.note(Seen::DownForLong);
        Some(down.error())
    }

    /// The version and objects from which a list or a streamed list is served: not older than
    /// asked.
    pub(crate) fn serve_state(
        &mut self,
        asked: &str,
    ) -> Result<(u64, Vec<(Name, Thing)>), SourceError> {
        // `"0"` may be any state, and only a client that knows no better may ask for it.
        let unasked = asked.is_empty();
        let since = match asked {
            "" => self.world.version(),
            // After a list that had no version the client knows none, but has seen a state.
            "0" if self.oracle.knows_no_version() => self.seen_version(),
            asked => asked.parse().unwrap_or(u64::MAX),
        };
        if !matches!(asked, "" | "0") && self.fails(0.3) {
            return Err(fault::too_large());
        }
        let newest = unasked || self.is_healed;
        let (version, things) =
            self.world.state_since(since, newest, &mut self.rng).ok_or_else(fault::too_large)?;
        if version < self.world.version() {
            self.note(Seen::ListStale);
        }
        Ok((version, things.iter().map(|(name, thing)| (*name, *thing)).collect()))
    }

    fn seen_version(&self) -> u64 {
        if self.reference.first_list().is_none() { 0 } else { self.world.version() }
    }

    fn answer_list(&mut self, request: &ListRequest) -> Result<Page, SourceError> {
        if let Some(error) = self.down() {
            return Err(error);
        }
        if self.fails(1.0) {
            return Err(fault::of_list(self));
        }
        let (version, items, after) = match &request.continue_token {
            None => {
                let (version, items) = self.serve_state(&request.resource_version)?;
                (version, items, 0)
            }
            // A token is the version and how many items came before.
            Some(token) => {
                let (version, after) = token.split_once('/').unwrap_or_default();
                let version = version.parse().unwrap_or_default();
                let kept = if self.fails(1.0) { None } else { self.world.state_at(version) };
                let things = kept.ok_or_else(fault::expired)?;
                let items = things.iter().map(|(name, thing)| (*name, *thing)).collect();
                (version, items, after.parse().unwrap_or_default())
            }
        };
        let in_pages = match &*request.resource_version {
            "0" => self.manners.pages_any_state,
            _ => true,
        };
        let left = items.len() - after;
        let n = match request.limit {
            Some(limit) if in_pages => left.min(self.manners.page_max).min(limit as usize),
            _ => left,
        };
        let mut items = items[after..after + n].to_vec();
        let token = (n < left).then(|| format!("{version}/{}", after + n));
        // What a list must not be, and is.
        let mut version = version.to_string();
        if self.fails(0.1) && !items.is_empty() {
            let again = items[self.rng.random_range(0..items.len())];
            items.push(again);
            self.note(Seen::ListDuplicateKeys);
        }
        if request.continue_token.is_none() && self.fails(0.3) {
            version.clear();
            self.note(Seen::ListVersionEmpty);
        }
        let is_poisoned = items.iter().any(|(_, thing)| self.reference.is_poison(*thing));
        Ok(Page { version, token, items: items.into(), is_poisoned, is_over: false })
    }
}

/// Notices when the informer lets go of a list that is not over.
struct Unlisted {
    server: Server,
    is_over: bool,
}

impl Drop for Unlisted {
    fn drop(&mut self) {
        let is_over = self.is_over;
        self.server.with(|state| {
            if !is_over && !state.is_stopping {
                state.trace(|| "list      is let go".to_owned());
                state.oracle.list_dropped();
            }
        });
    }
}

/// A page on its way.
struct Page {
    version: String,
    token: Option<String>,
    items: VecDeque<(Name, Thing)>,
    is_poisoned: bool,
    is_over: bool,
}

impl Server {
    pub(crate) fn new(
        seed: u64,
        manners: Manners,
        oracle: Oracle,
        reference: Reference,
        traces: bool,
    ) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                rng: SmallRng::seed_from_u64(seed),
                manners,
                world: World::new(),
                oracle,
                reference,
                is_healed: false,
                is_stopping: false,
                misfits_told: 0,
                transformed: 0,
                down: None,
                trace: traces.then(Vec::new),
                start: Instant::now(),
            }),
            moved: watch::Sender::new(1),
        }))
    }

    /// Changes or looks at the server's state.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.state.lock())
    }

    pub(crate) fn moved(&self) -> watch::Receiver<u64> {
        self.0.moved.subscribe()
    }

    /// How many hold on to this server.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    pub(crate) fn take_trace(&self) -> Vec<String> {
        self.with(|state| state.trace.take().unwrap_or_default())
    }

    /// A write, and perhaps the end of some history.
    pub(crate) fn write(&self) {
        let version = self.with(|state| {
            let flavor = match state.rng.random_range(0..40) {
                0 if !state.is_healed => Flavor::Poison,
                1 if !state.is_healed => Flavor::Misfit,
                _ => Flavor::Plain,
            };
            let recreated = state.world.write(&mut state.rng, flavor);
            state.note(Seen::Written);
            if recreated {
                state.note(Seen::Recreated);
            }
            if state.chance(0.1) {
                let keep = state.rng.random_range(1..=state.world.n_kept());
                if state.world.compact(keep) {
                    state.note(Seen::Compacted);
                }
            }
            let version = state.world.version();
            state.trace(|| format!("world     {version}"));
            version
        });
        self.0.moved.send_replace(version);
    }

    /// For so long every request fails the same way.
    pub(crate) fn go_down(&self, time: Duration, down: Down) {
        self.with(|state| {
            state.trace(|| format!("down      for {time:?}: {down:?}"));
            state.down = Some((Instant::now() + time, down));
        });
    }

    /// No faults any more, and nothing left that is wrong with an object.
    pub(crate) fn heal(&self) {
        let version = self.with(|state| {
            state.is_healed = true;
            state.world.mend(&mut state.rng);
            state.trace(|| "healed".to_owned());
            state.world.version()
        });
        self.0.moved.send_replace(version);
    }

    /// Waits now and then, as answers do.
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

    /// The next part of a page; `Err(None)` is a stream that ends too soon.
    async fn part(&self, page: &mut Page) -> Result<ListPart, Option<SourceError>> {
        self.lag().await;
        self.with(|state| {
            if state.fails(0.15) {
                let is_lost = state.rng.random();
                let error = if is_lost { fault::lost() } else { fault::broken_off() };
                state.note(if is_lost { Seen::ListCutBetweenParts } else { Seen::ListBrokenOff });
                state.trace(|| "list      cut".to_owned());
                state.oracle.list_failed(&error);
                return Err(is_lost.then_some(error));
            }
            state.oracle.list_heard();
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
                part.iter().map(|(name, thing)| ListItem::from(item(*name, *thing))).collect();
            state.listing(&part);
            if page.is_poisoned && part.iter().any(|(_, thing)| state.reference.is_poison(*thing)) {
                state.note(Seen::ListPoisoned);
                state.oracle.list_poisoned();
                page.is_over = true;
            }
            if state.fails(0.1) {
                state.note(Seen::ListNameless);
                items.push(ListItem::from(Bytes::from_static(br#"{"metadata":{"uid":"u"}}"#)));
                items.shuffle(&mut state.rng);
            }
            Ok(ListPart::Items(items))
        })
    }
}

impl State {
    /// What a reader finds in the cache that has waited for a change to be there.
    pub(crate) fn judge_read(&mut self, change: Change, cached: Option<Thing>) {
        let Change { verb, name, thing } = change;
        self.note(Seen::WroteThenRead);
        // What is not taken in is not there, nor what came before it; and what a server lost
        // between a list without a version and its watch is.
        let is_rejected = thing.flavor != Flavor::Plain || self.reference.rejected.1 > 0;
        if is_rejected || self.reference.needs_list {
            return;
        }
        let is_there = match (verb, cached) {
            (Verb::Deleted, cached) => cached.is_none_or(|cached| cached.uid > thing.uid),
            (_, Some(cached)) => cached.uid > thing.uid || cached.version >= thing.version,
            (_, None) => self.world.things().get(&name) != Some(&thing),
        };
        if !is_there {
            self.oracle.broken(format!("a read after a write finds {cached:?}: {change:?}"));
        }
    }

    /// Items of the list that is being read.
    fn listing(&mut self, part: &[(Name, Thing)]) {
        self.reference.listing.extend_from_slice(part);
        part.iter().for_each(|(name, thing)| self.reference.enters(*name, *thing, true));
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
                state.oracle.asks_list(&request);
                if state.oracle.is_new_list() {
                    state.reference.listing.clear();
                }
            });
            let mut unlisted = Unlisted { server: self.clone(), is_over: false };
            self.lag().await;
            if self.with(|state| state.fails(0.03)) {
                self.with(|state| state.note(Seen::ListHangs));
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
            unlisted.is_over = answer.is_err();
            let reading = Some((unlisted, answer?));
            let parts = stream::unfold(reading, |reading| async move {
                let (mut unlisted, mut page) = reading?;
                if page.is_over {
                    return None;
                }
                let part = unlisted.server.part(&mut page).await;
                unlisted.is_over = page.is_over || part.is_err();
                match part {
                    Ok(part) => Some((Ok(part), Some((unlisted, page)))),
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
                state.oracle.asks_watch(&request);
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
