//! One index: objects by value. A stored object with its values.
use super::tree::{HasKey, KeyRef, Tree};
use super::{LABEL_INDEX, NAMESPACE_INDEX};
use crate::failure::Failures;
use crate::key::Key;
use crate::object::{AnyValue, DecodeError, Object, Raw};
use kube_core::Resource;
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::sync::Arc;

/// Returns the values of an object in an index: zero or more (IDX-2).
#[derive(Clone)]
pub(crate) struct IndexFn {
    call: Arc<Call>,
    is_by_labels: bool,
}

type Call = dyn Fn(&Raw, &mut Looked) -> Result<Vec<String>, NoValues> + Send + Sync;

/// Why an index function returned no values.
pub(crate) enum NoValues {
    /// The object must not be stored.
    Refused(String),
    /// The object does not fit the function's type.
    Undecodable(DecodeError),
}

impl IndexFn {
    pub(crate) fn new(
        call: impl Fn(&Raw, &mut Looked) -> Result<Vec<String>, NoValues> + Send + Sync + 'static,
    ) -> Self {
        Self { call: Arc::new(call), is_by_labels: false }
    }

    /// The function of the index by labels. Decodes nothing.
    pub(crate) fn by_labels<K: Resource + 'static>() -> Self {
        let call = |object: &Raw, _: &mut Looked| Ok(object.cast::<K>().map_labels(label_value));
        Self { is_by_labels: true, ..Self::new(call) }
    }

    /// Whether it may have a name: those of the cache's own indexes are theirs.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        name != NAMESPACE_INDEX && (name == LABEL_INDEX) == self.is_by_labels
    }
}

/// An index function over objects of a type.
pub(crate) type ObjectIndexFn<K> =
    Arc<dyn Fn(&Object<K>) -> Result<Vec<String>, String> + Send + Sync>;

/// The value of a label in the index by labels. Keys have no `=`.
pub(super) fn label_value(key: &str, value: &str) -> String {
    format!("{key}={value}")
}

/// What the index functions of one object have decoded: a type is decoded once, however many
/// indexes it has. The values are not kept: a written object may never be read.
#[derive(Default)]
pub(crate) struct Looked(Vec<AnyValue>);

impl Looked {
    /// The object as a `K`.
    pub(crate) fn get<K>(&mut self, object: &Raw) -> Result<Arc<K>, DecodeError>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        let known = self.0.iter().find(|value| (***value).is::<K>());
        if let Some(Ok(known)) = known.map(|value| value.clone().downcast()) {
            return Ok(known);
        }
        let value = object.cast::<K>().look()?;
        self.0.push(value.clone());
        Ok(value)
    }
}

/// An index function failed, so the object was not stored (IDX-5).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("index {key} by {index:?}: {reason}")]
#[non_exhaustive]
pub struct IndexError {
    /// The index.
    pub index: Arc<str>,
    /// The object.
    pub key: Key,
    /// The error of the function.
    pub reason: String,
}

/// The function of an index. It is the user's code and is called without any lock.
#[derive(Clone)]
pub(crate) struct Function {
    pub(super) name: Arc<str>,
    function: IndexFn,
    failures: Failures,
}

impl Function {
    pub(super) fn new(name: Arc<str>, function: IndexFn, failures: Failures) -> Self {
        Self { name, function, failures }
    }

    /// Calls the function. Returns its values sorted and without duplicates; no values if it
    /// panics, or if the object does not fit its type.
    pub(super) fn values(
        &self,
        object: &Raw,
        looked: &mut Looked,
    ) -> Result<Box<[Arc<str>]>, IndexError> {
        let what = format_args!("the function of the index {:?}", self.name);
        let values =
            self.failures.catch(what, object.key(), || (self.function.call)(object, looked));
        let mut values = match values {
            Some(Ok(values)) => values,
            Some(Err(NoValues::Refused(reason))) => {
                let (index, key) = (self.name.clone(), object.key().clone());
                return Err(IndexError { index, key, reason });
            }
            Some(Err(NoValues::Undecodable(error))) => {
                self.failures.unindexed(&self.name, error);
                Vec::new()
            }
            None => Vec::new(),
        };
        values.sort_unstable();
        values.dedup();
        Ok(values.into_iter().map(Arc::from).collect())
    }
}

/// The values of an object in each index, sorted; in the order in which the indexes were added.
pub(crate) type Values = Vec<Box<[Arc<str>]>>;

/// The functions of all indexes, in their order.
pub(crate) type Functions = Arc<[Function]>;

/// The index values of one object, or the error of a function.
pub(crate) type IndexResult = Result<Values, IndexError>;

/// Calls all functions with an object.
pub(crate) fn values_of<'a>(
    functions: impl IntoIterator<Item = &'a Function>,
    object: &Raw,
) -> IndexResult {
    let mut looked = Looked::default();
    functions.into_iter().map(|function| function.values(object, &mut looked)).collect()
}

/// The objects of one index. Each value has a tree of its own, so that a list by value reads no
/// other objects.
#[derive(Clone)]
pub(super) struct Index {
    pub(super) function: Function,
    pub(super) postings: Tree<Posting>,
}

