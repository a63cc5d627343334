//! Ownership, conflicts and merging, row by row of spec: patch §5.

mod algebra;
mod conflicts;
mod invariants;
mod lists;
mod long;
mod migration;
mod ownership;
mod refusals;
mod scale;

use super::*;
use crate::encode::{to_bytes, to_bytes_with};
use crate::node::TypeSchema;
use crate::{builtin, crd, decode};
use serde_json::{Value, json};
use setpoint_object::ApiError;
use std::fmt::Write as _;
use std::time::Duration;

/// One object and those who write it, one second after the other.
struct Story {
    schema: TypeSchema,
    kind: &'static str,
    api_version: &'static str,
    custom: bool,
    live: Option<Value>,
    seconds: u64,
}

impl Story {
    fn builtin(group: &str, version: &'static str, kind: &'static str) -> Self {
        let schema = builtin::type_schema(group, version, kind).expect("a built-in kind");
        let api_version = if group == "apps" { "apps/v1" } else { version };
        Self { schema, kind, api_version, custom: false, live: None, seconds: 0 }
    }

    fn config_map() -> Self {
        Self::builtin("", "v1", "ConfigMap")
    }

    fn deployment() -> Self {
        Self::builtin("apps", "v1", "Deployment")
    }

    /// A custom resource whose `spec` has one of everything.
    fn custom() -> Self {
        let schema = crd::type_schema(&json!({"type": "object", "properties": {
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
            "spec": {"type": "object", "properties": {
                "n": {"type": "integer"},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
                "defaulted": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "d"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}, "d": {"type": "string", "default": "x"}}}},
                "plain": {"type": "array", "items": {"type": "string"}},
                "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
            }}
        }}));
        Self { schema, kind: "Foo", api_version: "ex.io/v1", custom: true, live: None, seconds: 0 }
    }

    /// The parts every body has, and these.
    fn body(&self, parts: Value) -> Value {
        let mut body = json!({
            "apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": "x"}
        });
        merge_parts(&mut body, parts);
        body
    }

    fn write<T>(&self, subresource: &str, act: impl FnOnce(&Typing<'_>, Timestamp) -> T) -> T {
        let reset: BTreeSet<&str> = match (subresource, self.custom) {
            ("status", true) => ["spec", "metadata"].into(),
            ("status", false) => ["spec"].into(),
            _ => ["status"].into(),
        };
        let typing = Typing {
            schema: &self.schema,
            kind: self.kind,
            reset: &reset,
            custom: self.custom,
            versions: &[],
            others: None,
        };
        act(&typing, Timestamp(Duration::from_secs(self.seconds)))
    }

    fn try_apply(&mut self, who: &str, parts: Value, force: bool) -> Result<(), ApiError> {
        self.seconds += 1;
        let (name, subresource) = who.split_once('/').unwrap_or((who, ""));
        let config = self.body(parts);
        let manager = |now| Manager { name, api_version: self.api_version, subresource, now };
        let applied = self.write(subresource, |typing, now| {
            apply(typing, self.live.as_ref(), &config, &manager(now), force)
        });
        let old = self.live_apart();
        let old = old.as_ref().map(|(old, owners)| (old, owners.as_ref()));
        let apart = self.write(subresource, |typing, now| {
            apply_apart(typing, old, &config, &manager(now), force)
        });
        let joined = apart.map(|(mut merged, owners)| {
            owners.inspect(|owners| owners.join(&mut merged.object));
            merged
        });
        assert_eq!(joined, applied);
        self.store(applied?.object);
        Ok(())
    }

    /// The object, and its managedFields beside it.
    fn live_apart(&self) -> Option<(Value, Option<Owners<'static>>)> {
        let mut old = self.live.clone()?;
        let stored = to_bytes(&old);
        let text = std::str::from_utf8(&stored).expect("JSON");
        managed::take(&mut old);
        let owners = Owners::of(text).map(|owners| Owners::of_text(owners.as_str().to_owned()));
        Some((old, owners))
    }

    /// `who` is `manager` or `manager/subresource`.
    fn apply(mut self, who: &str, parts: Value) -> Self {
        self.try_apply(who, parts, false).expect("no conflict");
        self
    }

    fn force(mut self, who: &str, parts: Value) -> Self {
        self.try_apply(who, parts, true).expect("a forced apply of a valid configuration");
        self
    }

    fn refused(&mut self, who: &str, parts: Value) -> ApiError {
        self.try_apply(who, parts, false).expect_err("it should have been refused")
    }

    /// Replaces the object.
    fn update(mut self, who: &str, parts: Value) -> Self {
        self.seconds += 1;
        let (name, subresource) = who.split_once('/').unwrap_or((who, ""));
        let mut new = self.body(parts);
        self.conform(&mut new);
        let sent = new.clone();
        self.write(subresource, |typing, now| {
            let manager = Manager { name, api_version: self.api_version, subresource, now };
            update(typing, self.live.as_ref(), &mut new, &manager);
        });
        let apart = self.updated_apart(who, sent);
        self.store(new);
        if let Some(apart) = apart {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text(&apart), text(&to_bytes(self.live())));
        }
        self
    }

    /// What [`Story::update`] stores, with managedFields beside the objects. `None`: the client
    /// sends some.
    fn updated_apart(&self, who: &str, new: Value) -> Option<bytes::Bytes> {
        if managed::of(&new).is_some() {
            return None;
        }
        let (name, subresource) = who.split_once('/').unwrap_or((who, ""));
        let old = self.live_apart();
        let before = old.as_ref().map(|(old, owners)| (old, owners.as_ref()));
        let owners = self.write(subresource, |typing, now| {
            let manager = Manager { name, api_version: self.api_version, subresource, now };
            update_apart(typing, before, &new, &manager)
        });
        let owners = match &old {
            Some((old, before)) => settle_times_apart((old, before.clone()), (&new, owners)),
            None => owners,
        };
        Some(to_bytes_with(&new, owners.as_ref()))
    }

    fn store(&mut self, mut object: Value) {
        self.conform(&mut object);
        settle_times(self.live.as_ref(), &mut object);
        self.live = Some(object);
    }

    fn conform(&self, object: &mut Value) {
        if !self.custom {
            decode::conform(&self.schema, self.kind, object, &mut Vec::new())
                .expect("the body fits its type");
        }
    }

    /// Makes the first entry one of another version.
    fn set_version(&mut self, api_version: &str) {
        let live = self.live.as_mut().expect("it was created");
        live["metadata"]["managedFields"][0]["apiVersion"] = json!(api_version);
    }

    fn live(&self) -> &Value {
        self.live.as_ref().expect("something was written")
    }

    fn get(&self, pointer: &str) -> String {
        self.live().pointer(pointer).map_or_else(|| "absent".to_owned(), Value::to_string)
    }

    /// One line per entry: who, how, when, what.
    fn owners(&self) -> String {
        let Some(Value::Array(entries)) = managed::of(self.live()) else {
            return "untracked".to_owned();
        };
        let mut text = String::new();
        for entry in entries {
            let part = |name: &str| entry[name].as_str().unwrap_or("-");
            let subresource =
                entry["subresource"].as_str().map_or(String::new(), |s| format!("/{s}"));
            let time = part("time").trim_start_matches("1970-01-01T00:00:").trim_end_matches('Z');
            let _ = writeln!(
                text,
                "{}{subresource} {} {time}: {}",
                part("manager"),
                part("operation"),
                entry["fieldsV1"]
            );
        }
        text
    }
}

fn merge_parts(into: &mut Value, parts: Value) {
    match (into, parts) {
        (Value::Object(into), Value::Object(parts)) => {
            for (name, part) in parts {
                merge_parts(into.entry(name).or_insert(Value::Null), part);
            }
        }
        (into, parts) => *into = parts,
    }
}
