//! Changes of objects, with the events made from them.
use super::{Event, EventKind, Item, Meter};
use crate::catalog::Resource;
use crate::convert;
use parking_lot::Mutex;
use setpoint_object::{ApiError, encode};
use setpoint_schema::INLINE_BYTES_MAX;
use std::sync::Arc;

/// One change of one object.
///
/// It caches the events made from it, so that each is encoded once for all watchers. They are
/// dropped with the change when it leaves the window.
#[derive(Debug)]
pub(crate) struct Change {
    /// The revision of the change.
    pub(crate) revision: u64,
    /// The object after the change; `None` if it was deleted.
    pub(crate) now: Option<Arc<Item>>,
    /// The object before the change; `None` if it was created.
    pub(crate) before: Option<Arc<Item>>,
    /// By row. A changed row or schema counts as another row. A resource has few versions.
    events: Mutex<Vec<(Arc<Resource>, Arc<Event>)>>,
    /// Counts the bytes of the events.
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
    /// The event of this kind for a watcher of this row. `Deleted` shows the state before the
    /// change, with the revision of the change. `None` if there is no such state.
    pub(crate) fn event(
        &self,
        resource: &Arc<Resource>,
        kind: EventKind,
    ) -> Result<Option<Arc<Event>>, ApiError> {
        let state = if kind == EventKind::Deleted { &self.before } else { &self.now };
        let Some(item) = state else { return Ok(None) };
        // Made under the lock, so that it is made once however many watchers need it.
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
    /// Drops every event; the next reader makes it again.
    pub(super) fn forget_events(&self) {
        self.events.lock().clear();
    }
    /// The memory that the change holds besides the present state and its events, in bytes: the
    /// state before.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.before.as_ref().map_or(0, |before| before.weight())
    }
}

impl Item {
    /// Whether it takes long to see it as a row serves it.
    pub(crate) fn converts_slowly(&self, resource: &Resource) -> bool {
        self.value.len() > INLINE_BYTES_MAX
            && !self.is_converted()
            && !convert::is_served_as_stored(resource, &self.value, self.revision)
    }
}

/// An event for one watcher, not cached.
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
