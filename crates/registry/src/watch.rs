//! Watch streams.
//!
//! # Theory
//!
//! A stream is a position in the watch cache, polled by its owner. It has no task and no queue.
//!
//! | phase | gives | continues with |
//! |---|---|---|
//! | starting | nothing, until the cache is as fresh as requested | initial; ended with an `Err` if that fails |
//! | initial | every object of one snapshot as ADDED, in key order | live, after the snapshot and its bookmark; ended with an `Err` if the changes after the snapshot have left the window |
//! | live | every later change, in order; bookmarks | ended |
//! | ended | nothing |  |
//!
//! A live stream ends when it times out, when the server stops, when its resource changes or the
//! store's feed breaks, and when its position has left the cache's window because it is too slow.
//! It ends without an error: the client resumes after the last revision that it has seen. No event
//! is skipped or repeated, and a bookmark comes after all events up to its revision.
//!
//! An object that is long and served in another form than it is stored in is looked at on another
//! thread (`crate::threads`), one at a time; the stream goes on after it.
mod bookmark;
mod phase;
#[cfg(test)]
mod simulation;
mod stream;
#[cfg(test)]
mod tests;

pub use crate::cache::{Event, EventKind};
pub use stream::WatchStream;

use crate::read::{Scope, WatchStart};
use crate::request::ListOptions;
use crate::routed::Attributes;
use crate::shared::Registry;
use setpoint_object::ApiError;

impl Registry {
    /// WATCH. Returns refusals as `Err`, before the stream. A start that is too old is the stream's
    /// first `Err`.
    ///
    /// The stream has its position when this returns: it misses no later change, whenever it is
    /// polled.
    ///
    /// # Errors
    ///
    /// 400, 422 and 500 for invalid options; 429 while the cache is not filled.
    pub async fn watch(
        &self,
        attributes: &Attributes,
        options: &ListOptions,
    ) -> Result<WatchStream, ApiError> {
        options.validate(true, self.inner.features)?;
        let target = attributes.target()?;
        let scope = Scope::new(target, options)?;
        let start = WatchStart::of(options)?;
        self.inner.compile(&target.resource).await?;
        WatchStream::start(&self.inner, scope, start, options).await
    }
}
