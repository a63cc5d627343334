//! The existing objects: as a streamed list, or in pages.
use super::arriving::{Arrived, Arriving};
use super::live::{OpenWatch, malformed};
use super::round::Ended;
use super::{EVENTS_PER_POLL_MAX, Reflector, ReflectorError};
use crate::delta::{Delta, Keyed};
use crate::intake::ObjectError;
use crate::record::RecordError;
use crate::source::{
    LIST_OBJECTS_MAX, LIST_PAGES_MAX, ListHead, ListPart, ListRequest, PAGE_SIZE, SourceError,
    WatchFrame, end_marker,
};
use crate::transform::TransformError;
use bytes::Bytes;
use futures::StreamExt;
use std::time::Duration;
use tokio::task::{coop::consume_budget, yield_now};
use tokio::time::{Instant, sleep_until, timeout_at};

const TOO_MANY: &str = "a list with too many objects or pages";

/// Time between warnings while no initial events arrive: 10 s, as client-go.
const INITIAL_EVENTS_WARNING: Duration = Duration::from_secs(10);

/// A list that takes longer is logged: 10 s, as client-go.
const SLOW_LIST: Duration = Duration::from_secs(10);

/// What to do after a stream without an end marker.
enum Retry {
    /// The stream ended early: open another one at once, but only once.
    Now,
    /// Open another one at once, from the most recent state.
    AtLatest,
    /// Open another one after a wait.
    Paused(SourceError),
    /// List in pages, for this round (REF-11 h).
    InPages(ReflectorError),
}

/// Why a list failed.
enum Unlisted {
    Source(SourceError),
    Transform(TransformError),
    Timeout(Duration),
}

impl From<SourceError> for Unlisted {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<TransformError> for Unlisted {
    fn from(error: TransformError) -> Self {
        Self::Transform(error)
    }
}

impl<T: Keyed> Reflector<T> {
    /// Queues the existing objects. Returns the watch to continue with, if it is already open.
    pub(super) async fn initial(&mut self) -> Result<Option<OpenWatch>, Ended> {
        let can_stream = self.options.stream_list && self.source.can_stream_list();
        if can_stream && !self.state.cannot_stream {
            let mut cut = 0;
            loop {
                let retry = match self.stream().await? {
                    Ok(watch) => return Ok(Some(watch)),
                    Err(retry) => retry,
                };
                match retry {
                    // REF-11 e. A server that does this twice may not support the marker.
                    Retry::Now if cut == 0 => cut += 1,
                    Retry::Now => break,
                    Retry::AtLatest => {}
                    Retry::Paused(error) => self.pause(error).await,
                    Retry::InPages(error) => {
                        tracing::debug!(
                            resource = %self.resource_type,
                            "{}; listing in pages",
                            crate::failure::chain(&error)
                        );
                        break;
                    }
                }
            }
        }
        self.list().await?;
        Ok(None)
    }

