//! Reading several objects from the cache: by namespace, labels, indices and fields.

use std::sync::Arc;

use kube_core::Resource;
use setpoint_informer::{Cacheable, Object, Snapshot};
use setpoint_object::{field_selector::FieldSelector, label::Selector};

use super::{Api, ClientError, ReadFrom};

/// Which objects of the cache to read; from [`Api::select`]. All that is asked for must hold
/// (CCH-8).
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

/// The fields of every object, which need no index.
const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

impl<K: Cacheable> Api<K> {
    /// Begins a read of several objects from the cache: of all of them, unless more is said.
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
    /// Only objects of this namespace.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only objects whose labels match.
    pub fn labels(mut self, selector: Selector) -> Self {
        self.labels = selector;
        self
    }

    /// Only objects that this index of the type's informer files under this value. Of several, all
    /// must hold.
    pub fn index(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.indices.push((name.into(), value.into()));
        self
    }

    /// Only objects whose fields match: each term must be an exact match on `metadata.name`,
    /// `metadata.namespace` or a field after which an index is named, such as `spec.nodeName`.
    pub fn fields(mut self, selector: FieldSelector) -> Self {
        self.fields = selector;
        self
    }

    /// No more than so many, over all namespaces. Which ones of those that match is not said.
    pub fn limit(mut self, n_objects: usize) -> Self {
        self.limit = n_objects;
        self
    }

    /// The objects, by key.
    ///
    /// # Errors
    ///
    /// The type or the namespace is not cached or has not synced, there is no such index, or an
    /// object does not fit the type.
    pub fn all(&self) -> Result<Vec<Arc<K>>, ClientError> {
        Ok(self.objects()?.iter().map(Object::get).collect::<Result<_, _>>()?)
    }

    /// The objects, by key, not decoded.
    ///
    /// # Errors
    ///
    /// The type or the namespace is not cached or has not synced, or there is no such index.
    pub fn objects(&self) -> Result<Vec<Object<K>>, ClientError> {
        let asked = self.asked()?;
        let found = match asked.namespace {
            _ if asked.is_contradiction => {
                self.api.lister()?;
                Vec::new()
            }
            Some(namespace) => {
                let lister = self.api.lister_of(namespace)?;
                self.find(&asked, &lister.snapshot(), self.limit)?
            }
            None => {
                let lister = self.api.lister()?;
                let mut found = Vec::new();
                for part in lister.listers() {
                    let limit = self.limit.saturating_sub(found.len());
                    found.extend(self.find(&asked, &part.snapshot(), limit)?);
                }
                lister.in_order(found)
            }
        };
        self.api.note_list(self.namespace.as_deref(), ReadFrom::Cache);
        Ok(found)
    }

    /// What is asked for, with the field terms taken apart.
    fn asked(&self) -> Result<Asked<'_>, ClientError> {
        let indices = self.indices.iter().map(|(name, value)| (&**name, &**value)).collect();
        let namespace = self.namespace.as_deref();
        let mut asked = Asked { namespace, name: None, indices, is_contradiction: false };
        for term in self.fields.terms() {
            let value = &*term.value;
            match &*term.path {
                _ if term.negated => return Err(self.not_indexed(&format!("{}!=", term.path))),
                NAME => {
                    asked.is_contradiction |= asked.name.is_some_and(|name| name != value);
                    asked.name = Some(value);
                }
                NAMESPACE => {
                    let before = asked.namespace.replace(value);
                    asked.is_contradiction |= before.is_some_and(|namespace| namespace != value);
                }
                field => asked.indices.push((field, value)),
            }
        }
        Ok(asked)
    }

    /// What one informer holds of it, no more than so many.
    fn find(
        &self,
        asked: &Asked<'_>,
        snapshot: &Snapshot<K>,
        limit: usize,
    ) -> Result<Vec<Object<K>>, ClientError> {
        let Asked { namespace, name, indices, .. } = asked;
        let matches = |object: &Object<K>| {
            namespace.is_none_or(|namespace| object.namespace() == namespace)
                && name.is_none_or(|name| object.name() == name)
                && has_labels(&self.labels, object)
        };
        let Some((index, value)) = indices.first() else {
            return Ok(match namespace {
                Some(namespace) => take(snapshot.namespace(namespace).filter(matches), limit),
                None => take(snapshot.iter().filter(matches), limit),
            });
        };
        let others = indices[1..]
            .iter()
            .map(|(index, value)| self.keys(snapshot, index, value))
            .collect::<Result<Vec<_>, _>>()?;
        let by_index =
            snapshot.by_index(index, value).map_err(|unknown| self.not_indexed(&unknown.0))?;
        let in_all =
            |object: &Object<K>| others.iter().all(|keys| keys.binary_search(object.key()).is_ok());
        Ok(take(by_index.filter(matches).filter(in_all), limit))
    }

    fn keys(
        &self,
        snapshot: &Snapshot<K>,
        index: &str,
        value: &str,
    ) -> Result<Vec<setpoint_informer::Key>, ClientError> {
        snapshot.index_keys(index, value).map_err(|unknown| self.not_indexed(&unknown.0))
    }

    fn not_indexed(&self, field: &str) -> ClientError {
        ClientError::NotIndexed { resource: self.api.resource.clone(), field: field.to_owned() }
    }
}

/// What is asked for, as an informer is asked.
struct Asked<'a> {
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    /// Index and value.
    indices: Vec<(&'a str, &'a str)>,
    /// Two names or namespaces: no object has both.
    is_contradiction: bool,
}

fn take<K>(objects: impl Iterator<Item = Object<K>>, limit: usize) -> Vec<Object<K>> {
    objects.take(limit).collect()
}

fn has_labels<K: Resource + 'static>(selector: &Selector, object: &Object<K>) -> bool {
    if selector.is_everything() {
        return true;
    }
    let skim = object.skim();
    selector.matches(|key| {
        skim.labels.iter().find(|(label, _)| label == key).map(|(_, value)| &**value)
    })
}
