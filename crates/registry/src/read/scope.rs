//! The objects that a list or watch covers: a range of keys, and selectors.
use crate::cache::{Field, Interest, Item, Term};
use crate::catalog::Resource;
use crate::request::ListOptions;
use crate::routed::Target;
use crate::shard_selector::{ShardField, ShardSelector};
use bytes::Bytes;
use setpoint_object::ApiError;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::keys;
use setpoint_object::label::{Operator, Selector};
use setpoint_object::skim;
use setpoint_store::prefix_end;
use std::borrow::Cow;
use std::sync::Arc;

/// The objects that a list or watch covers.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) resource: Arc<Resource>,
    /// The common prefix of the keys: the resource's prefix and the namespace.
    pub(crate) prefix: Bytes,
    labels: Selector,
    fields: Vec<FieldTerm>,
    shard: Option<ShardSelector>,
    /// The only possible key, if the selectors name the object.
    only: Option<Bytes>,
}
#[derive(Debug, Clone)]
struct FieldTerm {
    label: FieldLabel,
    value: String,
    negated: bool,
}
/// The field that a label refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldLabel {
    Name,
    Namespace,
    Of(Field),
}

impl Scope {
    /// The scope of a request.
    ///
    /// # Errors
    ///
    /// 400 for a field label that the kind does not have.
    pub(crate) fn new(target: &Target, options: &ListOptions) -> Result<Self, ApiError> {
        let resource = target.resource.clone();
        let namespace = if resource.scope.is_namespaced() { target.namespace.as_str() } else { "" };
        let prefix = keys::collection(&resource.storage_prefix, resource.scope, namespace);
        let terms = options.fields.terms().iter();
        let fields = terms.map(|term| {
            let label = field_label(&resource, &term.path)?;
            Ok(FieldTerm { label, value: term.value.clone(), negated: term.negated })
        });
        let fields = fields.collect::<Result<_, ApiError>>()?;
        let only = only_key(&resource, namespace, &options.fields);
        let (labels, shard) = (options.labels.clone(), options.shard.clone());
        Ok(Self { resource, prefix, labels, fields, shard, only })
    }
    /// Whether it covers every object under its prefix.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_empty() && self.shard.is_none()
    }
    /// The shard that it is restricted to, as the metadata of a list shows it.
    pub(crate) fn shard(&self) -> Option<&Arc<str>> {
        self.shard.as_ref().map(ShardSelector::text)
    }
    /// Whether its prefix is that of the whole resource.
    pub(crate) fn is_whole_resource(&self) -> bool {
        self.only.is_none() && self.prefix.len() == self.resource.storage_prefix.len()
    }
    /// The key range: first key, and first key beyond.
    pub(crate) fn range(&self) -> (Bytes, Bytes) {
        match &self.only {
            Some(key) => (key.clone(), [key, &b"\0"[..]].concat().into()),
            None => (self.prefix.clone(), prefix_end(&self.prefix)),
        }
    }
    /// Whether a key is under its prefix.
    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        match &self.only {
            Some(only) => key == only,
            None => key.starts_with(&self.prefix),
        }
    }
    /// Whether [`Scope::selects`], or the object as it is served, takes long.
    pub(crate) fn looks_slowly(&self, item: &Item) -> bool {
        let reads_object = || {
            let by_uid = self.shard.as_ref().is_some_and(|s| matches!(s.field(), ShardField::Uid));
            by_uid || self.fields.iter().any(|term| matches!(term.label, FieldLabel::Of(_)))
        };
        item.converts_slowly(&self.resource) || item.is_long() && reads_object()
    }
    /// Whether it selects an object under its prefix.
    pub(crate) fn selects(&self, item: &Item) -> Result<bool, ApiError> {
        if let Some(shard) = &self.shard {
            let value = match shard.field() {
                ShardField::Uid => skim::scalar(&item.value, &["metadata", "uid"]),
                ShardField::Namespace => Some(self.resource.names(&item.key).0.into()),
            };
            if !shard.has(&value.unwrap_or_default()) {
                return Ok(false);
            }
        }
        if !self.labels.is_everything() {
            let labels = item.labels();
            let label =
                |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, value)| &**value);
            if !self.labels.matches(label) {
                return Ok(false);
            }
        }
        if self.fields.is_empty() {
            return Ok(true);
        }
        let (namespace, name) = self.resource.names(&item.key);
        for term in &self.fields {
            // Reads fields in the served version. Names come from the key, not from the object.
            let value = match &term.label {
                FieldLabel::Name => Cow::Borrowed(name),
                FieldLabel::Namespace => Cow::Borrowed(namespace),
                FieldLabel::Of(field) => field.value(&self.resource, item)?,
            };
            if (value == term.value) == term.negated {
                return Ok(false);
            }
        }
        Ok(true)
    }
    /// The interest that the cache uses to skip changes outside this scope.
    pub(crate) fn interest(&self) -> Interest {
        let mut interest = Interest { only: self.only.clone(), ..Interest::default() };
        let namespace = self.prefix.get(self.resource.storage_prefix.len()..).unwrap_or_default();
        if let [namespace @ .., b'/'] = namespace {
            interest.namespace = std::str::from_utf8(namespace).ok().map(Box::from);
        }
        for term in self.fields.iter().filter(|term| !term.negated) {
            let value = Box::from(term.value.as_str());
            match &term.label {
                FieldLabel::Name => interest.terms.push(Term::Name(value)),
                // The namespace of a cluster-scoped object is empty.
                FieldLabel::Namespace if value.is_empty() => {}
                FieldLabel::Namespace if interest.namespace.is_some() => {}
                FieldLabel::Namespace => interest.namespace = Some(value),
                FieldLabel::Of(field) => {
                    interest.terms.push(Term::Field(self.resource.clone(), field.clone(), value));
                }
            }
        }
        for requirement in self.labels.requirements() {
            if matches!(requirement.operator, Operator::Equals | Operator::In) {
                let values = requirement.values.iter().map(|value| value.as_str().into());
                let key = requirement.key.as_str().into();
                interest.terms.push(Term::Label(key, values.collect()));
            }
        }
        interest
    }
}
/// The key that a `metadata.name` selector leaves, if the namespace is known.
fn only_key(resource: &Resource, namespace: &str, fields: &FieldSelector) -> Option<Bytes> {
    let name = fields.requires_name().filter(|name| !name.is_empty() && !name.contains('/'))?;
    if resource.scope.is_namespaced() && namespace.is_empty() {
        return None;
    }
    Some(resource.key(namespace, name))
}

/// The field that a label refers to.
fn field_label(resource: &Resource, label: &str) -> Result<FieldLabel, ApiError> {
    match label {
        "metadata.name" => return Ok(FieldLabel::Name),
        "metadata.namespace" if resource.kind.selects_namespace => {
            return Ok(FieldLabel::Namespace);
        }
        _ => {}
    }
    let field = resource.selectable.iter().find(|field| *field.label == *label);
    match field {
        Some(field) => Ok(FieldLabel::Of(Field::from(field))),
        None => Err(ApiError::bad_request((resource.kind.unknown_label)(&resource.gvk, label))),
    }
}
