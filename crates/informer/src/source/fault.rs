//! A source that injects faults of networks and servers, for tests.
//!
//! # Theory
//!
//! A [`FaultSource`] wraps another source and passes on requests and answers. At every request and
//! every frame its [`FaultPlan`] determines whether a fault happens. Faults that a test has
//! injected by name ([`FaultSource::inject`]) come first, each at the first place that it fits;
//! then the plan's probabilities, drawn from its seed. Faults only drop, repeat, delay or truncate;
//! everything else passes in order. The same seed and the same requests give the same faults at the
//! same places.
use super::{
    ListPage, ListPart, ListRequest, ListStream, ListWatch, Selection, SourceError, WatchFrame,
    WatchRequest, WatchStream, end_marker,
};
use crate::backoff;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;
use setpoint_object::{ApiError, Reason};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// A request: the connection is refused.
    Refuse,
    /// A list: 410, the version or the continue token has expired.
    ExpireList,
    /// The opening of a watch: 410.
    ExpireWatch,
    /// A request: 429, with a `Retry-After` of [`FaultPlan::retry_after`].
    TooManyRequests,
    /// A request: 500.
    Internal,
    /// A list: it is truncated among its items.
    TruncateList,
    /// A frame: 410 instead of it, and the watch ends (REF-26).
    ExpireFrame,
    /// A frame: the connection fails in it.
    Cut,
    /// A frame: it is sent twice.
    Duplicate,
    /// A frame: it and all later ones are delayed by up to [`FaultPlan::delay_max`].
    Delay,
    /// A bookmark that does not end initial events: it is dropped.
    DropBookmark,
    /// The bookmark that ends initial events: it is dropped (REF-13).
    HideEndMarker,
}

impl Fault {
    const ALL: [Self; 12] = [
        Self::Refuse,
        Self::ExpireList,
        Self::ExpireWatch,
        Self::TooManyRequests,
        Self::Internal,
        Self::TruncateList,
        Self::ExpireFrame,
        Self::Cut,
        Self::Duplicate,
        Self::Delay,
        Self::DropBookmark,
        Self::HideEndMarker,
    ];
}

/// The probabilities of faults, between 0 and 1, for each place where the fault fits.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FaultPlan {
    /// The seed of the random faults.
    pub seed: u64,
    /// The probability of each fault; zero for others.
    pub chances: Vec<(Fault, f64)>,
    /// The largest number of random faults; then there are no more.
    pub faults_max: u64,
    /// The `Retry-After` of a 429, whole seconds.
    pub retry_after: Duration,
    /// The longest delay of a frame.
    pub delay_max: Duration,
}

impl FaultPlan {
    /// No random faults.
    pub fn none() -> Self {
        Self {
            seed: 0,
            chances: Vec::new(),
            faults_max: u64::MAX,
            retry_after: Duration::from_secs(1),
            delay_max: Duration::from_secs(1),
        }
    }

    /// All faults with the same probability.
    pub fn everything(seed: u64, chance: f64) -> Self {
        let chances = Fault::ALL.iter().map(|fault| (*fault, chance)).collect();
        Self { seed, chances, ..Self::none() }
    }

    /// Sets the probability of one fault.
    pub fn chance(mut self, fault: Fault, chance: f64) -> Self {
        self.chances.retain(|(known, _)| *known != fault);
        self.chances.push((fault, chance));
        self
    }

    /// Sets the largest number of random faults.
    pub fn faults_max(mut self, faults_max: u64) -> Self {
        self.faults_max = faults_max;
        self
    }
}

/// A source with faults. See the [module's theory](self). A clone shares the plan.
#[derive(Clone)]
pub struct FaultSource {
    source: Arc<dyn ListWatch>,
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for FaultSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("FaultSource")
            .field("plan", &state.plan)
            .field("n_happened", &state.happened.len())
            .finish_non_exhaustive()
    }
}

struct State {
    plan: FaultPlan,
    injected: VecDeque<Fault>,
    rng: SmallRng,
    /// How many random faults may still happen.
    n_left: u64,
    happened: Vec<Fault>,
}

impl State {
    /// The fault at a place where these fit, if any.
    fn strike(&mut self, fitting: &[Fault]) -> Option<Fault> {
        let injected = self.injected.iter().position(|fault| fitting.contains(fault));
        let fault = match injected.and_then(|at| self.injected.remove(at)) {
            Some(fault) => fault,
            None => {
                let fault = fitting.iter().copied().find(|fault| self.draw(*fault))?;
                self.n_left -= 1;
                fault
            }
        };
        self.happened.push(fault);
        Some(fault)
    }

    fn draw(&mut self, fault: Fault) -> bool {
        let Some((_, chance)) = self.plan.chances.iter().find(|(known, _)| *known == fault) else {
            return false;
        };
        // Always drawn, so that one probability does not change the others.
        let drawn = self.rng.random::<f64>() < *chance;
        drawn && self.n_left > 0
    }

    fn error(&self, fault: Fault) -> SourceError {
        let seconds = u32::try_from(self.plan.retry_after.as_secs()).unwrap_or(u32::MAX);
        match fault {
            Fault::Refuse => {
                let error = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
                SourceError::Refused(error.into())
            }
            Fault::TooManyRequests => {
                ApiError::too_many_requests("busy (injected by the test)", seconds).into()
            }
            Fault::Internal => {
                ApiError::new(500, Reason::InternalError, "broken (injected by the test)").into()
            }
            Fault::ExpireList | Fault::ExpireWatch | Fault::ExpireFrame => {
                ApiError::expired("expired (injected by the test)").into()
            }
            _ => SourceError::transport("connection lost (injected by the test)"),
        }
    }
}

