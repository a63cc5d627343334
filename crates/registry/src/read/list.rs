//! LIST.
use super::options::ListAt;
use super::token::Token;
use super::{Listed, Scope};
use crate::cache::{Index, Item, look_through, serve};
use crate::conversion::{CALL_TIMEOUT, CHUNK_BYTES_MAX, ListBytes};
use crate::request::ListOptions;
use crate::routed::Target;
use crate::shared::Inner;
use crate::stored::read_error;
use crate::unreadable::UNREADABLE_MAX;
use bytes::Bytes;
use setpoint_object::ApiError;
use setpoint_store::{At, RangeRequest, Revision, StoreError};
use std::ops::Bound;
use std::sync::Arc;
use tokio::time::Instant;

/// Keys per read if a selector leaves open how many keys fill a page.
const CHUNK_MAX: usize = 1000;

/// Work before the list yields, in nanoseconds by measurement: about one millisecond.
const SLICE_COST: usize = 1_000_000;
/// Cost of one byte of an object that is converted, in nanoseconds.
const CONVERSION_COST: usize = 20;
/// Objects that are counted before the list yields: each takes some nanoseconds.
const COUNT_SLICE: usize = 16_384;

/// The message for an expired continue token.
const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

pub(super) struct List<'a> {
    inner: &'a Inner,
    scope: Arc<Scope>,
    at: ListAt,
    /// Zero: no limit.
    limit: usize,
    token: &'a str,
    resource_version: &'a str,
}
/// Items in key order.
#[derive(Debug)]
struct Page<'a> {
    objects: Vec<Listed>,
    /// Bytes of objects that were converted for this page.
    converted: ListBytes<'a>,
    /// The key of the last item if more follow.
    last: Option<Bytes>,
    /// How many follow, if known.
    remaining: Option<usize>,
}

impl<'a> List<'a> {
    pub(super) fn new(
        inner: &'a Inner,
        target: &Target,
        options: &'a ListOptions,
    ) -> Result<Self, ApiError> {
        // Selectors are refused before versions, as in Kubernetes.
        options.validate(false, inner.features)?;
        let scope = Arc::new(Scope::new(target, options)?);
        let at = ListAt::of(options)?;
        let limit = usize::try_from(options.limit).unwrap_or(0);
        let (token, resource_version) = (&*options.continue_token, &*options.resource_version);
        Ok(Self { inner, scope, at, limit, token, resource_version })
    }

    pub(super) async fn run(mut self) -> Result<super::List, ApiError> {
        let cache = &self.inner.cache;
        match self.at {
            ListAt::Continue => self.continued_page().await,
            ListAt::Exactly(revision) => {
                let (start, _) = self.scope.range();
                let exactly = At::Exactly(Revision(revision));
                let (revision, page) = match self.stored_page(start.clone(), exactly).await {
                    Err(StoreError::Future { .. }) => {
                        // The second read says whether the wait has helped.
                        _ = cache.wait_fresh(revision).await;
                        self.stored_page(start, exactly).await.map_err(read_error)??
                    }
                    answer => answer.map_err(read_error)??,
                };
                Ok(self.answer(revision, page))
            }
            ListAt::AtLeast(revision) => {
                cache.wait_fresh(revision).await?;
                self.cached_page().await
            }
            ListAt::Any if self.inner.watch_cache && cache.reached().is_filled => {
                self.limit = 0;
                self.cached_page().await
            }
            ListAt::Any | ListAt::Newest => {
                if cache.reached().is_filled {
                    let present = self.inner.store.revision().await.map_err(read_error)?;
                    if cache.wait_fresh(present.0).await.is_ok() {
                        return self.cached_page().await;
                    }
                }
                let (start, _) = self.scope.range();
                let answer = self.stored_page(start, At::Latest).await;
                let (revision, page) = answer.map_err(read_error)??;
                Ok(self.answer(revision, page))
            }
        }
    }

    /// The page of a continue token.
    async fn continued_page(&self) -> Result<super::List, ApiError> {
        let token = Token::decode(self.token)?;
        if !matches!(self.resource_version, "" | "0") {
            let text = "specifying resource version is not allowed when using continue";
            return Err(ApiError::bad_request(text));
        }
        let start: Bytes = [&*self.scope.prefix, token.start.as_bytes()].concat().into();
        let at = token.revision.map_or(At::Latest, |revision| At::Exactly(Revision(revision)));
        let (revision, page) = match self.stored_page(start.clone(), at).await {
            Err(StoreError::Compacted { .. }) => {
                let mut expired = ApiError::expired(EXPIRED);
                let fresh = Token { revision: None, start: token.start };
                expired.0.metadata.continue_token = fresh.encode();
                return Err(expired);
            }
            Err(StoreError::Future { asked, .. }) => {
                self.inner.cache.wait_fresh(asked.0).await?;
                self.stored_page(start, at).await.map_err(read_error)??
            }
            answer => answer.map_err(read_error)??,
        };
        Ok(self.answer(revision, page))
    }

