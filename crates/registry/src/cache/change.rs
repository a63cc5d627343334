//! Changes of objects, with the events made from them.
use super::{Event, EventKind, Item, Meter};
use crate::catalog::Resource;
use crate::convert;
use parking_lot::Mutex;
use setpoint_object::{ApiError, encode};
use setpoint_schema::INLINE_BYTES_MAX;
use std::sync::{Arc, OnceLock};

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
    events: Mutex<Vec<Made>>,
    /// Counts the bytes of the events.
    meter: Meter,
}
/// The event of one kind for one row.
///
/// The first that needs it makes it, without the lock of all events: the conversion of a long
/// object takes tens of milliseconds. Only those who need the same event wait for it, and they are
/// on threads that may block too if the conversion is slow ([`Item::converts_slowly`]).
#[derive(Debug, Clone)]
struct Made {
    row: Arc<Resource>,
    kind: EventKind,
    event: Arc<OnceLock<Result<Arc<Event>, ApiError>>>,
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
        self.made(resource, kind, || event_of(item, resource, kind, self.revision)).map(Some)
    }
    /// The event of a kind for a row, which is made once however many watchers need it.
    fn made(
        &self,
        resource: &Arc<Resource>,
        kind: EventKind,
        make: impl FnOnce() -> Result<Event, ApiError>,
    ) -> Result<Arc<Event>, ApiError> {
        let event = {
            let mut events = self.events.lock();
            let is_it = |made: &&Made| Arc::ptr_eq(&made.row, resource) && made.kind == kind;
            match events.iter().find(is_it) {
                Some(made) => made.event.clone(),
                None => {
                    let event = Arc::default();
                    events.push(Made { row: resource.clone(), kind, event: Arc::clone(&event) });
                    event
                }
            }
        };
        event.get_or_init(|| make().map(|event| Arc::new(event.metered(&self.meter)))).clone()
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
        self.value.len() > INLINE_BYTES_MAX && self.is_shown_converted(resource)
    }
    /// Whether it must be converted to see it as a row serves it.
    pub(crate) fn is_shown_converted(&self, resource: &Resource) -> bool {
        !self.is_converted() && !convert::is_served_as_stored(resource, &self.value, self.revision)
    }
}

/// An event for one watcher, not cached.
pub(crate) fn event_of(
    item: &Arc<Item>,
    resource: &Resource,
    kind: EventKind,
    revision: u64,
) -> Result<Event, ApiError> {
    if item.is_shown_converted(resource) {
        let object = convert::serve_as(resource, &item.value, item.revision, revision)?;
        return Ok(Event::new(kind, object, revision));
    }
    // A short one is copied, so that all who hold the event share the object.
    if revision == item.revision || item.is_long() {
        return Ok(Event::of_item(kind, item.clone(), revision));
    }
    let mut object = Vec::with_capacity(item.value.len() + encode::RESOURCE_VERSION_BYTES);
    item.push_spliced_at(&mut object, revision);
    Ok(Event::new(kind, object.into(), revision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap;
    use std::sync::mpsc;
    use std::time::Duration;

    /// The story: a watcher of one version waited, with a serving thread, until the same change was
    /// converted for the watchers of another; and so did everything that needs the lock of the
    /// resource, once the window was full and its events were forgotten.
    #[test]
    fn an_event_that_takes_long_delays_no_other_row() {
        let row = |version| {
            let catalog = bootstrap::catalog();
            catalog.get("autoscaling", version, "horizontalpodautoscalers").unwrap().clone()
        };
        let (slow, other) = (row("v1"), row("v2"));
        let change = Arc::new(Change::new(1, None, None, Meter::default()));
        let event = || Ok(Event::new(EventKind::Added, "{}".into(), 1));
        let shared = change.clone();
        let made = change.made(&slow, EventKind::Added, || {
            let (done, wait) = mpsc::channel();
            std::thread::spawn(move || {
                shared.made(&other, EventKind::Added, event).unwrap();
                shared.forget_events();
                done.send(()).unwrap();
            });
            wait.recv_timeout(Duration::from_secs(20)).unwrap();
            event()
        });
        assert!(made.is_ok());
    }

    #[test]
    fn an_event_is_made_once_for_all() {
        let row = bootstrap::catalog().get("", "v1", "configmaps").unwrap().clone();
        let meter = Meter::default();
        let change = Change::new(1, None, None, meter.clone());
        let event = || Ok(Event::new(EventKind::Added, "{}".into(), 1));
        let first = change.made(&row, EventKind::Added, event).unwrap();
        let second = change.made(&row, EventKind::Added, || panic!("it is known")).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let modified = change.made(&row, EventKind::Modified, event).unwrap();
        assert!(!Arc::ptr_eq(&first, &modified));
        change.forget_events();
        drop((first, second, modified));
        assert_eq!(meter.bytes(), 0);
    }
}
