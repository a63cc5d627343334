//! Revisions of a Deployment: the hash of its template, and annotations.

use super::{Deployment, ReplicaSet};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The label of the template's hash.
pub(crate) const HASH_LABEL: &str = "pod-template-hash";
/// The number of a revision.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Earlier numbers of a revision, separated by commas.
pub(crate) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The Deployment's number of pods at the last scaling.
pub(crate) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The same with surge.
pub(crate) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations that are not copied to ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];
/// The longest history, in bytes.
const HISTORY_BYTES_MAX: usize = 2000;
/// The alphabet of hashes: no vowels, and no digits that look like letters.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A hash of a JSON value that does not depend on the order of members, with `salt`: FNV-1a, as a
/// label-safe text.
pub(crate) fn hash(value: &Value, salt: Option<i32>) -> String {
    let mut hash = Fnv(0x811c_9dc5);
    hash.value(value);
    if let Some(salt) = salt {
        hash.bytes(&i64::from(salt).to_le_bytes());
    }
    hash.text()
}

/// A hash of texts, one behind the other: FNV-1a, as a label-safe text.
pub(crate) fn hash_of_texts(texts: &[&str]) -> String {
    let mut hash = Fnv(0x811c_9dc5);
    texts.iter().for_each(|text| hash.bytes(text.as_bytes()));
    hash.text()
}

struct Fnv(u32);

impl Fnv {
    fn text(&self) -> String {
        let letter = |digit: u8| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]);
        self.0.to_string().bytes().map(letter).collect()
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                let sorted: BTreeMap<&String, &Value> =
                    members.iter().filter(|(_, value)| !value.is_null()).collect();
                self.bytes(b"{");
                for (key, value) in sorted {
                    self.bytes(key.as_bytes());
                    self.bytes(b":");
                    self.value(value);
                }
                self.bytes(b"}");
            }
            Value::Array(items) => {
                self.bytes(b"[");
                for item in items {
                    self.value(item);
                    self.bytes(b",");
                }
                self.bytes(b"]");
            }
            scalar => self.bytes(scalar.to_string().as_bytes()),
        }
    }
}

/// A template without the label of its hash and without nulls, to compare.
pub(crate) fn comparable(template: &Value) -> Value {
    let mut template = without_nulls(template);
    // A revision of somebody else may have anything as its template.
    if let Some(Value::Object(labels)) = template.pointer_mut("/metadata/labels") {
        labels.remove(HASH_LABEL);
    }
    template
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}

/// An annotation as a number; `None` if it is absent or no number.
pub(crate) fn number(set: &ReplicaSet, annotation: &str) -> Option<i64> {
    set.metadata.annotations.as_ref()?.get(annotation)?.parse().ok()
}

/// The annotations of the new ReplicaSet that differ from those it has: what is copied from the
/// Deployment, its revision, and its earlier revisions.
pub(crate) fn annotations(
    deployment: &Deployment,
    existing: &BTreeMap<String, String>,
    revision: i64,
) -> Map<String, Value> {
    let mut changed = Map::new();
    for (key, value) in deployment.metadata.annotations.iter().flatten() {
        if !NOT_COPIED.contains(&key.as_str()) && existing.get(key) != Some(value) {
            changed.insert(key.clone(), Value::from(value.as_str()));
        }
    }
    let before = existing.get(REVISION).filter(|text| !text.is_empty());
    let number = match before.map(|text| text.parse::<i64>()) {
        // The text of another writer is not changed.
        Some(Err(_)) => return changed,
        Some(Ok(number)) => number,
        None => 0,
    };
    if number < revision {
        changed.insert(REVISION.to_owned(), Value::from(revision.to_string()));
        if let Some(before) = before {
            let history = existing.get(REVISION_HISTORY).map_or("", String::as_str);
            let history = longer(history, before);
            changed.insert(REVISION_HISTORY.to_owned(), Value::from(history));
        }
    }
    changed
}

/// A history with one more revision; the oldest ones are dropped when it is too long.
fn longer(history: &str, revision: &str) -> String {
    let mut history = match history {
        "" => revision.to_owned(),
        history => format!("{history},{revision}"),
    };
    while history.len() > HISTORY_BYTES_MAX {
        match history.split_once(',') {
            Some((_, rest)) => history = rest.to_owned(),
            None => break,
        }
    }
    history
}
