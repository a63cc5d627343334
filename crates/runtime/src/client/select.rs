//! Reads several objects from the cache: by namespace, labels, indices and fields.

use std::sync::Arc;

use kube_core::Resource;
use setpoint_informer::indexer::{Query, Readable, SelectError};
use setpoint_informer::{Cacheable, Object, Snapshot};
use setpoint_object::{field_selector::FieldSelector, label::Selector};

use super::{Api, ClientError, ReadFrom};

/// A query of the cache; from [`Api::select`]. An object must match all criteria (CCH-8).
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::Pod;
/// # fn example(client: &setpoint_runtime::Client) -> Result<(), setpoint_runtime::ClientError> {
/// let pods = client.api::<Pod>().select().namespace("web").index("by-node", "n1").limit(10).all()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is read before `all` or `objects`"]
pub struct Select<K: Resource> {
    api: Api<K>,
    namespace: Option<Arc<str>>,
    labels: Selector,
    /// Index and value.
    indices: Vec<(String, String)>,
    fields: FieldSelector,
    limit: usize,
}

/// Fields of every object, which need no index.
const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

impl<K: Cacheable> Api<K> {
    /// Starts a query of the cache. Without criteria it returns all objects.
    pub fn select(&self) -> Select<K> {
        Select {
            api: self.clone(),
            namespace: None,
            labels: Selector::everything(),
            indices: Vec::new(),
            fields: FieldSelector::everything(),
            limit: usize::MAX,
        }
    }
}

impl<K: Cacheable> Select<K> {
    /// Objects in this namespace.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Objects whose labels match.
    pub fn labels(mut self, selector: Selector) -> Self {
        self.labels = selector;
        self
    }

    /// Objects that this index of the type's informer lists under this value. With several, an
    /// object must match all.
    pub fn index(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.indices.push((name.into(), value.into()));
        self
    }

    /// Objects whose fields match. Each term must be an exact match on `metadata.name`,
    /// `metadata.namespace` or a field with an index of that name, such as `spec.nodeName`.
    pub fn fields(mut self, selector: FieldSelector) -> Self {
        self.fields = selector;
        self
    }

    /// At most this many, over all namespaces. Which of the matching objects is unspecified.
    pub fn limit(mut self, n_objects: usize) -> Self {
        self.limit = n_objects;
        self
    }

    /// The objects, sorted by key.
    ///
    /// # Errors
    ///
    /// The type or the namespace is not cached or has not synced, there is no such index, or an
    /// object does not fit the type. The error names that object. Nothing is returned then, because
    /// most callers must not take an object for deleted that they cannot decode:
    /// [`readable`](Self::readable) is for those that can act on the others.
    pub fn all(&self) -> Result<Vec<Arc<K>>, ClientError> {
        Ok(self.objects()?.iter().map(Object::get).collect::<Result<_, _>>()?)
    }

    /// The objects that fit the type, sorted by key, and the errors of the others. For callers that
    /// must not stop for one malformed object, as maps of events and deletions of what is not
    /// desired any more do not. An index misses objects that do not fit the type of its function:
    /// [`SourceStatus::unindexed`](crate::source::SourceStatus::unindexed) counts them.
    ///
    /// # Errors
    ///
    /// As [`objects`](Self::objects).
    pub fn readable(&self) -> Result<Readable<K>, ClientError> {
        Ok(self.objects()?.into_iter().collect())
    }

    /// The objects, sorted by key, undecoded.
    ///
    /// # Errors
    ///
    /// The type or the namespace is not cached or has not synced, or there is no such index.
    pub fn objects(&self) -> Result<Vec<Object<K>>, ClientError> {
        let wanted = self.wanted()?;
        let found = match wanted.namespace {
            _ if wanted.is_contradiction => {
                self.api.lister()?;
                Vec::new()
            }
            Some(namespace) => {
                let lister = self.api.lister_of(namespace)?;
                self.find(&wanted, &lister.snapshot(), self.limit)?
            }
            None => {
                let lister = self.api.lister()?;
                let mut found = Vec::new();
                for part in lister.listers() {
                    let limit = self.limit.saturating_sub(found.len());
                    found.extend(self.find(&wanted, &part.snapshot(), limit)?);
                }
                lister.in_order(found)
            }
        };
        self.api.note_list(self.namespace.as_deref(), ReadFrom::Cache);
        Ok(found)
    }

    /// The criteria, with the terms of the field selector resolved.
    fn wanted(&self) -> Result<Wanted<'_>, ClientError> {
        let indices = self.indices.iter().map(|(name, value)| (&**name, &**value)).collect();
        let namespace = self.namespace.as_deref();
        let mut wanted = Wanted { namespace, name: None, indices, is_contradiction: false };
        for term in self.fields.terms() {
            let value = &*term.value;
            match &*term.path {
                _ if term.negated => return Err(self.not_indexed(&format!("{}!=", term.path))),
                NAME => {
                    wanted.is_contradiction |= wanted.name.is_some_and(|name| name != value);
                    wanted.name = Some(value);
                }
                NAMESPACE => {
                    let before = wanted.namespace.replace(value);
                    wanted.is_contradiction |= before.is_some_and(|namespace| namespace != value);
                }
                field => wanted.indices.push((field, value)),
            }
        }
        Ok(wanted)
    }

    /// The matching objects of one informer, up to the limit.
    fn find(
        &self,
        wanted: &Wanted<'_>,
        snapshot: &Snapshot<K>,
        limit: usize,
    ) -> Result<Vec<Object<K>>, ClientError> {
        let mut query = Query::new().labels(self.labels.clone());
        if let Some(namespace) = wanted.namespace {
            query = query.namespace(namespace);
        }
        if let Some(name) = wanted.name {
            query = query.fields(FieldSelector::name(name));
        }
        for (index, value) in &wanted.indices {
            query = query.index(*index, *value);
        }
        let found = snapshot.select(&query).map_err(|error| match error {
            SelectError::UnknownIndex(unknown) => self.not_indexed(&unknown.0),
            error => self.not_indexed(&error.to_string()),
        })?;
        Ok(found.take(limit).collect())
    }

    fn not_indexed(&self, field: &str) -> ClientError {
        ClientError::NotIndexed { resource: self.api.resource.clone(), field: field.to_owned() }
    }
}

/// Resolved criteria.
struct Wanted<'a> {
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    /// Index and value.
    indices: Vec<(&'a str, &'a str)>,
    /// Two different names or namespaces: no object matches.
    is_contradiction: bool,
}
