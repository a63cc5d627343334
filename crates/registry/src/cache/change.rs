//! Changes of objects, with every event made of them.
use super::{Event, EventKind, Item, Meter};
use crate::catalog::Resource;
use crate::convert;
use parking_lot::Mutex;
use setpoint_object::{ApiError, encode};
use std::sync::Arc;

/// One change of one object.
///
/// It keeps the events that were made of it, so that each is encoded once however many watch; they
/// go with the change when it leaves the window.
#[derive(Debug)]
pub(crate) struct Change {
    /// When.
    pub(crate) revision: u64,
    /// The object now; `None` when it was deleted.
    pub(crate) now: Option<Arc<Item>>,
    /// The object before; `None` when it was created.
    pub(crate) before: Option<Arc<Item>>,
    /// By row. A row that changes, with its schema, is another row; versions are few.
    events: Mutex<Vec<(Arc<Resource>, Arc<Event>)>>,
    /// What the events weigh.
    meter: Meter,
}
impl Change {
    pub(crate) fn new(
        revision: u64,
        now: Option<Arc<Item>>,
        before: Option<Arc<Item>>,
        meter: Meter,
    ) -> Self {
        Self { revision, now, before, events: Mutex::default(), meter }
    }
    /// The key of the object.
    pub(crate) fn key(&self) -> &[u8] {
        self.now.as_ref().or(self.before.as_ref()).map_or(b"", |item| &item.key)
    }
    /// The event for a watcher that sees it so. `Deleted` shows the state before, with the revision
    /// of the change. `None` when there is no such state.
    pub(crate) fn event(
        &self,
        resource: &Arc<Resource>,
        kind: EventKind,
    ) -> Result<Option<Arc<Event>>, ApiError> {
        let state = if kind == EventKind::Deleted { &self.before } else { &self.now };
        let Some(item) = state else { return Ok(None) };
        // Made under the lock, so that however many ask, it is made once.
        let mut events = self.events.lock();
        let known = |(row, event): &&(Arc<Resource>, Arc<Event>)| {
            Arc::ptr_eq(row, resource) && event.kind == kind
        };
        if let Some((_, event)) = events.iter().find(known) {
            return Ok(Some(event.clone()));
        }
        let event = event_of(item, resource, kind, self.revision)?;
        let event = Arc::new(event.metered(&self.meter));
        events.push((resource.clone(), event.clone()));
        Ok(Some(event))
    }
    /// Forgets every event; the next reader makes it anew.
    pub(super) fn forget_events(&self) {
        self.events.lock().clear();
    }
    /// What it keeps in memory beyond the present state and its events, in bytes: the state before.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.before.as_ref().map_or(0, |before| before.weight())
    }
}

/// An event made for one watcher.
pub(crate) fn event_of(
    item: &Arc<Item>,
    resource: &Resource,
    kind: EventKind,
    revision: u64,
) -> Result<Event, ApiError> {
    let is_converted = item.is_converted();
    if revision == item.revision
        && (is_converted || convert::is_served_as_stored(resource, &item.value, revision))
    {
        return Ok(Event::of_item(kind, item.clone()));
    }
    if is_converted {
        let object = encode::with_resource_version(&item.value, revision);
        return Ok(Event::new(kind, object, revision));
    }
    let object = convert::serve_as(resource, &item.value, item.revision, revision)?;
    Ok(Event::new(kind, object, revision))
}