    /// A streamed list (REF-11). Queues nothing before it is complete.
    async fn stream(&mut self) -> Result<Result<OpenWatch, Retry>, Ended> {
        let from = if self.state.is_unavailable {
            String::new()
        } else {
            self.state.resource_version.clone()
        };
        let mut request = self.watch_request(from);
        request.send_initial_events = true;
        let opened = Instant::now();
        let watch_timeout = request.timeout;
        let source = self.source.clone();
        let mut arriving = Arriving::new(opened, &self.options);
        let mut events = 0_usize;
        let mut items = Arrived::default();
        let opening = timeout_at(arriving.limit(), source.watch_unchecked(request)).await;
        let mut frames = match opening {
            Ok(Ok(frames)) => frames,
            Ok(Err(error)) => return Ok(Err(self.stream_failed(error))),
            // No answer at all: the server may still support streamed lists.
            Err(_) => return Ok(Err(Retry::InPages(self.initial_events_error(opened.elapsed())))),
        };
        // One timer for the whole stream: setting one for each frame costs more than to read it.
        let mut waits_since = Instant::now();
        let mut timer = std::pin::pin!(sleep_until(waits_since + INITIAL_EVENTS_WARNING));
        loop {
            // Cancel safe: a stream that is not polled to its next frame keeps it, and the timer
            // stays where it is.
            let next = tokio::select! {
                biased;
                next = frames.next() => next,
                () = &mut timer => {
                    let now = Instant::now();
                    if waits_since + INITIAL_EVENTS_WARNING <= now {
                        if arriving.is_over(now) {
                            return Ok(Err(self.stream_stalled(opened.elapsed())));
                        }
                        tracing::warn!(
                            resource = %self.resource_type,
                            quiet = ?arriving.quiet_since.elapsed(),
                            "still waiting for the end of the initial events"
                        );
                        waits_since = now;
                    }
                    timer.as_mut().reset(waits_since + INITIAL_EVENTS_WARNING);
                    continue;
                }
            };
            let frame = match next {
                Some(Ok(WatchFrame::Error(error))) => {
                    return Ok(Err(self.stream_failed(error.into())));
                }
                Some(Ok(frame)) => frame,
                Some(Err(error)) if !error.is_transport() => {
                    return Ok(Err(self.stream_failed(error)));
                }
                // Closed, or the connection was lost.
                _ if events == 0 && opened.elapsed() < super::live::VERY_SHORT_WATCH => {
                    return Ok(Err(Retry::InPages(self.very_short())));
                }
                _ => return Ok(Err(Retry::Now)),
            };
            let now = Instant::now();
            waits_since = now;
            events += 1;
            let mut untaken = None;
            match frame {
                WatchFrame::Added(object) => {
                    arriving.quiet_since = now;
                    match self.intake.initial_event(&object) {
                        Ok(item) => items.add(item),
                        Err(error) => untaken = self.untaken(error, &object),
                    }
                }
                WatchFrame::Modified(object) => match self.intake.event(&object) {
                    Ok(item) => items.add(item),
                    Err(error) => untaken = self.untaken(error, &object),
                },
                WatchFrame::Deleted(object) => match self.intake.key(&object) {
                    Ok(key) => items.remove(key),
                    Err(error) => untaken = self.untaken(error, &object),
                },
                WatchFrame::Bookmark(object) => {
                    self.state.has_bookmarks = true;
                    if let Some(resource_version) = end_marker(&object) {
                        self.hand_over(items, resource_version, opened).await?;
                        return Ok(Ok(OpenWatch::after_initial(frames, opened, watch_timeout)));
                    }
                }
                WatchFrame::Unknown { verb, .. } => {
                    tracing::warn!(resource = %self.resource_type, verb, "unknown watch event");
                }
                WatchFrame::Error(_) => {}
            }
            if let Some(retry) = untaken {
                return Ok(Err(retry));
            }
            if arriving.is_over(now) {
                return Ok(Err(self.stream_stalled(opened.elapsed())));
            }
            if items.len() > LIST_OBJECTS_MAX {
                let error = SourceError::protocol(TOO_MANY);
                return Ok(Err(Retry::InPages(self.watch_error(error))));
            }
            if events.is_multiple_of(EVENTS_PER_POLL_MAX) {
                items.check().await;
                self.intake.settle().await;
                yield_now().await;
            }
        }
    }

    /// What to do with the stream after an object that was rejected; `None` if it is skipped.
    fn untaken(&mut self, error: ObjectError, object: &Bytes) -> Option<Retry> {
        match error {
            // REF-11 h: a list may have another state of the object.
            ObjectError::Transform(error) => Some(Retry::InPages(self.transform_error(error))),
            ObjectError::Record(RecordError::Malformed(error)) if object.starts_with(b"{") => {
                Some(self.stream_failed(malformed(&error)))
            }
            error => {
                self.skip(error);
                None
            }
        }
    }

    fn stream_failed(&mut self, error: SourceError) -> Retry {
        if error.is_refused() || error.is_too_many_requests() {
            return Retry::Paused(error);
        }
        let version_unusable = error.is_expired() || error.is_too_large_resource_version();
        if version_unusable && !self.state.is_unavailable {
            self.state.is_unavailable = true;
            return Retry::AtLatest;
        }
        Retry::InPages(self.watch_error(error))
    }

    fn stream_stalled(&mut self, waited: Duration) -> Retry {
        self.state.cannot_stream = true;
        let error = self.initial_events_error(waited);
        tracing::warn!("{error}; listing in pages from now on");
        Retry::InPages(error)
    }

    fn initial_events_error(&self, timeout: Duration) -> ReflectorError {
        ReflectorError::InitialEvents { resource: self.resource_type.to_string(), timeout }
    }

    fn failed_transform(&self, error: TransformError) -> Ended {
        Ended::Failed(self.transform_error(error))
    }

    /// A list in pages. If the server cannot serve the version, lists again at the most recent one
    /// (REF-5).
    async fn list(&mut self) -> Result<(), Ended> {
        let began = Instant::now();
        let mut listed = self.list_once().await;
        if let Err(Unlisted::Source(error)) = &listed
            && (error.is_expired() || error.is_too_large_resource_version())
        {
            self.state.is_unavailable = true;
            listed = self.list_once().await;
        }
        match listed {
            Ok((items, resource_version)) => self.hand_over(items, resource_version, began).await,
            Err(Unlisted::Source(error)) => Err(Ended::Failed(self.list_error(error))),
            Err(Unlisted::Transform(error)) => Err(self.failed_transform(error)),
            Err(Unlisted::Timeout(timeout)) => Err(Ended::Failed(ReflectorError::ListTimeout {
                resource: self.resource_type.to_string(),
                timeout,
            })),
        }
    }

