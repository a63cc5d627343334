//! Where a controller's keys come from, and how events become keys.
//!
//! # Theory
//!
//! | source                                                     | has synced when                                    | adds keys through            |
//! |------------------------------------------------------------|----------------------------------------------------|------------------------------|
//! | a [`Watch`] of a cached type, or of a given informer       | its cache has synced, and its handler got the existing objects | an [`EventHandler`] |
//! | a channel                                                  | at once                                            | a map function               |
//! | a custom [`Source`], or a function ([`source_fn`])         | its start has returned                             | a [`KeySink`]                |
//!
//! If a user's function panics, no event of a watch is lost:
//!
//! | function                              | the event or value                                                                  |
//! |---------------------------------------|-------------------------------------------------------------------------------------|
//! | a predicate, or a filter              | passes: the object's own key, or the keys that the handler adds, are queued         |
//! | an event handler, or a map of a watch | is handled again after a second, and then with back-off; others are not delayed     |
//! | an index function, or the transform   | is handled; the object has no values in that index, or is stored as it arrived      |
//! | a map of a channel                    | is lost, because the map took it: logged and counted                                |
//! | the start or run of a custom source   | fails the controller, and so the manager                                            |
//!
//! [`SourceStatus`] counts panics and holds the last message. Up to [`RETRIED_OBJECTS_MAX`] objects
//! of a watch wait for a retry, with up to four events each: beyond that, events are lost.
//!
//! All sources of a controller start together. Its workers start when all have synced. After that,
//! watches can be added and removed: [`Watches`]. When the controller ends, its handlers are
//! removed from the informers, and its sources' tasks are dropped.

mod engage;
mod external;
mod feed;
mod handler;
mod retry;
mod set;
mod watch;
mod watches;

pub(crate) use self::{
    engage::{Engage, EngageFn},
    external::{Channel, ChannelState, DynSource, External},
    feed::{Only, Unbound},
    handler::{Mapped, MappedByIndex, MappedObjects, MappedWith, Owner},
    retry::Retries,
    set::{Awaited, LaggingCache, Sources},
};
pub use self::{
    external::{KeySink, Source, SourceFn, SourceRun, source_fn},
    handler::{Enqueue, EventHandler, HandlerFns},
    retry::RETRIED_OBJECTS_MAX,
    set::SourceStatus,
    watch::Watch,
    watches::{IndexRefused, WatchError, WatchHandle, Watches},
};
