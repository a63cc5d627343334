//! Values of fields that need a conversion, read before a change is applied.
//!
//! Watchers that select a field of another version than the stored one are indexed by its value
//! there. A conversion of a long object takes tens of milliseconds, and the fan-out of a change is
//! under the lock of its resource. So the values are read first, without a lock, and on another
//! thread if there is much to convert. The same holds for looking through a long object, whether it
//! is converted or not.
use super::item::{LONG_BYTES_MIN, look_through};
use super::{Field, Item};
use crate::catalog::Resource;
use crate::threads::Threads;
use bytes::Bytes;
use setpoint_object::ApiError;
use setpoint_schema::INLINE_BYTES_MAX;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// The values of fields in states of objects.
#[derive(Debug, Default)]
pub(super) struct FieldValues {
    /// By the number of the field, the key of the object and its revision.
    known: HashMap<(u64, Bytes, u64), Result<Box<str>, ApiError>>,
    /// The new states that are long, looked through. By the key of the object and its revision.
    long: HashMap<(Bytes, u64), Arc<Item>>,
}

/// A field that watchers are indexed by.
#[derive(Debug, Clone)]
pub(super) struct NumberedField {
    pub(super) number: u64,
    pub(super) resource: Arc<Resource>,
    pub(super) field: Field,
}

impl FieldValues {
    /// The same, with new states that are long.
    pub(super) async fn with_long(mut self, long: Vec<Arc<Item>>, threads: &Threads) -> Self {
        look_through(&long, threads).await;
        self.long =
            long.into_iter().map(|item| ((item.key.clone(), item.revision), item)).collect();
        self
    }
    /// The item of a new state.
    pub(super) fn item(&self, key: Bytes, revision: u64, value: Bytes) -> Arc<Item> {
        if value.len() > LONG_BYTES_MIN
            && let Some(known) = self.long.get(&(key.clone(), revision))
        {
            return known.clone();
        }
        Arc::new(Item::new(key, revision, value))
    }
    /// Reads the values that take long. Dropping the future has no effect.
    pub(super) async fn read(
        items: Vec<Arc<Item>>,
        fields: Vec<NumberedField>,
        threads: &Threads,
    ) -> Self {
        let mut converted = Vec::new();
        for field in fields {
            let shown = items.iter().filter(|item| is_read_before(&field, item));
            converted.extend(shown.map(|item| (item.clone(), field.clone())));
        }
        if converted.is_empty() {
            return Self::default();
        }
        let n_bytes: usize = converted.iter().map(|(item, _)| item.value.len()).sum();
        let read = async move {
            let known = converted.into_iter().map(|(item, field)| {
                let value = field.field.value(&field.resource, &item);
                let value = value.map(|value| value.into_owned().into_boxed_str());
                ((field.number, item.key.clone(), item.revision), value)
            });
            Self { known: known.collect(), ..Self::default() }
        };
        // Values that are not known are those of every watcher.
        threads.run_if(n_bytes > INLINE_BYTES_MAX, read).await.unwrap_or_default()
    }

    /// The value of a field; `None`: it takes long, and was not read.
    pub(super) fn get<'v>(
        &'v self,
        field: &NumberedField,
        item: &'v Item,
    ) -> Option<Result<Cow<'v, str>, ApiError>> {
        if !is_read_before(field, item) {
            return Some(field.field.value(&field.resource, item));
        }
        let known = self.known.get(&(field.number, item.key.clone(), item.revision))?;
        Some(known.as_ref().map(|value| Cow::Borrowed(&**value)).map_err(Clone::clone))
    }
}

/// Whether the value takes long.
fn is_read_before(field: &NumberedField, item: &Item) -> bool {
    item.is_long() && !item.is_converted() || item.is_shown_converted(&field.resource)
}
