//! What becomes of an encoded object before it is queued.
use crate::delta::Keyed;
use crate::key::Key;
use crate::record::Record;
use crate::reflector::ObjectError;
use crate::resource_type::ResourceType;
use crate::source::ListItem;
use crate::transform::Transform;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::fmt;
use std::sync::Arc;

/// Makes what a queue carries out of what a source sends, one object at a time, as it arrives: a
/// list is never held in two forms.
///
/// An [`ObjectError::Transform`] fails a list as a whole (FIFO-24); any other error skips the
/// object.
pub trait Intake<T>: Send + 'static {
    /// Takes in one item of a list; its type is not checked (REF-10).
    ///
    /// # Errors
    /// When it is not an object with a name, or cannot be transformed.
    fn item(&mut self, item: &ListItem) -> Result<T, ObjectError>;

    /// Takes in the object of a watch event, which must be of the watched type (REF-24).
    ///
    /// # Errors
    /// When it is not an object with a name, is of another type, or cannot be transformed.
    fn event(&mut self, object: &Bytes) -> Result<T, ObjectError>;

    /// Only the key of the object of a watch event, under the same conditions; nothing is
    /// transformed.
    ///
    /// # Errors
    /// When it is not an object with a name, or is of another type.
    fn key(&mut self, object: &Bytes) -> Result<Key, ObjectError>;

    /// Time for work that is too long to be done between two objects; called after each part of a
    /// list and now and then during a watch. May change the form of what was taken in and is not
    /// queued yet.
    fn settle<'a>(&'a mut self, taken: &'a mut [T]) -> BoxFuture<'a, ()> {
        let _ = taken;
        std::future::ready(()).boxed()
    }
}

/// Takes in [`Record`]s: copies of the objects' JSON, transformed.
pub struct RecordIntake {
    resource_type: ResourceType,
    transform: Option<Transform>,
    /// Of the last object that was taken in.
    namespace: Arc<str>,
}

impl fmt::Debug for RecordIntake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordIntake")
            .field("resource", &self.resource_type.to_string())
            .field("transforms", &self.transform.is_some())
            .finish_non_exhaustive()
    }
}

impl RecordIntake {
    /// Takes in objects of a type, as they are.
    pub fn new(resource_type: ResourceType) -> Self {
        Self { resource_type, transform: None, namespace: Arc::from("") }
    }

    /// Transforms every object (FIFO-24).
    pub fn transform(mut self, transform: Option<Transform>) -> Self {
        self.transform = transform;
        self
    }

    fn finish(&mut self, mut record: Record) -> Result<Record, ObjectError> {
        // A list is sorted by namespace: its objects come to share the text of theirs.
        if record.key.namespace == self.namespace {
            record.key.namespace = self.namespace.clone();
        } else {
            self.namespace = record.key.namespace.clone();
        }
        if let Some(transform) = &self.transform {
            record.bytes = transform(record.bytes)?;
        }
        Ok(record)
    }
}

impl Intake<Record> for RecordIntake {
    fn item(&mut self, item: &ListItem) -> Result<Record, ObjectError> {
        let record = Record::from_item(&item.bytes, &self.resource_type)?;
        self.finish(record)
    }

    fn event(&mut self, object: &Bytes) -> Result<Record, ObjectError> {
        let record = Record::from_event(object, &self.resource_type)?;
        self.finish(record)
    }

    fn key(&mut self, object: &Bytes) -> Result<Key, ObjectError> {
        Ok(Record::from_event(object, &self.resource_type)?.key)
    }
}

impl Keyed for Record {
    fn key(&self) -> &Key {
        &self.key
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}
