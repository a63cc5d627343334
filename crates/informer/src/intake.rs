//! Turns the encoded objects of a source into what a queue carries.
use crate::indexer::IndexError;
use crate::key::{Key, Namespaces};
use crate::record::{Record, RecordError};
use crate::resource_type::ResourceType;
use crate::source::ListItem;
use crate::transform::{Transform, TransformError};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::fmt;

/// Converts objects one at a time as they arrive, so that a list is never in memory in two forms.
///
/// An [`ObjectError::Transform`] fails a list as a whole (FIFO-24); any other error skips the
/// object.
pub trait Intake<T>: Send + 'static {
    /// Converts an item of a list. Its type is not checked (REF-10).
    ///
    /// # Errors
    /// If it is not an object with a name, or cannot be transformed.
    fn item(&mut self, item: &ListItem) -> Result<T, ObjectError>;

    /// Converts the object of a watch event, which must be of the watched type (REF-24).
    ///
    /// # Errors
    /// If it is not an object with a name, is of another type, or cannot be transformed.
    fn event(&mut self, object: &Bytes) -> Result<T, ObjectError>;

    /// Converts an object of the initial events of a streamed list, which may be known already.
    /// Default: as [`event`](Self::event).
    ///
    /// # Errors
    /// As [`event`](Self::event).
    fn initial_event(&mut self, object: &Bytes) -> Result<T, ObjectError> {
        self.event(object)
    }

    /// The key of the object of a watch event, under the same conditions. Transforms nothing.
    ///
    /// # Errors
    /// If it is not an object with a name, or is of another type.
    fn key(&mut self, object: &Bytes) -> Result<Key, ObjectError>;

    /// Does work that takes too long between two objects. Called after each slice of a list and of
    /// a watch.
    fn settle(&mut self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// Why one object was not stored.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// It is malformed, has no name, or is of another type.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The transform failed for it.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// An index function failed for it.
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// Makes [`Record`]s: copies of the objects' JSON, transformed.
pub struct RecordIntake {
    resource_type: ResourceType,
    transform: Option<Transform>,
    namespaces: Namespaces,
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
    /// Makes records of objects of a type, unchanged.
    pub fn new(resource_type: ResourceType) -> Self {
        Self { resource_type, transform: None, namespaces: Namespaces::default() }
    }

    /// Transforms every object (FIFO-24).
    pub fn transform(mut self, transform: Option<Transform>) -> Self {
        self.transform = transform;
        self
    }

    fn finish(&mut self, mut record: Record) -> Result<Record, ObjectError> {
        record.key.namespace = self.namespaces.share(&record.key.namespace);
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
