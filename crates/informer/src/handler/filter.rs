//! A handler of some objects only.
use super::Handler;
use crate::event::{Event, Tombstone};
use crate::object::Object;
use std::fmt;
use std::future::Future;

/// Passes on events as if only objects that match a predicate existed (EVT-10):
///
/// | before  | after   | the inner handler gets               |
/// |---------|---------|--------------------------------------|
/// | –       | matches | `Added`                              |
/// | matches | matches | `Updated`                            |
/// | fails   | matches | `Added`, not in the initial list     |
/// | matches | fails   | `Deleted`, with the state before     |
/// | matches | –       | `Deleted`                            |
/// | fails   | –       | nothing                              |
///
/// The predicate must always return the same for one version of an object. A deletion of which only
/// the key is known is passed on, since it may have matched.
pub struct FilteringHandler<P, H> {
    admits: P,
    handler: H,
}

impl<P, H> fmt::Debug for FilteringHandler<P, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilteringHandler").finish_non_exhaustive()
    }
}

impl<P, H> FilteringHandler<P, H> {
    /// Passes events of objects that match `admits` to `handler`.
    pub fn new(admits: P, handler: H) -> Self {
        Self { admits, handler }
    }

    /// What the inner handler gets.
    pub(super) fn pass<K>(&self, event: Event<K>) -> Option<Event<K>>
    where
        P: Fn(&Object<K>) -> bool,
    {
        match event {
            Event::Added { object, in_initial_list } => {
                (self.admits)(&object).then_some(Event::Added { object, in_initial_list })
            }
            Event::Updated { old, new } => match ((self.admits)(&old), (self.admits)(&new)) {
                (true, true) => Some(Event::Updated { old, new }),
                (false, true) => Some(Event::Added { object: new, in_initial_list: false }),
                (true, false) => Some(Event::Deleted { tombstone: Tombstone::Final(old) }),
                (false, false) => None,
            },
            Event::Deleted { tombstone } => {
                let admits = tombstone.object().is_none_or(|object| (self.admits)(object));
                admits.then_some(Event::Deleted { tombstone })
            }
        }
    }
}

impl<K, P, H> Handler<K> for FilteringHandler<P, H>
where
    K: Send + Sync + 'static,
    P: Fn(&Object<K>) -> bool + Send + Sync + 'static,
    H: Handler<K> + Sync,
{
    fn handle(&mut self, event: Event<K>) -> impl Future<Output = ()> + Send {
        let passed = self.pass(event);
        async move {
            if let Some(event) = passed {
                self.handler.handle(event).await;
            }
        }
    }
}