/// The objects of one value.
#[derive(Clone)]
pub(super) struct Posting {
    /// The value, as the name of a key without a namespace.
    value: Key,
    pub(super) objects: Tree<Raw>,
}

impl HasKey for Posting {
    fn key(&self) -> &Key {
        &self.value
    }
}

fn value_ref(value: &str) -> KeyRef<'_> {
    KeyRef { namespace: "", name: value }
}

impl Index {
    /// An index without objects.
    pub(super) fn new(function: Function) -> Self {
        Self { function, postings: Tree::default() }
    }

    /// Moves an object from the old values to the new ones. A new value shares the text of an
    /// existing value.
    pub(super) fn file(&mut self, object: &Raw, old: &[Arc<str>], new: &mut [Arc<str>]) {
        for gone in old.iter().filter(|value| new.binary_search(value).is_err()) {
            self.remove(object.key(), gone);
        }
        for value in new {
            self.put(object, value);
        }
    }

    /// Adds an object to a value, or replaces it there.
    pub(super) fn put(&mut self, object: &Raw, value: &mut Arc<str>) {
        if let Some(posting) = self.postings.get_mut(value_ref(value)) {
            *value = posting.value.name.clone();
            posting.objects.insert(object.clone());
            return;
        }
        let mut objects = Tree::default();
        objects.insert(object.clone());
        self.postings.insert(Posting { value: Key::cluster(value.clone()), objects });
    }

    /// Removes an object from a value.
    pub(super) fn remove(&mut self, key: &Key, value: &str) {
        if let Some(posting) = self.postings.get_mut(value_ref(value)) {
            posting.objects.remove(key.into());
            // IDX-7: removes a value without objects, so that unused values do not accumulate.
            if posting.objects.is_empty() {
                self.postings.remove(value_ref(value));
            }
        }
    }

    pub(super) fn tree(&self, value: &str) -> Option<&Tree<Raw>> {
        self.postings.get(value_ref(value)).map(|posting| &posting.objects)
    }

    /// The objects of each value from one on, by value.
    pub(super) fn range<'a>(
        &'a self,
        values: Range<&'a str>,
    ) -> impl Iterator<Item = &'a Tree<Raw>> {
        let from = self.postings.from(value_ref(values.start));
        let within = from.take_while(move |posting| *posting.value.name < *values.end);
        within.map(|posting| &posting.objects)
    }

    pub(super) fn distinct(&self) -> impl Iterator<Item = &Arc<str>> {
        self.postings.iter().map(|posting| &posting.value.name)
    }
}

/// An object, with its values in the indexes.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) object: Raw,
    /// One element per index; `None` if there is no value in any.
    values: Option<Arc<Values>>,
}

impl Held {
    pub(super) fn new(object: Raw, values: Values) -> Self {
        let has_values = values.iter().any(|values| !values.is_empty());
        Self { object, values: has_values.then(|| Arc::new(values)) }
    }

    /// The same object with the values of one more index.
    pub(super) fn with(&self, n_before: usize, values: Box<[Arc<str>]>) -> Self {
        let mut all: Values = (0..n_before).map(|n| self.values(n).into()).collect();
        all.push(values);
        Self::new(self.object.clone(), all)
    }

    /// The same version in another form.
    pub(super) fn exchanged(&self, object: Raw) -> Self {
        Self { object, values: self.values.clone() }
    }

    /// The values in one index.
    pub(super) fn values(&self, index: usize) -> &[Arc<str>] {
        self.values.as_ref().and_then(|values| values.get(index)).map_or(&[], |values| values)
    }
}

impl HasKey for Held {
    fn key(&self) -> &Key {
        self.object.key()
    }
}

impl HasKey for Raw {
    fn key(&self) -> &Key {
        self.key()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Untyped;
    use crate::policy::CachePolicy;
    use crate::record::Record;
    use bytes::Bytes;
    use serde::de::IgnoredAny;
    use serde::{Deserialize, Deserializer};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    static N_DECODED: AtomicUsize = AtomicUsize::new(0);

    /// A type that counts how often it is decoded.
    struct Counted;

    impl<'de> Deserialize<'de> for Counted {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            N_DECODED.fetch_add(1, Relaxed);
            IgnoredAny::deserialize(deserializer).map(|_| Self)
        }
    }

    #[test]
    fn indexes_of_one_type_decode_an_object_once() {
        let record = Record {
            key: Key::new("default", "a"),
            uid: "u".into(),
            resource_version: "1".into(),
            bytes: Bytes::from_static(br#"{"metadata":{"name":"a"}}"#),
        };
        let object = Object::<Counted>::new(record, CachePolicy::Compact).cast::<Untyped>();
        let functions = ["x", "y", "z"].map(|name| {
            let function = IndexFn::new(move |object, looked| {
                let decoded = looked.get::<Counted>(object);
                decoded.map(|_| vec![name.to_owned()]).map_err(NoValues::Undecodable)
            });
            Function::new(name.into(), function, Failures::default())
        });
        let values = values_of(&functions, &object).unwrap();
        assert_eq!(values, ["x", "y", "z"].map(|name| Box::from([Arc::from(name)])));
        assert_eq!(N_DECODED.load(Relaxed), 1);
    }
}
