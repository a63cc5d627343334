//! Where objects come from: the list and watch of one resource, as encoded objects.
//!
//! [`ListWatch`] is pure I/O: it remembers nothing between calls and retries nothing; that is the
//! reflector's work. It is the trait a third party implements to run an informer over something
//! else than a cluster.

mod client;
mod consistency;
mod error;
pub mod fault;
mod frame;
mod gzip;
mod list;
mod part;
mod query;
pub mod scripted;
mod selection;
pub mod trace;

pub use client::{ClientSource, LIST_STREAM_BYTES_MAX};
pub use consistency::{ConsistencyDetector, Difference, Inconsistency};
pub use error::SourceError;
pub(crate) use frame::look;
pub use frame::{FRAME_BYTES_MAX, WatchFrame, frames, frames_unchecked};
pub use list::{ITEM_BYTES_MAX, LIST_BODY_BYTES_MAX, ListEnd, ListPage, ListSplitter};
pub use part::{ListHead, ListItem, ListPart, ListStream};
pub use selection::Selection;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::time::Duration;

/// The list and watch of one resource, with namespace and selectors already chosen.
pub trait ListWatch: Send + Sync + 'static {
    /// Asks for one page of a list.
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>>;

    /// Asks for one page of a list, to be had in parts as it arrives: what a reflector calls. A
    /// source whose answers come in pieces gives each piece's items as soon as they are complete,
    /// so that a list of any size passes through without being held as a whole; others inherit
    /// this, which gives what [`list`](Self::list) gives in one part.
    fn list_in_parts(
        &self,
        request: ListRequest,
    ) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        Box::pin(async move {
            let ListPage { resource_version, continue_token, items } = self.list(request).await?;
            let items = items.into_iter().map(ListItem::from).collect();
            let end = ListHead { resource_version, continue_token };
            let parts = [Ok(ListPart::Items(items)), Ok(ListPart::End(end))];
            Ok(futures::stream::iter(parts).boxed())
        })
    }

    /// Opens a watch. The future ends when the server has accepted it; the stream ends when the
    /// server closes it, or after its first error.
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>>;

    /// Opens a watch as [`watch`](Self::watch) does, for a reader that looks at every object
    /// itself: the source need not have looked at objects that are added, modified or deleted. What
    /// a reflector calls, so that an object is looked at once.
    fn watch_unchecked(
        &self,
        request: WatchRequest,
    ) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        self.watch(request)
    }

    /// Whether the server can send a list as a watch (`sendInitialEvents`, KEP-3157). Sources that
    /// cannot say `false`, and the reflector lists in pages.
    fn can_stream_list(&self) -> bool {
        true
    }

    /// Which objects of the resource it gives: who waits for a write to arrive asks whether it
    /// will. Sources that do not know inherit this, which is all.
    fn selection(&self) -> Selection {
        Selection::default()
    }
}

/// A source that is shared asks as its inner one.
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

/// The frames of one watch, in the server's order. Each object is complete and bounded by
/// [`FRAME_BYTES_MAX`].
pub type WatchStream = BoxStream<'static, Result<WatchFrame, SourceError>>;

/// The parameters of one list request that a reflector chooses (REF-1, REF-2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ListRequest {
    /// `resourceVersion`; empty asks for the most recent state, `"0"` for any.
    pub resource_version: String,
    /// `resourceVersionMatch=Exact`: the state at that version and no other, which must be a real
    /// one (FAC-9). Otherwise nothing is said, which means not older than it, and with a limit
    /// exactly it.
    pub exact: bool,
    /// `limit`, objects in a page; `None` asks for everything at once.
    pub limit: Option<u32>,
    /// `continue`: the page after the one that gave this token.
    pub continue_token: Option<String>,
}

/// The parameters of one watch request that a reflector chooses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WatchRequest {
    /// `resourceVersion` to start after; empty for the most recent state.
    pub resource_version: String,
    /// `timeoutSeconds`: when the server is to close the watch; whole seconds.
    pub timeout: Duration,
    /// `sendInitialEvents=true` with `resourceVersionMatch=NotOlderThan`: the present state first,
    /// then a marked bookmark.
    pub send_initial_events: bool,
}
