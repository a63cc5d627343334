//! The other versions of a kind, and a write's objects in them.
//!
//! Managers own fields of the version that they wrote in. A write compares what they own in objects
//! of that version, and an apply removes fields there (spec: patch §5.6). Where a webhook converts,
//! ownership is tracked without it first: conversions that are missing are collected, awaited
//! together, and the step is repeated with them.
use super::Write;
use crate::catalog::Resource;
use crate::convert::{to_served, to_version};
use crate::stored::tree;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::{ApiError, GroupVersion};
use setpoint_schema::apply::{self, Owners, Versions};
use setpoint_schema::encode::to_bytes;
use setpoint_schema::node::TypeSchema;
use std::sync::Arc;

/// How often a step is repeated with more conversions, per version of the kind. An apply needs at
/// most four after each other for each: of the merged and of the pruned object there and back.
const ROUNDS_PER_VERSION: usize = 4;

/// The bytes of all objects that one write converts, at most: as many as ten of the largest.
const BYTES_MAX: usize = 32 << 20;

/// The other versions of a kind.
#[derive(Debug)]
pub(super) struct OtherVersions<'a> {
    own: &'a Resource,
    others: Vec<Arc<Resource>>,
    conversions: &'a Conversions,
}

impl OtherVersions<'_> {
    pub(super) fn of(&self, api_version: &str) -> Option<&Resource> {
        let mut others = self.others.iter().map(|row| &**row);
        others.find(|row| row.group_version().to_string() == api_version)
    }
}

impl Versions for OtherVersions<'_> {
    fn schema(&self, api_version: &str) -> Option<&TypeSchema> {
        self.of(api_version).map(|row| &*row.schema)
    }
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ApiError> {
        let row = self.of(api_version).unwrap_or(self.own);
        match is_converted_elsewhere(row) {
            true => self.conversions.find(object, api_version),
            false if row.has_go_type() => to_served(row, object.clone()),
            false => to_version(row, object.clone()),
        }
    }
}

/// Whether a conversion to a row's version waits for a webhook.
fn is_converted_elsewhere(row: &Resource) -> bool {
    row.stored.as_ref().is_some_and(|stored| stored.webhook.is_some())
}

/// An encoded object without managedFields, and a version.
#[derive(Debug, Clone, PartialEq)]
struct Asked {
    object: Bytes,
    api_version: String,
}

/// Conversions of the objects of one write.
#[derive(Debug, Default)]
pub(super) struct Conversions(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    known: Vec<(Asked, Result<Bytes, ApiError>)>,
    missing: Vec<Asked>,
    /// Of all objects that were asked for.
    n_bytes: usize,
}

impl Conversions {
    /// Drops all of them: the stored object has changed.
    pub(super) fn clear(&self) {
        *self.0.lock() = Answers::default();
    }
    /// A conversion that was awaited. Any other fails, and is one of the missing.
    fn find(&self, object: &Value, api_version: &str) -> Result<Value, ApiError> {
        let asked = Asked {
            object: without(object, &["managedFields"]),
            api_version: api_version.to_owned(),
        };
        let mut answers = self.0.lock();
        if let Some((_, known)) = answers.known.iter().find(|(known, _)| *known == asked) {
            let known = known.clone();
            drop(answers);
            return tree(&known?);
        }
        if !answers.missing.contains(&asked) {
            answers.n_bytes += asked.object.len();
            if answers.n_bytes > BYTES_MAX {
                return Err(ApiError::too_large(BYTES_MAX));
            }
            answers.missing.push(asked);
        }
        Err(ApiError::internal("a conversion that was not awaited"))
    }
    fn is_complete(&self) -> bool {
        self.0.lock().missing.is_empty()
    }
    fn take_missing(&self) -> Vec<Asked> {
        std::mem::take(&mut self.0.lock().missing)
    }
    fn add(&self, known: impl IntoIterator<Item = (Asked, Result<Bytes, ApiError>)>) {
        self.0.lock().known.extend(known);
    }
}

