//! Objects at a revision, and changes of them, with every encoding made of them.
use crate::catalog::Resource;
use crate::convert;
use crate::watch::{Event, EventKind};
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_object::{ApiError, Skim};
use setpoint_store::KeyValue;
use std::sync::{Arc, OnceLock};

/// An object at one revision.
#[derive(Debug)]
pub(crate) struct Item {
    /// Its key in the store.
    pub(crate) key: Bytes,
    /// When it became so.
    pub(crate) revision: u64,
    /// As stored.
    pub(crate) value: Bytes,
    forms: Mutex<Vec<Form>>,
    labels: OnceLock<Labels>,
}
type Labels = Box<[(Box<str>, Box<str>)]>;

/// An item as one row serves it. A row that changes, with its schema, is another row.
#[derive(Debug)]
struct Form {
    resource: Arc<Resource>,
    object: Bytes,
    added: Option<Arc<Event>>,
    modified: Option<Arc<Event>>,
}

impl From<KeyValue> for Item {
    fn from(kv: KeyValue) -> Self {
        Self::new(kv.key, kv.modified.0, kv.value)
    }
}
impl Item {
    pub(crate) fn new(key: Bytes, revision: u64, value: Bytes) -> Self {
        Self { key, revision, value, forms: Mutex::default(), labels: OnceLock::new() }
    }
    /// As a row serves it.
    pub(crate) fn object(&self, resource: &Arc<Resource>) -> Result<Bytes, ApiError> {
        self.with_form(resource, |form| form.object.clone())
    }
    /// The event that it came to be so: `Added` or `Modified`.
    pub(crate) fn event(
        &self,
        resource: &Arc<Resource>,
        kind: EventKind,
    ) -> Result<Arc<Event>, ApiError> {
        self.with_form(resource, |form| {
            let object = form.object.clone();
            let event = if kind == EventKind::Added { &mut form.added } else { &mut form.modified };
            event.get_or_insert_with(|| Arc::new(Event::new(kind, object, self.revision))).clone()
        })
    }
    /// Made under the lock, so that however many ask, it is made once. Versions are few.
    fn with_form<T>(
        &self,
        resource: &Arc<Resource>,
        read: impl FnOnce(&mut Form) -> T,
    ) -> Result<T, ApiError> {
        let mut forms = self.forms.lock();
        if let Some(form) = forms.iter_mut().find(|form| Arc::ptr_eq(&form.resource, resource)) {
            return Ok(read(form));
        }
        let object = convert::serve(resource, &self.value, self.revision)?;
        let mut form = Form { resource: resource.clone(), object, added: None, modified: None };
        let out = read(&mut form);
        forms.push(form);
        Ok(out)
    }
    /// Forgets every encoding; the next reader makes it anew.
    pub(super) fn forget_forms(&self) {
        self.forms.lock().clear();
    }
    /// The value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let labels = self.labels.get_or_init(|| {
            let skim = Skim::of(&self.value).unwrap_or_default();
            skim.labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect()
        });
        labels.iter().find(|(k, _)| **k == *key).map(|(_, value)| &**value)
    }
}
/// One change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    /// When.
    pub(crate) revision: u64,
    /// The object now; `None` when it was deleted.
    pub(crate) now: Option<Arc<Item>>,
    /// The object before; `None` when it was created.
    pub(crate) before: Option<Arc<Item>>,
    /// The DELETED events, by row.
    deleted: Mutex<Vec<(Arc<Resource>, Arc<Event>)>>,
}
impl Change {
    pub(crate) fn new(revision: u64, now: Option<Arc<Item>>, before: Option<Arc<Item>>) -> Self {
        Self { revision, now, before, deleted: Mutex::default() }
    }
    /// The key of the object.
    pub(crate) fn key(&self) -> &[u8] {
        self.now.as_ref().or(self.before.as_ref()).map_or(b"", |item| &item.key)
    }
    /// The event for a watcher that sees it as deleted: the state before, with the revision of the change.
    pub(crate) fn deleted(&self, resource: &Arc<Resource>) -> Result<Option<Arc<Event>>, ApiError> {
        let Some(before) = &self.before else { return Ok(None) };
        let mut deleted = self.deleted.lock();
        if let Some((_, event)) = deleted.iter().find(|(row, _)| Arc::ptr_eq(row, resource)) {
            return Ok(Some(event.clone()));
        }
        let object = convert::serve(resource, &before.value, self.revision)?;
        let event = Arc::new(Event::new(EventKind::Deleted, object, self.revision));
        deleted.push((resource.clone(), event.clone()));
        Ok(Some(event))
    }
    /// Forgets every encoding; the next reader makes it anew.
    pub(super) fn forget_forms(&self) {
        self.deleted.lock().clear();
        for item in self.now.iter().chain(&self.before) {
            item.forget_forms();
        }
    }
    /// What it keeps in memory beyond the present state, in bytes: the state before, stored and served.
    pub(crate) fn weight(&self) -> usize {
        let value_bytes = self.before.as_ref().map_or(0, |before| before.value.len());
        size_of::<Self>() + size_of::<Item>() + 2 * value_bytes
    }
}
