//! Where a controller's keys come from, and how events become keys.
//!
//! # Theory
//!
//! | source                                                     | has synced when                                    | tells the queue              |
//! |------------------------------------------------------------|----------------------------------------------------|------------------------------|
//! | a [`Watch`] of a cached type, or of a given informer       | its cache has, and its handler was told of what is there | through an [`EventHandler`] |
//! | a channel                                                  | at once                                            | what it receives             |
//! | a [`Source`] of somebody else's, or a function ([`source_fn`]) | its start has returned                         | through a [`KeySink`]        |
//!
//! A function of the user that panics loses no event:
//!
//! | it is                              | the event                                                                          |
//! |------------------------------------|-------------------------------------------------------------------------------------|
//! | a predicate, or a filter           | passes: the object's own key, or those that the handler makes of it, are added      |
//! | an event handler, or a mapping     | is handled again after a second, and then with back-off; others go on               |
//!
//! [`SourceStatus`] counts panics and says the last one.
//!
//! All sources of a controller start together; its workers start when all have synced. Watches may
//! come and go after that: [`Watches`]. When the controller ends, its handlers leave the informers,
//! and what its sources left running is dropped.

mod channel;
mod enqueue;
mod error;
mod feed;
mod foreign;
mod handler;
mod handler_fns;
mod owner;
mod retry;
mod set;
mod sink;
mod watch;
mod watches;

pub(crate) use self::{
    channel::Channel,
    feed::Unbound,
    foreign::{DynSource, Foreign},
    handler::{Mapped, MappedByIndex, MappedObjects, MappedWith},
    owner::Owner,
    retry::Retries,
    set::{Awaited, Sources, Unshown},
};
pub use self::{
    enqueue::Enqueue,
    error::{IndexRefused, WatchError},
    foreign::{Source, SourceFn, SourceRun, source_fn},
    handler::EventHandler,
    handler_fns::HandlerFns,
    retry::RETRIED_OBJECTS_MAX,
    set::SourceStatus,
    sink::KeySink,
    watch::Watch,
    watches::{WatchHandle, Watches},
};
