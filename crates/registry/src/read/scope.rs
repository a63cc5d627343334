//! The objects that a list or watch covers: a range of keys, and selectors.
use crate::cache::{Field, Interest, Item, SKIM_COST, Term};
use crate::catalog::Resource;
use crate::request::ListOptions;
use crate::routed::Target;
use crate::shard_selector::{ShardField, ShardSelector};
use bytes::Bytes;
use setpoint_object::ApiError;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::keys;
use setpoint_object::label::{Matcher, Operator, Selector};
use setpoint_object::skim;
use setpoint_store::prefix_end;
use std::borrow::Cow;
use std::sync::Arc;

/// Cost of a look at an object, in nanoseconds.
const LOOK_COST: usize = 500;
/// Cost of one byte of an object that is converted to look up a value, in nanoseconds.
const CONVERSION_COST: usize = 20;

/// The objects that a list or watch covers.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) resource: Arc<Resource>,
    /// The common prefix of the keys: the resource's prefix and the namespace.
    pub(crate) prefix: Bytes,
    labels: Selector,
    matcher: Matcher,
    fields: Vec<FieldCondition>,
    shard: Option<ShardSelector>,
    /// The only possible key, if the selectors name the object.
    only: Option<Bytes>,
}
/// All terms of one field, so that its value is read once.
#[derive(Debug, Clone)]
struct FieldCondition {
    label: FieldLabel,
    /// The values that it must have, sorted and unique: with two, nothing is selected.
    wanted: Vec<String>,
    /// The values that it must not have, sorted.
    unwanted: Vec<String>,
}
impl FieldCondition {
    fn holds(&self, value: &str) -> bool {
        self.wanted.iter().all(|wanted| wanted == value)
            && self.unwanted.binary_search_by(|unwanted| (**unwanted).cmp(value)).is_err()
    }
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
        let fields = field_conditions(&resource, &options.fields)?;
        let only = only_key(&resource, namespace, &options.fields);
        let (labels, shard) = (options.labels.clone(), options.shard.clone());
        let matcher = Matcher::from(&labels);
        Ok(Self { resource, prefix, labels, matcher, fields, shard, only })
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
        item.converts_slowly(&self.resource)
            || item.is_long() && self.n_reads() > 0
            || !self.matcher.is_everything() && item.has_long_labels()
    }
    /// The time that [`Scope::selects`] may take, in nanoseconds by measurement. The first call for
    /// an object finds its labels.
    pub(crate) fn look_cost(&self, item: &Item) -> usize {
        let byte = || match item.is_shown_converted(&self.resource) {
            true => CONVERSION_COST,
            false => SKIM_COST,
        };
        let reads = match self.n_reads() {
            0 => 0,
            n_reads => n_reads * item.value.len() * byte(),
        };
        let labels = match self.matcher.is_everything() {
            true => 0,
            false => item.labels_cost(),
        };
        LOOK_COST + reads + labels
    }
    /// How many values are looked up in each object.
    fn n_reads(&self) -> usize {
        let by_uid = self.shard.as_ref().is_some_and(|s| matches!(s.field(), ShardField::Uid));
        let of_object = |field: &&FieldCondition| matches!(field.label, FieldLabel::Of(_));
        usize::from(by_uid) + self.fields.iter().filter(of_object).count()
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
        if !self.matcher.is_everything() && !self.matcher.matches(&item.labels()) {
            return Ok(false);
        }
        if self.fields.is_empty() {
            return Ok(true);
        }
        let (namespace, name) = self.resource.names(&item.key);
        for condition in &self.fields {
            // Reads fields in the served version. Names come from the key, not from the object.
            let value = match &condition.label {
                FieldLabel::Name => Cow::Borrowed(name),
                FieldLabel::Namespace => Cow::Borrowed(namespace),
                FieldLabel::Of(field) => field.value(&self.resource, item)?,
            };
            if !condition.holds(&value) {
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
        for FieldCondition { label, wanted, .. } in &self.fields {
            // Another value selects nothing.
            let Some(value) = wanted.first() else { continue };
            let value = Box::from(value.as_str());
            match label {
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

/// The terms of a selector by field.
fn field_conditions(
    resource: &Resource,
    selector: &FieldSelector,
) -> Result<Vec<FieldCondition>, ApiError> {
    let mut conditions: Vec<FieldCondition> = Vec::new();
    for term in selector.terms() {
        let label = field_label(resource, &term.path)?;
        // A resource has few fields.
        let known = conditions.iter().position(|condition| condition.label == label);
        let at = known.unwrap_or_else(|| {
            conditions.push(FieldCondition { label, wanted: Vec::new(), unwanted: Vec::new() });
            conditions.len() - 1
        });
        if let Some(FieldCondition { wanted, unwanted, .. }) = conditions.get_mut(at) {
            let values = if term.negated { unwanted } else { wanted };
            values.push(term.value.clone());
        }
    }
    for FieldCondition { wanted, unwanted, .. } in &mut conditions {
        wanted.sort_unstable();
        wanted.dedup();
        unwanted.sort_unstable();
    }
    Ok(conditions)
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
