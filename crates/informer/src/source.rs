//! Sources: the list and watch of one resource, as encoded objects.
//!
//! [`ListWatch`] is pure I/O: it keeps no state between calls and retries nothing, which is the
//! reflector's job. Implement it to run an informer over another source than a cluster.

mod client;
mod consistency;
mod error;
pub mod fault;
mod frame;
mod gzip;
mod list;
mod query;
pub mod saved;
pub mod scripted;
mod selection;
pub mod trace;

pub use client::{ClientSource, LIST_STREAM_BYTES_MAX};
pub use consistency::{ConsistencyDetector, Difference, Inconsistency};
pub use error::SourceError;
pub use frame::{FRAME_BYTES_MAX, INITIAL_EVENTS_END, WatchFrame, frames, frames_unchecked};
pub(crate) use frame::{end_marker, look};
pub use list::{
    ITEM_BYTES_MAX, LIST_BODY_BYTES_MAX, LIST_OBJECTS_MAX, LIST_PAGES_MAX, ListEnd, ListHead,
    ListItem, ListPage, ListPart, ListSplitter, ListStream, PAGE_SIZE,
};
pub use selection::Selection;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::time::Duration;

/// The largest number of items in a part of a list: 512, so that a list that arrives at once is
/// still handled in parts.
pub(crate) const PART_ITEMS_MAX: usize = 512;

/// The list and watch of one resource with fixed namespace and selectors.
pub trait ListWatch: Send + Sync + 'static {
    /// Requests one page of a list.
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>>;

    /// Requests one page of a list, in parts as it arrives. Called by reflectors. A source whose
    /// answers arrive in pieces returns the items of each piece when they are complete, so that no
    /// list is in memory as a whole. The default returns the items of [`list`](Self::list) in parts
    /// of 512.
    fn list_in_parts(
        &self,
        request: ListRequest,
    ) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        Box::pin(async move {
            let ListPage { resource_version, continue_token, items } = self.list(request).await?;
            let end = ListHead { resource_version, continue_token };
            let parts = (items.into_iter(), Some(end));
            let parts = futures::stream::unfold(parts, |(mut items, mut end)| async move {
                let part: Vec<_> =
                    items.by_ref().take(PART_ITEMS_MAX).map(ListItem::from).collect();
                let part = match part.is_empty() {
                    false => ListPart::Items(part),
                    true => ListPart::End(end.take()?),
                };
                Some((Ok(part), (items, end)))
            });
            Ok(parts.boxed())
        })
    }

    /// Opens a watch. The future ends when the server has accepted it. The stream ends when the
    /// server closes it, or after its first error.
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>>;

    /// Opens a watch for a reader that checks every object itself: the source need not check added,
    /// modified and deleted objects. Called by reflectors, so that each object is scanned once.
    fn watch_unchecked(
        &self,
        request: WatchRequest,
    ) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        self.watch(request)
    }

    /// Whether the server supports streamed lists (`sendInitialEvents`, KEP-3157). If not, the
    /// reflector lists in pages.
    fn can_stream_list(&self) -> bool {
        true
    }

    /// The objects that the source returns, to determine whether a written object will arrive.
    /// Default: all.
    fn selection(&self) -> Selection {
        Selection::default()
    }
}

/// Delegates to the shared source.
impl<S: ListWatch + ?Sized> ListWatch for Arc<S> {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        (**self).list(request)
    }

    fn list_in_parts(
        &self,
        request: ListRequest,
    ) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        (**self).list_in_parts(request)
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        (**self).watch(request)
    }

    fn watch_unchecked(
        &self,
        request: WatchRequest,
    ) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        (**self).watch_unchecked(request)
    }

    fn can_stream_list(&self) -> bool {
        (**self).can_stream_list()
    }

    fn selection(&self) -> Selection {
        (**self).selection()
    }
}

/// The frames of one watch, in the server's order. Each object has at most [`FRAME_BYTES_MAX`]
/// bytes.
pub type WatchStream = BoxStream<'static, Result<WatchFrame, SourceError>>;

/// The parameters of a list request that a reflector chooses (REF-1, REF-2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ListRequest {
    /// `resourceVersion`; empty asks for the most recent state, `"0"` for any.
    pub resource_version: String,
    /// `resourceVersionMatch=Exact`: the state at exactly that version (FAC-9). Otherwise the
    /// parameter is not sent: the state is not older than that version, or with a limit exactly at
    /// it.
    pub exact: bool,
    /// `limit`, objects in a page; `None` requests everything at once.
    pub limit: Option<u32>,
    /// `continue`: the page after the one with this token.
    pub continue_token: Option<String>,
}

/// The parameters of a watch request that a reflector chooses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WatchRequest {
    /// `resourceVersion` to start after; empty for the most recent state.
    pub resource_version: String,
    /// `timeoutSeconds`: after which the server closes the watch; whole seconds.
    pub timeout: Duration,
    /// `sendInitialEvents=true` with `resourceVersionMatch=NotOlderThan`: the existing objects
    /// first, then a marked bookmark.
    pub send_initial_events: bool,
}
