//! What the garbage collector follows.

use futures::future::BoxFuture;
use setpoint_controllers::gc::{ObjectEvent, ObjectFeed};
use setpoint_registry::{ObjectChange, ObjectChanges};

/// The registry's object changes, as the garbage collector's feed.
#[derive(Debug)]
pub(super) struct Feed(pub(super) ObjectChanges);

impl ObjectFeed for Feed {
    fn next(&mut self) -> BoxFuture<'_, Option<ObjectEvent>> {
        Box::pin(async {
            loop {
                return Some(match self.0.next().await? {
                    ObjectChange::Resync => ObjectEvent::Restarted,
                    ObjectChange::Synced(_) => ObjectEvent::Synced,
                    ObjectChange::Put(object) => ObjectEvent::Put(object.value),
                    ObjectChange::Deleted(object) => ObjectEvent::Deleted(object.value),
                    // Not a change of an object.
                    _ => continue,
                });
            }
        })
    }
}