impl FaultSource {
    /// Wraps a source.
    pub fn new(source: impl ListWatch, plan: FaultPlan) -> Self {
        let state = State {
            injected: VecDeque::new(),
            rng: backoff::rng(plan.seed, 7),
            n_left: plan.faults_max,
            happened: Vec::new(),
            plan,
        };
        Self { source: Arc::new(source), state: Arc::new(Mutex::new(state)) }
    }

    /// Injects a fault at the next place that it fits, once.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().injected.push_back(fault);
    }

    /// Ends all faults, also in open watches.
    pub fn calm(&self) {
        let mut state = self.state.lock();
        state.injected.clear();
        state.n_left = 0;
    }

    /// The faults so far, in order.
    pub fn happened(&self) -> Vec<Fault> {
        self.state.lock().happened.clone()
    }

    /// Fails a request if one of these faults happens.
    fn check(&self, fitting: &[Fault]) -> Result<(), SourceError> {
        let mut state = self.state.lock();
        match state.strike(fitting) {
            Some(fault) => Err(state.error(fault)),
            None => Ok(()),
        }
    }

    fn check_list(&self) -> Result<(), SourceError> {
        self.check(&[Fault::Refuse, Fault::ExpireList, Fault::TooManyRequests, Fault::Internal])
    }
}

impl ListWatch for FaultSource {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        async move {
            self.check_list()?;
            let page = self.source.list(request).await?;
            self.check(&[Fault::TruncateList])?;
            Ok(page)
        }
        .boxed()
    }

    fn list_in_parts(
        &self,
        request: ListRequest,
    ) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        async move {
            self.check_list()?;
            let parts = self.source.list_in_parts(request).await?;
            let mut state = self.state.lock();
            if state.strike(&[Fault::TruncateList]).is_none() {
                return Ok(parts);
            }
            let (n_items, in_silence) = (state.rng.random_range(0..8), state.rng.random());
            Ok(truncated(parts, n_items, in_silence))
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        async move {
            self.check(&[
                Fault::Refuse,
                Fault::ExpireWatch,
                Fault::TooManyRequests,
                Fault::Internal,
            ])?;
            let frames = self.source.watch(request).await?;
            Ok(faulty(frames, self.state.clone()))
        }
        .boxed()
    }

    fn can_stream_list(&self) -> bool {
        self.source.can_stream_list()
    }

    fn selection(&self) -> Selection {
        self.source.selection()
    }
}

/// The first items of a list; then it fails, or ends silently.
fn truncated(parts: ListStream, n_items: usize, in_silence: bool) -> ListStream {
    stream::unfold(Some((parts, n_items)), move |rest| async move {
        let (mut parts, n_left) = rest?;
        match parts.next().await? {
            Ok(ListPart::Items(mut items)) if n_left > 0 => {
                items.truncate(n_left);
                let n_left = n_left - items.len();
                Some((Ok(ListPart::Items(items)), Some((parts, n_left))))
            }
            Err(error) => Some((Err(error), None)),
            Ok(_) if in_silence => None,
            Ok(_) => {
                Some((Err(SourceError::transport("connection lost (injected by the test)")), None))
            }
        }
    })
    .boxed()
}

/// An open watch.
struct Faulty {
    frames: BoxStream<'static, Result<WatchFrame, SourceError>>,
    /// A frame to send again.
    again: Option<WatchFrame>,
    state: Arc<Mutex<State>>,
}

fn faulty(frames: WatchStream, state: Arc<Mutex<State>>) -> WatchStream {
    let watch = Faulty { frames, again: None, state };
    stream::unfold(Some(watch), |watch| async move {
        let mut watch = watch?;
        match watch.next().await? {
            Ok(frame @ WatchFrame::Error(_)) => Some((Ok(frame), None)),
            Ok(frame) => Some((Ok(frame), Some(watch))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

impl Faulty {
    async fn next(&mut self) -> Option<Result<WatchFrame, SourceError>> {
        if let Some(frame) = self.again.take() {
            return Some(Ok(frame));
        }
        loop {
            let frame = match self.frames.next().await? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(error)),
            };
            let on_bookmark = match &frame {
                WatchFrame::Bookmark(object) if end_marker(object).is_some() => {
                    Some(Fault::HideEndMarker)
                }
                WatchFrame::Bookmark(_) => Some(Fault::DropBookmark),
                _ => None,
            };
            let any = [Fault::ExpireFrame, Fault::Cut, Fault::Duplicate, Fault::Delay];
            let fitting: Vec<Fault> = any.into_iter().chain(on_bookmark).collect();
            let (fault, error, delay) = {
                let mut state = self.state.lock();
                let fault = state.strike(&fitting);
                let error = fault.map(|fault| state.error(fault));
                let delay = match fault {
                    Some(Fault::Delay) => state.plan.delay_max.mul_f64(state.rng.random()),
                    _ => Duration::ZERO,
                };
                (fault, error, delay)
            };
            return Some(match (fault, error) {
                (Some(Fault::ExpireFrame), Some(SourceError::Api(error))) => {
                    Ok(WatchFrame::Error(error))
                }
                (Some(Fault::Cut), Some(error)) => Err(error),
                (Some(Fault::DropBookmark | Fault::HideEndMarker), _) => continue,
                (Some(Fault::Duplicate), _) => {
                    self.again = Some(frame.clone());
                    Ok(frame)
                }
                (Some(Fault::Delay), _) => {
                    sleep(delay).await;
                    Ok(frame)
                }
                _ => Ok(frame),
            });
        }
    }
}
