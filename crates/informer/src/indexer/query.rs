//! Reads the objects that match some conditions, one at a time.
//!
//! # Theory
//!
//! Conditions are evaluated on the encoded object: nothing is decoded to decide whether it matches.
//! An iteration reads a snapshot, which it owns, so it holds no lock while the caller handles an
//! object, and may pause as long as it likes; later writes do not change what it returns.
use super::snapshot::{ObjectCursor, Snapshot, UnknownIndex};
use super::tree::{Cursor, KeyRef, Tree};
use super::{Lister, NAMESPACE_INDEX};
use crate::object::{DecodeError, Object, Raw};
use crate::slices::Slices;
use futures::{Stream, stream};
use kube_core::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;
use setpoint_object::skim;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use tokio::task::coop::consume_budget;

/// Conditions on objects. An object must meet all of them; without any, all objects match.
///
/// ```
/// # use setpoint_informer::indexer::{Query, SelectError};
/// # use setpoint_informer::Lister;
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # fn example(lister: &Lister<Deployment>) -> Result<(), SelectError> {
/// let query = Query::new().namespace("web").value("/spec/replicas", 0)?;
/// for stopped in lister.select(&query)? {
///     println!("{} is scaled to zero", stopped.key());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a query reads nothing before `Lister::select`"]
pub struct Query {
    namespace: Option<Arc<str>>,
    labels: Selector,
    fields: FieldSelector,
    /// Name and value of indexes.
    indices: Vec<(String, String)>,
    /// The tokens of a JSON pointer, and the value there.
    values: Vec<(Vec<String>, Value)>,
}

/// A query cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// There is no such index.
    #[error(transparent)]
    UnknownIndex(#[from] UnknownIndex),
    /// The text is not a JSON pointer (RFC 6901): it must be empty or start with a slash, and `~`
    /// must be escaped.
    #[error("{0:?} is not a JSON pointer")]
    Pointer(String),
    /// Conditions on fields and values need encoded objects, but this cache holds decoded values
    /// ([`CachePolicy::Decoded`](crate::CachePolicy::Decoded)). Add an index instead.
    #[error("fields of decoded objects cannot be compared: add an index")]
    Decoded,
}

impl Query {
    /// Matches all objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Objects in this namespace. The last call counts.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Objects whose labels match. The last call counts. Without [`index`](Self::index) and with an
    /// index by labels ([`LABEL_INDEX`](super::LABEL_INDEX)), only objects with one of the labels
    /// that the selector requires are read.
    pub fn labels(mut self, selector: Selector) -> Self {
        self.labels = selector;
        self
    }

    /// Objects whose fields match. A field is a path in the object, such as `spec.nodeName`; an
    /// absent field is an empty text, as on the server. The last call counts.
    pub fn fields(mut self, selector: FieldSelector) -> Self {
        self.fields = selector;
        self
    }

    /// Objects that an index lists under this value. Repeatable. The first index determines which
    /// objects are read at all, so it should be the most selective one.
    pub fn index(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.indices.push((name.into(), value.into()));
        self
    }

    /// Objects with this value at a JSON pointer (RFC 6901), such as `/spec/replicas` or
    /// `/spec/containers/0/image`. An absent value does not equal `null`. Repeatable.
    ///
    /// # Errors
    /// [`SelectError::Pointer`] if the text is not a JSON pointer.
    pub fn value(mut self, pointer: &str, value: impl Into<Value>) -> Result<Self, SelectError> {
        let tokens = skim::pointer_tokens(pointer);
        let tokens = tokens.ok_or_else(|| SelectError::Pointer(pointer.to_owned()))?;
        self.values.push((tokens, value.into()));
        Ok(self)
    }

    fn reads_json(&self) -> bool {
        let is_key = |path: &str| matches!(path, "metadata.name" | "metadata.namespace");
        !self.values.is_empty() || self.fields.terms().iter().any(|term| !is_key(&term.path))
    }

    fn matches<K: Resource + 'static>(&self, object: &Object<K>) -> bool {
        if !object.has_labels(&self.labels) {
            return false;
        }
        if self.fields.is_everything() && self.values.is_empty() {
            return true;
        }
        let json = if self.reads_json() { object.json() } else { None };
        let json = json.as_deref().unwrap_or_default();
        let by_fields = self.fields.matches(|path| match path {
            "metadata.name" => object.name().into(),
            "metadata.namespace" => object.namespace().into(),
            path => {
                let path: Vec<&str> = path.split('.').collect();
                skim::scalar(json, &path).unwrap_or_default()
            }
        });
        by_fields
            && self.values.iter().all(|(tokens, expected)| {
                let value = skim::value_at(json, tokens);
                value.and_then(|value| serde_json::from_slice::<Value>(value).ok()).as_ref()
                    == Some(expected)
            })
    }
}

