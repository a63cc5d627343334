//! Watch streams.
//!
//! # Theory
//!
//! A stream is a position in the watch cache, polled by its owner; no task and no queue stand
//! behind it.
//!
//! | phase    | gives                                                     | goes on to                                       |
//! |----------|-----------------------------------------------------------|--------------------------------------------------|
//! | starting | nothing, until the cache is as fresh as was asked          | initial; ended with an `Err` if it cannot be      |
//! | initial  | every object of one snapshot as ADDED, in key order        | live, behind the snapshot, after its bookmark     |
//! | live     | every change behind the position, in order; bookmarks      | ended                                             |
//! | ended    | nothing                                                   |                                                  |
//!
//! A live stream ends when its time is over, when the server stops, when its resource changes or
//! the store's feed breaks, and when its position has left the cache's window: it was too slow. It
//! then ends without an error: the client resumes behind the last revision it has seen. No event is
//! ever skipped, none comes twice, and a bookmark never says more than the events before it.
mod bookmark;
mod phase;
#[cfg(test)]
mod simulation;
mod stream;
#[cfg(test)]
mod tests;

pub use crate::cache::{Event, EventKind};
pub use stream::WatchStream;

use crate::attributes::Attributes;
use crate::read::{Scope, WatchStart};
use crate::request::ListOptions;
use crate::shared::Registry;
use setpoint_object::ApiError;

impl Registry {
    /// WATCH. Refusals come as `Err` (before the stream), a too old start as the stream's first
    /// `Err`.
    ///
    /// The stream has its place when this returns: it misses no change that happens later, whenever
    /// it is polled.
    ///
    /// # Errors
    ///
    /// 400, 422 and 500 for options that cannot be; 429 while the cache is not filled.
    pub async fn watch(
        &self,
        attributes: &Attributes,
        options: &ListOptions,
    ) -> Result<WatchStream, ApiError> {
        let start = WatchStart::of(options)?;
        let target = attributes.target()?;
        let scope = Scope::new(target, options)?;
        self.inner.compile(&target.resource).await?;
        WatchStream::start(&self.inner, scope, start, options).await
    }
}
