//! The objects that select by labels, found without a look at each.
//!
//! # Theory
//!
//! An object is in the index [`BY_LABEL`] under the first label that its selector requires to have
//! a value, or, if there is none, under its namespace alone. So what may select an object with some
//! labels is under one of these labels, or under the namespace. Only that is decoded and matched.

use crate::readable::readable;
use kube_core::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use setpoint_informer::{Cacheable, Event, Object};
use setpoint_object::label::Selector;
use setpoint_runtime::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The name of the index. Its values come from [`required`] and [`required_by`].
pub(crate) const BY_LABEL: &str = "requiredLabel";

/// The value of the index for a map of labels, as the selector of a Service.
pub(crate) fn required<'a>(
    namespace: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<String> {
    vec![value(namespace, labels.into_iter().next())]
}

/// The same for a LabelSelector.
pub(crate) fn required_by(namespace: &str, selector: &Value) -> Vec<String> {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    required(namespace, labels.filter_map(|(key, value)| Some((&**key, value.as_str()?))))
}

/// The same for a parsed selector: one value, as it requires one label.
pub(crate) fn required_in(namespace: &str, selector: &Selector) -> String {
    value(namespace, selector.required().next())
}

fn value(namespace: &str, label: Option<(&str, &str)>) -> String {
    match label {
        Some((key, value)) => format!("{namespace}/{key}={value}"),
        None => format!("{namespace}/"),
    }
}

/// The labels of an object, before and after a change.
pub(crate) struct Labels {
    namespace: String,
    states: Vec<BTreeMap<String, String>>,
}

impl Labels {
    /// Of an object's present state.
    pub(crate) fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.as_deref(), meta.labels.as_ref())
    }

    /// Labels of an object in a namespace.
    pub(crate) fn new(namespace: Option<&str>, labels: Option<&BTreeMap<String, String>>) -> Self {
        Self {
            namespace: namespace.unwrap_or_default().to_owned(),
            states: vec![labels.cloned().unwrap_or_default()],
        }
    }

    /// Of both states of a change. Decodes nothing.
    pub(crate) fn of_event<K: Cacheable>(event: &Event<K>) -> Self {
        let old = match event {
            Event::Updated { old, .. } => Some(old),
            _ => None,
        };
        let labels = |object: &Object<K>| {
            let labels = object.skim().labels.into_iter();
            labels.map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
        };
        let mut states: Vec<_> = event.object().into_iter().chain(old).map(labels).collect();
        states.dedup();
        Self { namespace: event.key().namespace.to_string(), states }
    }

    /// The objects of the namespace that may select one of the states.
    pub(crate) fn candidates<K>(&self, client: &Client) -> Vec<Arc<K>>
    where
        K: Cacheable + Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let of = |value| readable(&client.api::<K>().select().index(BY_LABEL, value));
        self.values().into_iter().flat_map(of).collect()
    }

    /// The values under which everything is that may select one of the states.
    pub(crate) fn values(&self) -> BTreeSet<String> {
        let labels = self.states.iter().flatten().map(|(key, value)| (&**key, &**value));
        labels.map(Some).chain([None]).map(|label| value(&self.namespace, label)).collect()
    }

    /// Whether a selector matches one of the states.
    pub(crate) fn are_selected_by(&self, selector: &Selector) -> bool {
        self.states
            .iter()
            .any(|labels| selector.matches(|label| labels.get(label).map(String::as_str)))
    }

    /// Whether one of the states has all of these labels.
    pub(crate) fn have(&self, all: &BTreeMap<String, String>) -> bool {
        let has = |labels: &BTreeMap<String, String>| {
            all.len() <= labels.len()
                && all.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        self.states.iter().any(has)
    }
}