    fn page(&self) -> Page<'a> {
        let converted = ListBytes::of(&self.inner.converted_by_lists);
        Page { objects: Vec::new(), converted, last: None, remaining: None }
    }
    fn answer(&self, revision: u64, page: Page<'_>) -> super::List {
        let token = page.last.map(|last| {
            let start = last.get(self.scope.prefix.len()..).unwrap_or_default();
            let start = format!("{}\0", String::from_utf8_lossy(start));
            Token { revision: Some(revision), start }.encode()
        });
        super::List {
            revision,
            items: page.objects,
            continue_token: token.unwrap_or_default(),
            remaining: page.remaining.and_then(|n| i64::try_from(n).ok()),
            shard: self.scope.shard().cloned(),
        }
    }

    /// A page of the cache's present state.
    async fn cached_page(&self) -> Result<super::List, ApiError> {
        let cache = &self.inner.cache;
        // Read before the snapshot, so that the snapshot contains everything up to it.
        let reached = cache.reached().revision;
        let resource = cache.resource(&self.scope.resource.storage_prefix);
        let begun = Instant::now();
        let view = match self.inner.view(&self.scope.resource) {
            Some(view) => match view.wait().await {
                Ok(true) => Some(view),
                Err(error) if self.scope.is_whole_resource() => return Err(error),
                // The row's own objects would wait just as long for the same converter.
                Err(error) if begun.elapsed() >= CALL_TIMEOUT => return Err(error),
                // Objects outside the scope do not affect this list.
                Ok(false) | Err(_) => None,
            },
            None => None,
        };
        let resource = view.as_ref().map_or(&resource, |view| view.cache());
        let (index, newest) = resource.snapshot();
        let (start, end) = self.scope.range();
        let sealed = resource.sealed(&start, &end, UNREADABLE_MAX);
        if !sealed.is_empty() {
            return Err(self.inner.error_of_many(&self.scope.resource, sealed).await);
        }
        let page = match view {
            None if self.inner.served(&self.scope.resource).is_some() => {
                self.converted_page_of(&index).await?
            }
            _ => self.page_of(&index).await?,
        };
        Ok(self.answer(reached.max(newest), page))
    }
    /// The same for objects that are not converted yet.
    async fn converted_page_of(&self, index: &Index) -> Result<Page<'a>, ApiError> {
        let (start, end) = self.scope.range();
        let items: Vec<_> = index.range(Bound::Included(&start), upper(&end)).cloned().collect();
        let mut page = self.page();
        if let Some((last, n_left)) = self.fill_converted(&mut page, &items).await? {
            page.last = (n_left > 0).then_some(last);
            page.remaining = (n_left > 0 && self.scope.is_everything()).then_some(n_left);
        }
        Ok(page)
    }
    /// Converts stored items, some at a time, and adds the selected ones until the page is full.
    /// Then returns the key of its last item and the number of items behind it.
    async fn fill_converted(
        &self,
        page: &mut Page<'a>,
        items: &[Arc<Item>],
    ) -> Result<Option<(Bytes, usize)>, ApiError> {
        let mut rest = items;
        while !rest.is_empty() {
            let chunk;
            (chunk, rest) = rest.split_at(chunk_of(rest));
            let served = self.served(chunk.to_vec()).await?;
            let mut served = served.iter();
            if let Some(last) = self.fill(page, served.by_ref(), true).await? {
                return Ok(Some((last, served.len() + rest.len())));
            }
        }
        Ok(None)
    }
    /// Stored items as they are served if they need a conversion that may wait; otherwise
    /// unchanged.
    async fn served(&self, items: Vec<Arc<Item>>) -> Result<Vec<Arc<Item>>, ApiError> {
        match self.inner.served(&self.scope.resource) {
            Some(converter) => serve(&converter, &self.scope.resource, &items).await,
            None => Ok(items),
        }
    }
    async fn page_of(&self, index: &Index) -> Result<Page<'a>, ApiError> {
        let (start, end) = self.scope.range();
        let mut items = index.range(Bound::Included(&start), upper(&end));
        let mut page = self.page();
        let last = self.fill(&mut page, items.by_ref(), false).await?;
        if let Some(last) = last {
            let mut n_left = 0;
            loop {
                let n = items.by_ref().take(COUNT_SLICE).count();
                n_left += n;
                if n < COUNT_SLICE {
                    break;
                }
                tokio::task::yield_now().await;
            }
            page.last = (n_left > 0).then_some(last);
            page.remaining = (n_left > 0 && self.scope.is_everything()).then_some(n_left);
        }
        Ok(page)
    }
    /// Adds selected objects until the page is full, then returns the key of its last item. Yields
    /// in between. `is_own`: nobody else holds the converted ones.
    async fn fill<'i>(
        &self,
        page: &mut Page<'a>,
        items: impl Iterator<Item = &'i Arc<Item>>,
        is_own: bool,
    ) -> Result<Option<Bytes>, ApiError> {
        let mut cost = 0;
        for item in items {
            if cost > SLICE_COST {
                cost = 0;
                tokio::task::yield_now().await;
            }
            let look_cost = self.scope.look_cost(item);
            let listed = match self.scope.looks_slowly(item) {
                false => {
                    cost += look_cost;
                    look_at(&self.scope, item)?
                }
                true => {
                    let (scope, item) = (self.scope.clone(), item.clone());
                    self.inner.threads.run(async move { look_at(&scope, &item) }).await??
                }
            };
            if let Some(listed) = listed {
                let n_converted = listed.own_bytes();
                cost += n_converted * CONVERSION_COST;
                let n_own = if is_own && item.is_converted() { item.value.len() } else { 0 };
                page.converted.add(n_converted + n_own, &self.scope.resource.gvk)?;
                page.objects.push(listed);
                if page.objects.len() == self.limit {
                    return Ok(Some(item.key.clone()));
                }
            }
        }
        Ok(None)
    }

    /// A page of the store, starting at a key. The inner error is an object that cannot be served.
    async fn stored_page(
        &self,
        mut start: Bytes,
        mut at: At,
    ) -> Result<Result<(u64, Page<'a>), ApiError>, StoreError> {
        let (_, end) = self.scope.range();
        let chunk = match self.limit {
            0 => 0,
            limit if self.scope.is_everything() => limit,
            limit => limit.max(CHUNK_MAX),
        };
        let mut page = self.page();
        loop {
            let request = RangeRequest { start: start.clone(), end: end.clone(), at, limit: chunk };
            let snapshot = self.inner.store.range(request).await?;
            let revision = match at {
                At::Exactly(revision) => revision,
                At::Latest => snapshot.revision,
            };
            // Later chunks read at the revision of the first.
            at = At::Exactly(revision);
            let (count, n_read) = (snapshot.value.count, snapshot.value.entries.len());
            let entries = snapshot.value.entries.iter();
            let sealed = entries.filter(|kv| setpoint_store::is_sealed(&kv.value));
            let sealed: Vec<_> = sealed.take(UNREADABLE_MAX).map(|kv| kv.key.clone()).collect();
            if !sealed.is_empty() {
                return Ok(Err(self.inner.error_of_many(&self.scope.resource, sealed).await));
            }
            let entries = snapshot.value.entries.into_iter();
            let items: Vec<_> = entries.map(|kv| Arc::new(Item::from(kv))).collect();
            look_through(&items, &self.inner.threads).await;
            match self.fill_converted(&mut page, &items).await {
                Err(error) => return Ok(Err(error)),
                Ok(Some((last, n_behind))) => {
                    let n_left = n_behind + (count - n_read);
                    page.last = (n_left > 0).then_some(last);
                    page.remaining = (n_left > 0 && self.scope.is_everything()).then_some(n_left);
                    return Ok(Ok((revision.0, page)));
                }
                Ok(None) => {}
            }
            match items.last() {
                Some(last) if n_read < count => start = [&*last.key, b"\0"].concat().into(),
                _ => return Ok(Ok((revision.0, page))),
            }
        }
    }
}
/// An object as it is listed, if it is selected.
fn look_at(scope: &Scope, item: &Arc<Item>) -> Result<Option<Listed>, ApiError> {
    match scope.selects(item)? {
        true => Listed::new(&scope.resource, item).map(Some),
        false => Ok(None),
    }
}
/// The number of items to convert at once.
fn chunk_of(items: &[Arc<Item>]) -> usize {
    let mut n_bytes = 0;
    let fits = |item: &&Arc<Item>| {
        n_bytes += item.value.len();
        n_bytes <= CHUNK_BYTES_MAX
    };
    items.iter().take(CHUNK_MAX).take_while(fits).count().max(1)
}
/// The upper bound of a range that may be unbounded.
fn upper(end: &Bytes) -> Bound<&[u8]> {
    if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) }
}