/// An encoded object without members of its metadata.
fn without(object: &Value, members: &[&str]) -> Bytes {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !members.contains(&name.as_str()));
    }
    to_bytes(&object)
}
/// Whether a write seems to change nothing.
fn are_same(old: &Value, new: &Value) -> bool {
    let unowned = ["managedFields", "resourceVersion"];
    without(old, &unowned) == without(new, &unowned)
}

impl Write<'_> {
    /// The other served versions of the kind in its group; `None`: there are none. Entries of
    /// another group (Events) do not conflict, as in Kubernetes.
    pub(super) fn other_versions(&self) -> Option<OtherVersions<'_>> {
        if self.resource.versions.len() < 2 {
            return None;
        }
        let own = &self.resource.gvk;
        let catalog = self.inner.catalog.borrow();
        let others = self.resource.versions.iter().filter_map(|api_version| {
            let GroupVersion { group, version } = GroupVersion::parse(api_version)?;
            let is_other = group == own.group && version != own.version;
            let row = catalog.get(&group, &version, &self.resource.resource)?;
            is_other.then(|| row.clone())
        });
        let others = others.collect();
        Some(OtherVersions { own: self.resource, others, conversions: self.conversions })
    }
    /// Repeats a step until no conversion that it needs is missing.
    pub(super) async fn with_conversions<T>(
        &self,
        mut step: impl FnMut() -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        for _ in 0..=ROUNDS_PER_VERSION * self.resource.versions.len() {
            let n_warnings = self.attributes.n_warnings();
            let done = step();
            if self.conversions.is_complete() {
                return done;
            }
            self.attributes.forget_warnings(n_warnings);
            self.await_missing().await;
        }
        Err(ApiError::internal("the conversions between the versions of an object do not end"))
    }
    /// Awaits what [`Write::own`] or [`Write::own_apart`] will ask for: both objects in the
    /// versions of the entries of the stored one, and of those that the client sent.
    pub(super) async fn convert_for_owners(
        &self,
        (old, owners): (&Value, Option<&Owners<'_>>),
        new: &Value,
    ) {
        if !is_converted_elsewhere(self.resource) || are_same(old, new) {
            return;
        }
        let Some(others) = self.other_versions() else { return };
        let mut versions = apply::versions_of(old, owners);
        versions.extend(apply::versions_of(new, None));
        for api_version in versions.iter().filter(|version| others.of(version).is_some()) {
            for object in [old, new] {
                // A conversion that is missing is noted.
                let _ = others.convert(object, api_version);
            }
        }
        drop(others);
        self.await_missing().await;
    }
    /// Converts what was asked for: one call per version.
    async fn await_missing(&self) {
        let mut missing = self.conversions.take_missing();
        while let Some(api_version) = missing.last().map(|asked| asked.api_version.clone()) {
            let (asked, rest): (Vec<_>, Vec<_>) =
                missing.into_iter().partition(|asked| asked.api_version == api_version);
            missing = rest;
            let objects = asked.iter().map(|asked| asked.object.clone()).collect();
            let answers = match self.converted(&api_version, objects).await {
                Ok(objects) => objects.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); asked.len()],
            };
            self.conversions.add(asked.into_iter().zip(answers));
        }
    }
    /// Objects of another version in a version of the kind, in the same order.
    async fn converted(
        &self,
        api_version: &str,
        objects: Vec<Bytes>,
    ) -> Result<Vec<Bytes>, ApiError> {
        let other = self.other_versions().and_then(|others| {
            others.others.into_iter().find(|row| row.group_version().to_string() == api_version)
        });
        let row = other.as_deref().unwrap_or(self.resource);
        match self.inner.converter_to(row) {
            Some(converter) => converter.show_all(row, objects).await,
            None => {
                objects.iter().map(|object| Ok(to_bytes(&to_served(row, tree(object)?)?))).collect()
            }
        }
    }
}
