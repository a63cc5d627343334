//! Which objects a list or watch is about: a range of keys, and selectors.
use crate::cache::Item;
use crate::catalog::Resource;
use crate::request::{ListOptions, Target};
use crate::write::key;
use bytes::Bytes;
use setpoint_object::field::quote;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;
use setpoint_object::{ApiError, skim};
use setpoint_store::prefix_end;
use std::borrow::Cow;
use std::sync::Arc;

/// Which objects a list or watch is about.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) resource: Arc<Resource>,
    /// What every key starts with: the resource's prefix, and the namespace's.
    pub(crate) prefix: Bytes,
    labels: Selector,
    fields: Vec<Term>,
    /// The one key there can be, when the selectors name the object.
    only: Option<Bytes>,
}
#[derive(Debug, Clone)]
struct Term {
    field: Field,
    value: String,
    negated: bool,
}
/// Where the value of a field label is found.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// A member, with the text that stands for an absent one.
    Member(Vec<String>, &'static str),
    /// The first of several members that is not empty.
    First([&'static [&'static str]; 2]),
}

impl Scope {
    /// The scope of a request.
    ///
    /// # Errors
    ///
    /// 400 for a field label that the kind does not have.
    pub(crate) fn new(target: &Target, options: &ListOptions) -> Result<Self, ApiError> {
        let resource = target.resource.clone();
        let namespace = if resource.namespaced { target.namespace.as_str() } else { "" };
        let prefix: Bytes = match namespace {
            "" => resource.storage_prefix.to_string().into(),
            namespace => format!("{}{namespace}/", resource.storage_prefix).into(),
        };
        let terms = options.fields.terms().iter();
        let fields = terms.map(|term| {
            let field = field(&resource, &term.path)?;
            Ok(Term { field, value: term.value.clone(), negated: term.negated })
        });
        let fields = fields.collect::<Result<_, ApiError>>()?;
        let only = only_key(&resource, namespace, &options.fields);
        Ok(Self { resource, prefix, labels: options.labels.clone(), fields, only })
    }
    /// Whether it takes every object under its prefix.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_empty()
    }
    /// The keys from the first to the first beyond.
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
    /// Whether an object under its prefix is selected.
    pub(crate) fn selects(&self, item: &Item) -> Result<bool, ApiError> {
        if !self.labels.matches(|key| item.label(key)) {
            return Ok(false);
        }
        if self.fields.is_empty() {
            return Ok(true);
        }
        let (namespace, name) = self.names(&item.key);
        // Fields are those of the version that is served; names need no look at the object.
        let mut object = None;
        for term in &self.fields {
            let value = match &term.field {
                Field::Name => Cow::Borrowed(name),
                Field::Namespace => Cow::Borrowed(namespace),
                field => {
                    if object.is_none() {
                        object = Some(item.object(&self.resource)?);
                    }
                    let bytes = object.as_deref().unwrap_or_default();
                    Cow::Owned(field.value(bytes).into_owned())
                }
            };
            if (value == term.value) == term.negated {
                return Ok(false);
            }
        }
        Ok(true)
    }
    /// Namespace and name in a key.
    fn names<'k>(&self, key: &'k [u8]) -> (&'k str, &'k str) {
        let rest = key.get(self.resource.storage_prefix.len()..).unwrap_or_default();
        let rest = std::str::from_utf8(rest).unwrap_or_default();
        if self.resource.namespaced {
            rest.split_once('/').unwrap_or(("", rest))
        } else {
            ("", rest)
        }
    }
}
impl Field {
    fn value<'b>(&self, object: &'b [u8]) -> Cow<'b, str> {
        let scalar = |path: &[&str]| skim::scalar(object, path).filter(|text| !text.is_empty());
        match self {
            Self::Name | Self::Namespace => Cow::Borrowed(""),
            Self::Member(path, absent) => {
                let path: Vec<_> = path.iter().map(String::as_str).collect();
                scalar(&path).unwrap_or(Cow::Borrowed(absent))
            }
            Self::First(paths) => paths.iter().find_map(|path| scalar(path)).unwrap_or_default(),
        }
    }
}

/// The key that a selector for `metadata.name` leaves, where the namespace is known.
fn only_key(resource: &Resource, namespace: &str, fields: &FieldSelector) -> Option<Bytes> {
    let name = fields.requires_name().filter(|name| !name.is_empty() && !name.contains('/'))?;
    if resource.namespaced && namespace.is_empty() {
        return None;
    }
    Some(key(resource, namespace, name))
}

/// Where a field label's value is found.
fn field(resource: &Resource, label: &str) -> Result<Field, ApiError> {
    let kind = &*resource.gvk.kind;
    // These kinds list their labels themselves, and the namespace is not among them.
    let has_namespace = resource.custom
        || !matches!(kind, "Namespace" | "Node" | "CertificateSigningRequest" | "ResourceSlice");
    match label {
        "metadata.name" => return Ok(Field::Name),
        "metadata.namespace" if has_namespace => return Ok(Field::Namespace),
        _ => {}
    }
    let label = if kind == "Pod" && label == "spec.host" { "spec.nodeName" } else { label };
    if !resource.selectable.iter().any(|selectable| **selectable == *label) {
        return Err(ApiError::bad_request(unsupported(resource, label)));
    }
    let member =
        |path: &str, absent| Field::Member(path.split('.').map(str::to_owned).collect(), absent);
    Ok(match (kind, label) {
        _ if resource.custom => member(label, ""),
        ("Pod", "spec.hostNetwork") | ("Node", "spec.unschedulable") => member(label, "false"),
        ("ReplicationController", "status.replicas") => member(label, "0"),
        ("Job", "status.successful") => member("status.succeeded", "0"),
        ("Event", "source") => Field::First([&["source", "component"], &["reportingComponent"]]),
        _ => member(label, ""),
    })
}
fn unsupported(resource: &Resource, label: &str) -> String {
    let gvk = &resource.gvk;
    let lists_labels = resource.custom || !resource.selectable.is_empty() || &*gvk.group == "apps";
    match &*gvk.kind {
        "Job" if !resource.custom => {
            format!("field label {} not supported for Job", quote(label))
        }
        "ResourceSlice" if !resource.custom => {
            format!("field label not supported for {gvk}: {label}")
        }
        _ if lists_labels => format!("field label not supported: {label}"),
        _ => format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            quote(label)
        ),
    }
}
