//! Rules of kinds: a valid object of each, and the message for each violation.
mod access;
mod answers;
mod cluster;
mod compared;
mod finer;
mod generated;
mod jobs;
mod pod_changes;
mod pods;
mod profiles;
mod rarer;
mod samples;
mod seeds;
mod services;
mod storage;
mod unusual;
mod workloads;

use super::stored;
use crate::features::FeatureGates;
use crate::kind::{Context, MetadataCheck, Report, rows};
use serde_json::{Value, json};
use setpoint_object::cidr::{Families, Family};
use setpoint_object::field;
use setpoint_object::time::Timestamp;
use std::collections::BTreeMap;

/// Group, version and kind.
type Name = (&'static str, &'static str, &'static str);
/// A change of a sample: the pointer to a member, its new value (`null` removes it), the errors.
type Case<'a> = (&'a str, Value, &'a [&'a str]);

/// A new object as it is stored: defaulted, with a name, a uid and its initial status.
fn fresh((group, version, kind): Name, mut object: Value) -> Value {
    if object["metadata"].get("name").is_none() {
        object["metadata"]["name"] = "x".into();
    }
    object["kind"] = kind.into();
    object["apiVersion"] = match group {
        "" => version.into(),
        group => format!("{group}/{version}").into(),
    };
    let is_bare = |object: &Value| object["metadata"]["labels"].is_null();
    let was_bare = is_bare(&object);
    let mut object = stored(group, version, kind, object);
    let has_default_labels = was_bare && !is_bare(&object);
    let row = rows::of(group, kind).unwrap();
    if let Some(rule) = row.status {
        object["status"] = serde_json::from_str(rule.initial).unwrap();
    }
    object["metadata"]["uid"] = "u".into();
    (row.prepare)(&Context { has_default_labels, ..context() }, &mut object, None);
    object
}
fn context() -> Context<'static> {
    static NONE: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let families = Families { primary: Family::V4, is_dual: false };
    let now = Timestamp::from_secs(0);
    Context {
        now,
        user: "alice",
        uid: "",
        groups: &[],
        extra: &NONE,
        families,
        features: FeatureGates::default(),
        has_default_labels: false,
    }
}
fn texts(errors: &field::Errors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The errors of a new object.
fn created(name: Name, object: Value) -> Vec<String> {
    let mut object = fresh(name, object);
    let row = rows::of(name.0, name.2).unwrap();
    let mut errors = Report::new(FeatureGates::default());
    (row.begin)(&context(), &mut object, None, &mut errors);
    if errors.is_empty() {
        (row.validate_before)(&object, None, &mut errors);
        for member in ["generateName", "name"] {
            let name = object["metadata"][member].as_str().unwrap_or_default();
            if let Some(detail) = (row.name_fault)(&object, name).filter(|_| !name.is_empty()) {
                let path = field::Path::new("metadata").child(member);
                errors.push(field::Error::invalid(path, &name.into(), detail));
            }
        }
        (row.validate)(&object, None, &mut errors);
    }
    texts(&errors)
}
/// The errors of a change, through the main endpoint or `status`.
fn changed((group, _, kind): Name, old: &Value, new: &Value, is_status: bool) -> Vec<String> {
    let row = rows::of(group, kind).unwrap();
    let mut errors = Report::new(FeatureGates::default());
    let new = &mut new.clone();
    if !is_status {
        (row.begin)(&context(), new, Some(old), &mut errors);
    }
    if is_status {
        (row.validate_status)(new, Some(old), &mut errors);
    } else if errors.is_empty() {
        let mut rules = [row.validate_before, row.validate, row.validate_change];
        if row.changed_metadata.before.first() == Some(&MetadataCheck::Change) {
            rules.swap(1, 2);
        }
        rules.into_iter().for_each(|rule| rule(new, Some(old), &mut errors));
    }
    texts(&errors)
}

fn set(object: &mut Value, pointer: &str, value: &Value) {
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    if parent.rsplit_once('/').is_some() && object.pointer(parent).is_none() {
        set(object, parent, &json!({}));
    }
    let parent = object.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(items) => match member {
            "-" => items.push(value.clone()),
            _ => items[member.parse::<usize>().unwrap()] = value.clone(),
        },
        _ if value.is_null() => {
            parent.as_object_mut().unwrap().remove(member);
        }
        _ => parent[member] = value.clone(),
    }
}

/// A sample is valid, and each change of it has its errors.
#[track_caller]
fn refuses(name: Name, sample: &Value, cases: &[Case<'_>]) {
    assert_eq!(created(name, sample.clone()), [""; 0], "{name:?}");
    for (pointer, value, expected) in cases {
        let mut object = sample.clone();
        set(&mut object, pointer, value);
        assert_eq!(created(name, object), *expected, "{name:?} {pointer} {value}");
    }
}
/// Each change of a stored sample has its errors.
#[track_caller]
fn refuses_changes(name: Name, sample: &Value, cases: &[Case<'_>]) {
    let old = fresh(name, sample.clone());
    for (pointer, value, expected) in cases {
        let mut new = old.clone();
        set(&mut new, pointer, value);
        assert_eq!(changed(name, &old, &new, false), *expected, "{name:?} {pointer} {value}");
    }
}
/// Each status has its errors.
#[track_caller]
fn refuses_status(name: Name, sample: &Value, cases: &[(Value, &[&str])]) {
    let old = fresh(name, sample.clone());
    for (status, expected) in cases {
        let mut new = old.clone();
        new["status"] = status.clone();
        assert_eq!(changed(name, &old, &new, true), *expected, "{name:?} {status}");
    }
}

/// What was stored before a rule existed can be changed elsewhere, and not in the same way again.
#[test]
fn a_stored_violation_stays_and_a_new_one_is_refused() {
    let name = ("policy", "v1", "PodDisruptionBudget");
    let old = fresh(name, json!({"spec": {"minAvailable": "200%"}}));
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(changed(name, &old, &new, false), [""; 0]);
    new["spec"]["minAvailable"] = "300%".into();
    assert_eq!(
        changed(name, &old, &new, false),
        ["spec.minAvailable: Invalid value: \"300%\": must not be greater than 100%"]
    );
}
