//! The members of a partial object.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::Partial;

/// The members that were set of a partial object, by their names on the wire.
///
/// The first error is recorded, and returned by [`into_json`](Self::into_json).
#[derive(Debug, Clone, Default)]
pub struct Members {
    members: Map<String, Value>,
    /// Positions of items, by list and key: so that adding many items takes linear time.
    positions: HashMap<&'static str, HashMap<String, usize>>,
    error: Option<MemberError>,
}

/// Why a member cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {why}")]
#[non_exhaustive]
pub struct MemberError {
    /// The path of the member: names with `/` before each.
    pub path: String,
    /// The reason.
    pub why: String,
}

impl Members {
    /// These members.
    pub fn from_json(members: Map<String, Value>) -> Self {
        Self { members, ..Self::default() }
    }

    /// The members as JSON, without those that could not be set, and the first error of a setter.
    pub fn into_json(self) -> (Map<String, Value>, Option<MemberError>) {
        (self.members, self.error)
    }

    /// Sets a member.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.positions.remove(name);
        self.members.insert(name.to_owned(), value.into());
    }

    /// Sets a member to a value [without nulls](without_nulls). A null value is left out.
    ///
    /// An error if it cannot be serialized.
    pub fn set_encoded(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) {
        match without_nulls(value) {
            Ok(Value::Null) => {}
            Ok(value) => self.set(name, value),
            Err(error) => self.fail(name, error.to_string()),
        }
    }

    /// Adds entries to a map.
    pub fn extend(
        &mut self,
        name: &'static str,
        entries: impl IntoIterator<Item = (String, Value)>,
    ) {
        match self.at(name, Value::Object(Map::new())) {
            Value::Object(members) => members.extend(entries),
            _ => self.fail(name, "expected an object"),
        }
    }

    /// Changes an object, empty at first.
    pub fn change<P: Partial>(&mut self, name: &'static str, change: impl FnOnce(P) -> P) {
        let slot = self.at(name, Value::Object(Map::new()));
        let error = changed(slot, change);
        self.fail_below(name, error);
    }

    /// Changes an entry of a map of objects, empty at first.
    pub fn entry<P: Partial>(
        &mut self,
        name: &'static str,
        key: String,
        change: impl FnOnce(P) -> P,
    ) {
        let error = match self.at(name, Value::Object(Map::new())) {
            Value::Object(members) => {
                let path = format!("/{key}");
                let slot = members.entry(key).or_insert_with(|| Value::Object(Map::new()));
                changed(slot, change).map(|error| error.below(&path))
            }
            _ => Some(MemberError::new("an object")),
        };
        self.fail_below(name, error);
    }

    /// Adds an item to a list of objects.
    pub fn push<P: Partial>(&mut self, name: &'static str, change: impl FnOnce(P) -> P) {
        self.positions.remove(name);
        let error = match self.at(name, Value::Array(Vec::new())) {
            Value::Array(items) => {
                let mut item = Value::Object(Map::new());
                let error = changed(&mut item, change);
                let path = format!("/{}", items.len());
                items.push(item);
                error.map(|error| error.below(&path))
            }
            _ => Some(MemberError::new("a list")),
        };
        self.fail_below(name, error);
    }

    /// Changes the item of a list with these keys. At first it has the keys only.
    pub fn item<P: Partial, const N: usize>(
        &mut self,
        name: &'static str,
        keys: [(&'static str, Value); N],
        change: impl FnOnce(P) -> P,
    ) {
        let Self { members, positions, .. } = self;
        let list = members.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        let Value::Array(items) = list else {
            return self.fail_below(name, Some(MemberError::new("a list")));
        };
        let key_of = |item: &Value| {
            let values: Vec<&Value> = keys.iter().filter_map(|(key, _)| item.get(key)).collect();
            serde_json::to_string(&values).ok().filter(|_| values.len() == N)
        };
        let known = positions.entry(name).or_insert_with(|| {
            let keyed = items.iter().enumerate();
            keyed.filter_map(|(at, item)| Some((key_of(item)?, at))).collect()
        });
        let new = keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        let new = Value::Object(Map::from_iter(new));
        let key = key_of(&new);
        let at = *known.entry(key.clone().unwrap_or_default()).or_insert_with(|| {
            items.push(new);
            items.len() - 1
        });
        let error = items.get_mut(at).and_then(|item| changed(item, change));
        let error = error.map(|error| error.below(&format!("/{at}")));
        if items.get(at).and_then(key_of) != key {
            // The closure changed the key.
            positions.remove(name);
        }
        self.fail_below(name, error);
    }

    fn at(&mut self, name: &str, empty: Value) -> &mut Value {
        self.members.entry(name).or_insert(empty)
    }

    fn fail(&mut self, name: &str, why: impl Into<String>) {
        self.error.get_or_insert(MemberError { path: format!("/{name}"), why: why.into() });
    }

    fn fail_below(&mut self, name: &str, error: Option<MemberError>) {
        if let Some(error) = error {
            self.error.get_or_insert(error.below(&format!("/{name}")));
        }
    }
}

impl MemberError {
    fn new(expected: &str) -> Self {
        Self { path: String::new(), why: format!("expected {expected}") }
    }

    fn below(self, path: &str) -> Self {
        Self { path: format!("{path}{}", self.path), ..self }
    }
}

/// Changes the object in `slot`.
fn changed<P: Partial>(slot: &mut Value, change: impl FnOnce(P) -> P) -> Option<MemberError> {
    let Value::Object(members) = slot else { return Some(MemberError::new("an object")) };
    let partial = P::from_members(Members::from_json(std::mem::take(members)));
    let Members { members: changed, error, .. } = change(partial).into_members();
    *members = changed;
    error
}

/// A value as JSON, without members that are null.
///
/// # Errors
///
/// It cannot be serialized.
pub fn without_nulls(value: &(impl Serialize + ?Sized)) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(value)?;
    drop_nulls(&mut value);
    Ok(value)
}

/// Removes null members. Elements of lists stay, since their meaning depends on the position.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
