//! Resources that may be used only if a quota covers them: `limitedResources` of a configuration.
use serde_json::Value;
use setpoint_object::field::{self, Error, Path};
use setpoint_object::quantity::Quantity;
use setpoint_quota::{Scopes, Term, Usage};
use std::collections::BTreeSet;

/// The entries of a configuration.
#[derive(Debug, Default)]
pub(super) struct Limited(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    group: String,
    resource: String,
    /// Parts of the names of limited resources.
    contains: Vec<String>,
    scopes: Vec<Term>,
}

impl Limited {
    pub(super) fn new(config: &Value) -> Result<Self, String> {
        let entries = match &config["limitedResources"] {
            Value::Null => return Ok(Self::default()),
            Value::Array(entries) => entries,
            _ => return Err("limitedResources: must be a list".to_owned()),
        };
        let path = Path::new("limitedResources");
        let mut errors = Vec::new();
        let entry = |(i, entry): (usize, &Value)| {
            let text = |member: &str| entry[member].as_str().unwrap_or_default().to_owned();
            if text("resource").is_empty() {
                errors.push(Error::required(path.index(i).child("resource"), ""));
            }
            let items = |member: &str| entry[member].as_array().into_iter().flatten();
            Entry {
                group: text("apiGroup"),
                resource: text("resource"),
                contains: items("matchContains")
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
                scopes: items("matchScopes").map(Term::of).collect(),
            }
        };
        let entries = entries.iter().enumerate().map(entry).collect();
        if errors.is_empty() { Ok(Self(entries)) } else { Err(field::aggregate(&errors)) }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    fn of<'s>(&'s self, group: &'s str, resource: &'s str) -> impl Iterator<Item = &'s Entry> {
        self.0.iter().filter(move |entry| entry.group == group && entry.resource == resource)
    }
    /// The used resources that a quota must cover.
    pub(super) fn names(&self, group: &str, resource: &str, usage: &Usage) -> BTreeSet<String> {
        let is_limited = |name: &String| {
            self.of(group, resource).any(|e| e.contains.iter().any(|c| name.contains(c)))
        };
        let zero = Quantity::default();
        let used = usage.iter().filter(|(_, amount)| amount.compare(&zero).is_gt());
        used.map(|(name, _)| name).filter(|name| is_limited(name)).cloned().collect()
    }
    /// The scopes of an object that a quota must cover.
    pub(super) fn scopes(&self, group: &str, resource: &str, scopes: &Scopes) -> Vec<Term> {
        let terms = self.of(group, resource).flat_map(|entry| &entry.scopes);
        terms.filter(|term| scopes.is_in(term)).cloned().collect()
    }
}