/// The objects of a snapshot that match a query, by key; from [`Lister::select`].
///
/// Iterating never decodes. To decode one object at a time call [`Object::get`] on each, or use
/// [`decoded`](Self::decoded). Between two matches an iteration looks at all objects that do not
/// match; in async code use [`stream`](Self::stream), which lets other tasks run meanwhile.
pub struct Selected<K> {
    query: Query,
    rest: Rest,
    /// The objects of the other indexes.
    others: Vec<Option<Tree<Raw>>>,
    of: PhantomData<fn() -> K>,
}

/// The objects that have not been looked at.
enum Rest {
    None,
    All(ObjectCursor),
    Index(Cursor<Raw>),
}

impl Rest {
    fn next(&mut self) -> Option<Raw> {
        match self {
            Self::None => None,
            Self::All(objects) => {
                let object = objects.peek()?.clone();
                objects.advance();
                Some(object)
            }
            Self::Index(objects) => {
                let object = objects.peek()?.clone();
                objects.advance();
                Some(object)
            }
        }
    }
}

/// The result of looking at one object.
enum Looked<K> {
    Match(Object<K>),
    Other,
    End,
}

impl<K> fmt::Debug for Selected<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selected").field("query", &self.query).finish_non_exhaustive()
    }
}

impl<K: Resource + 'static> Selected<K> {
    fn look(&mut self) -> Looked<K> {
        let Some(object) = self.rest.next() else { return Looked::End };
        let object: Object<K> = object.into_type();
        if self.query.namespace.as_ref().is_some_and(|wanted| **wanted != *object.namespace()) {
            // Objects are sorted by namespace.
            self.rest = Rest::None;
            return Looked::End;
        }
        let key = object.key();
        let is_in = |tree: &Option<Tree<Raw>>| {
            tree.as_ref().is_some_and(|tree| tree.get(key.into()).is_some())
        };
        if self.others.iter().all(is_in) && self.query.matches(&object) {
            Looked::Match(object)
        } else {
            Looked::Other
        }
    }

    /// The objects as a stream. One poll looks at a bounded number of objects.
    pub fn stream(self) -> impl Stream<Item = Object<K>> + Send + use<K> {
        stream::unfold(self, |mut selected| async move {
            consume_budget().await;
            let mut slices = Slices::default();
            loop {
                match selected.look() {
                    Looked::Match(object) => return Some((object, selected)),
                    Looked::Other => slices.next().await,
                    Looked::End => return None,
                }
            }
        })
    }
}

impl<K: Resource + DeserializeOwned + Send + Sync + 'static> Selected<K> {
    /// The objects decoded, one at a time.
    ///
    /// # Errors
    /// An item is an error if the object does not fit `K`; the iteration goes on after it.
    pub fn decoded(self) -> impl Iterator<Item = Result<Arc<K>, DecodeError>> {
        self.map(|object| object.get())
    }
}

impl<K: Resource + 'static> Iterator for Selected<K> {
    type Item = Object<K>;

    fn next(&mut self) -> Option<Object<K>> {
        loop {
            match self.look() {
                Looked::Match(object) => return Some(object),
                Looked::Other => {}
                Looked::End => return None,
            }
        }
    }
}

impl<K: Resource + 'static> Snapshot<K> {
    /// The objects that match a query, by key, not decoded.
    ///
    /// # Errors
    /// If there is no such index, or the query compares fields and the cache holds decoded values.
    pub fn select(&self, query: &Query) -> Result<Selected<K>, SelectError> {
        let first = self.cursor("");
        if query.reads_json() && first.peek().is_some_and(Object::holds_value) {
            return Err(SelectError::Decoded);
        }
        let mut trees = Vec::new();
        let mut query = query.clone();
        for (index, value) in std::mem::take(&mut query.indices) {
            if index != NAMESPACE_INDEX {
                trees.push(self.posting(&index, &value)?.cloned());
            } else if query.namespace.get_or_insert_with(|| value.as_str().into())[..] != *value {
                // Two namespaces: nothing matches.
                trees.push(None);
            }
        }
        if trees.is_empty() {
            trees.extend(self.labelled(&query.labels).map(Option::<&_>::cloned));
        }
        let mut trees = trees.into_iter();
        let rest = match trees.next() {
            Some(Some(tree)) => Rest::Index(match query.namespace.as_deref() {
                Some(namespace) => Cursor::from(&tree, KeyRef { namespace, name: "" }),
                None => Cursor::first(&tree),
            }),
            Some(None) => Rest::None,
            None => Rest::All(match &query.namespace {
                Some(namespace) => self.cursor(namespace),
                None => first,
            }),
        };
        Ok(Selected { query, rest, others: trees.collect(), of: PhantomData })
    }
}

impl<K: Resource + 'static> Lister<K> {
    /// The objects that match a query now, by key, not decoded: see [`Selected`].
    ///
    /// # Errors
    /// If there is no such index, or the query compares fields and the cache holds decoded values.
    pub fn select(&self, query: &Query) -> Result<Selected<K>, SelectError> {
        self.snapshot().select(query)
    }
}
