//! Stories of writers: applies and updates of one object.

use super::kinds::Kind;
use super::random::Random;
use super::typed::{Taste, Typed};
use serde_json::{Value, json};

const MANAGERS: [&str; 3] = ["ann", "bob", "cem"];

/// The writes of a story.
pub(super) fn story(random: &mut Random, kind: &Kind) -> Vec<Value> {
    let mut steps = Vec::new();
    let mut last: Vec<Value> = Vec::new();
    for at in 0..2 + random.below(4) {
        let op = match random.below(20) {
            0..12 => "apply",
            12..16 => "update",
            _ if at > 0 => "patch",
            _ => "update",
        };
        let subresource = if kind.has_status && random.chance(150) { "status" } else { "" };
        // What is no valid object is refused before an update gets here.
        let taste = if op == "apply" && random.chance(250) { Taste::Odd } else { Taste::Fitting };
        let manager = match random.below(25) {
            0 => "kubectl",
            _ => random.of(&MANAGERS),
        };
        let object = match last.get(random.below(last.len() * 2 + 1)) {
            // The same again, or with some members changed.
            Some(before) => {
                let mut object = before.clone();
                if random.chance(700) {
                    overlay(&mut object, body(random, kind, op, subresource, taste));
                }
                object
            }
            None => body(random, kind, op, subresource, taste),
        };
        let object = match op {
            "patch" => patch_of(random, object),
            _ => object,
        };
        if op != "patch" && taste == Taste::Fitting {
            last.push(object.clone());
        }
        steps.push(json!({
            "op": op,
            "manager": manager,
            "subresource": subresource,
            "force": random.chance(400),
            "object": object,
        }));
    }
    steps
}

/// A body of a request: type, name and some members.
fn body(random: &mut Random, kind: &Kind, op: &str, subresource: &str, taste: Taste) -> Value {
    let elsewhere = random.chance(100);
    let mut object = Typed { random, taste }.value(kind.schema.view(), 450);
    if !object.is_object() {
        object = json!({});
    }
    if let Value::Object(members) = &mut object {
        members.retain(|name, _| {
            elsewhere || (name != if subresource.is_empty() { "status" } else { "spec" })
        });
        let metadata = members.entry("metadata").or_insert_with(|| json!({}));
        if !metadata.is_object() {
            *metadata = json!({});
        }
        if let Value::Object(metadata) = metadata {
            metadata.remove("uid");
            metadata.remove("generateName");
            metadata.insert("name".to_owned(), json!("x"));
            if op != "apply" && random.chance(30) {
                metadata.insert("managedFields".to_owned(), entries(random, kind));
            } else if taste == Taste::Odd && random.chance(12) {
                metadata.insert("managedFields".to_owned(), json!([]));
            }
        }
        members.insert("apiVersion".to_owned(), json!(kind.api_version));
        members.insert("kind".to_owned(), json!(kind.name));
        if taste == Taste::Odd && random.chance(12) {
            members.insert("kind".to_owned(), json!("Other"));
        }
    }
    object
}

/// What clients send as managedFields.
fn entries(random: &mut Random, kind: &Kind) -> Value {
    match random.below(3) {
        0 => json!([]),
        1 => json!([{}]),
        _ => json!([{
            "manager": "ann",
            "operation": "Apply",
            "apiVersion": if random.chance(800) { kind.api_version } else { "v9" },
            "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}},
        }]),
    }
}

/// Lays an object over another one.
fn overlay(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, member) in from {
                overlay(into.entry(name).or_insert(Value::Null), member);
            }
        }
        (into, from) => *into = from,
    }
}

/// A merge patch with some of an object's members, some of them removed.
fn patch_of(random: &mut Random, object: Value) -> Value {
    let Value::Object(members) = object else { return object };
    let is_identity = |name: &str| matches!(name, "apiVersion" | "kind" | "metadata" | "name");
    let members = members.into_iter().filter_map(|(name, member)| {
        if is_identity(&name) {
            let member = if name == "metadata" { patch_of(random, member) } else { member };
            return Some((name, member));
        }
        match random.below(10) {
            0..3 => None,
            3 if name != "spec" && name != "status" => Some((name, Value::Null)),
            _ => Some((name, if member.is_object() { patch_of(random, member) } else { member })),
        }
    });
    Value::Object(members.collect())
}
