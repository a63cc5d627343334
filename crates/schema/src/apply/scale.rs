//! Ownership of `spec.replicas` through `/scale` (spec: patch §5.6): the Scale is another kind, so
//! entries are translated on the way in and on the way out.

use super::fieldset::FieldSet;
use super::managed::{Entry, Operation, decode, encode};
use super::path::PathElement;
use super::stored::Stored;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

/// Version of the Scale kind.
const SCALE_VERSION: &str = "autoscaling/v1";

/// Where a parent kind has its replicas, version by version.
#[derive(Debug, Clone, Copy)]
pub struct ScaleMapping<'a> {
    /// `apiVersion` of the parent in the request.
    pub api_version: &'a str,
    /// The kind's `apiVersion`s, served or not, and their replicas path; `None` where the version
    /// has no scale subresource. Entries of other versions are dropped.
    pub paths: &'a [(&'a str, Option<&'a [&'a str]>)],
}

impl<'a> ScaleMapping<'a> {
    fn path(&self, api_version: &str) -> Option<Option<&'a [&'a str]>> {
        self.paths.iter().find(|(version, _)| *version == api_version).map(|(_, path)| *path)
    }

    /// The Scale's `managedFields`: of the parent's entries those that own the replicas.
    pub fn to_scale(&self, parent: Option<&Value>) -> Option<Value> {
        let mut entries = decode(Stored::Tree(parent)).unwrap_or_default();
        entries.retain_mut(|entry| {
            let Some(Some(path)) = self.path(&entry.api_version) else { return false };
            let owns = entry.set.has(&steps(path));
            entry.raw = None;
            entry.set = one(&["spec", "replicas"]);
            entry.api_version = Cow::Borrowed(SCALE_VERSION);
            owns
        });
        encode(entries)
    }

    /// The parent's `managedFields` after a write to its Scale: `scale` are the Scale's entries
    /// now. A manager that lost the replicas there loses them here.
    pub fn to_parent(&self, parent: Option<&Value>, scale: Option<&Value>) -> Option<Value> {
        let mut entries = decode(Stored::Tree(parent)).unwrap_or_default();
        let scale = decode(Stored::Tree(scale)).unwrap_or_default();
        // The Scale's entries by their owner, in the order they stand there.
        let mut by_owner: HashMap<Owner, VecDeque<usize>> = HashMap::new();
        for (at, entry) in scale.iter().enumerate() {
            by_owner.entry(owner(entry)).or_default().push_back(at);
        }
        let mut known = vec![false; scale.len()];
        entries.retain_mut(|entry| {
            let Some(path) = self.path(&entry.api_version) else { return false };
            let Some(path) = path.filter(|path| entry.set.has(&steps(path))) else { return true };
            match by_owner.get_mut(&owner(entry)).and_then(VecDeque::pop_front) {
                Some(at) => known[at] = true,
                None => entry.lose(&one(path)),
            }
            !entry.set.is_empty()
        });
        let Some(Some(path)) = self.path(self.api_version) else { return encode(entries) };
        // The entry that a write in the request's version goes to, by its owner.
        let mut places: HashMap<Owner, usize> = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            if entry.operation == Operation::Apply || entry.api_version == self.api_version {
                places.entry(owner(entry)).or_insert(at);
            }
        }
        let new = scale.iter().zip(known).filter(|(_, known)| !known).map(|(entry, _)| entry);
        for entry in new.filter(|entry| entry.set.has(&steps(&["spec", "replicas"]))) {
            let entry = Entry {
                set: one(path),
                api_version: Cow::Borrowed(self.api_version),
                // As the reference: an entry that is new in the parent has no time.
                time: None,
                raw: None,
                ..entry.clone()
            };
            let at = *places.entry(owner(&entry)).or_insert(entries.len());
            match entries.get_mut(at) {
                Some(twin) => {
                    twin.set = std::mem::take(&mut twin.set).union(entry.set);
                    twin.raw = None;
                }
                None => entries.push(entry),
            }
        }
        encode(entries)
    }
}

/// The identity of an entry without its version: operation, manager, subresource.
type Owner = (Operation, String, String);

fn owner(entry: &Entry<'_>) -> Owner {
    (entry.operation, entry.manager.to_string(), entry.subresource.to_string())
}

fn steps<'p>(path: &[&'p str]) -> Vec<PathElement<'p>> {
    path.iter().map(|name| PathElement::field(*name)).collect()
}

fn one<'p>(path: &[&'p str]) -> FieldSet<'p> {
    let mut set = FieldSet::new();
    set.insert(&steps(path));
    set
}