    /// The request for a list (REF-1).
    fn list_request(&self) -> ListRequest {
        let state = &self.state;
        let resource_version = match () {
            () if state.is_unavailable => "",
            () if state.resource_version.is_empty() => "0",
            () => &state.resource_version,
        };
        let limit = match self.options.page_size {
            Some(page_size) => Some(page_size),
            // A limit with "not older than" would force the server to read past its cache.
            None if !state.is_paged && !matches!(resource_version, "" | "0") => None,
            None => Some(PAGE_SIZE),
        };
        ListRequest {
            resource_version: resource_version.to_owned(),
            limit,
            ..ListRequest::default()
        }
    }

    async fn list_once(&mut self) -> Result<(Arrived<T>, String), Unlisted> {
        let first = self.list_request();
        let any_state = first.resource_version == "0";
        let mut request = first.clone();
        let mut items = Arrived::default();
        // REF-3: a list has the version of its first page.
        let mut resource_version = None;
        let mut in_one_piece = false;
        for pages in 1..=LIST_PAGES_MAX {
            let head = match self.page(request, &mut items).await {
                Err(Unlisted::Source(error))
                    if pages > 1 && error.is_expired() && !in_one_piece =>
                {
                    // REF-4: the continue token has expired; list once more, in one page.
                    in_one_piece = true;
                    items = Arrived::default();
                    resource_version = None;
                    let whole = ListRequest { limit: None, ..first.clone() };
                    self.page(whole, &mut items).await?
                }
                head => head?,
            };
            let resource_version = resource_version.get_or_insert(head.resource_version).clone();
            let Some(token) = head.continue_token else {
                self.state.is_paged |= any_state && pages > 1;
                return Ok((items, resource_version));
            };
            // REF-2: the token includes the version.
            request = ListRequest {
                limit: first.limit,
                continue_token: Some(token),
                ..ListRequest::default()
            };
        }
        Err(SourceError::protocol(TOO_MANY).into())
    }

    /// Reads one page, and converts its items as they arrive.
    async fn page(
        &mut self,
        request: ListRequest,
        items: &mut Arrived<T>,
    ) -> Result<ListHead, Unlisted> {
        let (quiet, total) = (self.options.list_quiet_timeout, self.options.list_timeout);
        let deadline = Instant::now() + total;
        let late = |_| Unlisted::Timeout(if deadline <= Instant::now() { total } else { quiet });
        let limit = || deadline.min(Instant::now() + quiet);
        let source = self.source.clone();
        let mut parts =
            timeout_at(limit(), source.list_in_parts(request)).await.map_err(late)??;
        while let Some(part) = timeout_at(limit(), parts.next()).await.map_err(late)? {
            match part? {
                ListPart::Items(part) => {
                    for (n, item) in (1_usize..).zip(part) {
                        match self.intake.item(&item) {
                            Ok(item) => items.add(item),
                            Err(ObjectError::Transform(error)) => return Err(error.into()),
                            Err(error) => self.skip(error),
                        }
                        if n.is_multiple_of(EVENTS_PER_POLL_MAX) {
                            yield_now().await;
                        }
                    }
                    items.check().await;
                    self.intake.settle().await;
                }
                ListPart::End(head) => return Ok(head),
            }
            if items.len() > LIST_OBJECTS_MAX {
                return Err(SourceError::protocol(TOO_MANY).into());
            }
            consume_budget().await;
        }
        Err(SourceError::protocol("a list without an end").into())
    }

    /// Queues a complete list as one delta, and then moves the version (REF-9).
    async fn hand_over(
        &mut self,
        items: Arrived<T>,
        resource_version: String,
        began: Instant,
    ) -> Result<(), Ended> {
        let items = items.finish().await;
        let (took, n_items) = (began.elapsed(), items.len());
        if took > SLOW_LIST {
            tracing::info!(resource = %self.resource_type, ?took, n_items, "a slow list");
        }
        let delta = Delta::ReplacedAll { items, resource_version: resource_version.clone() };
        self.push(delta).await?;
        self.state.is_unavailable = false;
        self.state.resource_version.clear();
        self.reached(&resource_version);
        self.observer.listed(took, n_items);
        Ok(())
    }
}
