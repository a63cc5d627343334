//! Reads that go on after an object that does not fit the reader's type.
use crate::object::{DecodeError, Object};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The decoded objects of a read, and the errors of those that do not fit the type.
///
/// A read that returns a plain `Vec` fails if one of its objects does not fit the type, because
/// most callers must not take an object for deleted that they cannot decode. A custom resource
/// whose definition is laxer than the Rust type can have such objects. A caller that can act on the
/// others collects into this type:
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use setpoint_informer::{Lister, indexer::Readable};
/// # use setpoint_object::label::Selector;
/// # fn example(lister: &Lister<ConfigMap>) {
/// let read: Readable<ConfigMap> = lister.objects(&Selector::everything()).into_iter().collect();
/// for error in &read.unreadable {
///     println!("skipped {}: {error}", error.key);
/// }
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Readable<K> {
    /// The decoded objects, in the order of the read.
    pub objects: Vec<Arc<K>>,
    /// One error per object that does not fit `K`. Each names its object.
    pub unreadable: Vec<DecodeError>,
}

impl<K: DeserializeOwned + Send + Sync + 'static> FromIterator<Object<K>> for Readable<K> {
    fn from_iter<T: IntoIterator<Item = Object<K>>>(objects: T) -> Self {
        let mut read = Self { objects: Vec::new(), unreadable: Vec::new() };
        for object in objects {
            match object.get() {
                Ok(object) => read.objects.push(object),
                Err(error) => read.unreadable.push(error),
            }
        }
        read
    }
}
