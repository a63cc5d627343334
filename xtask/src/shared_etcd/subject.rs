//! Objects that both servers serve: those of `cargo xtask validation`, and custom ones.

use super::{Clients, NAMES, NAMESPACE, eventually};
use crate::validation::bases;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use setpoint_facts::RESOURCES;
use std::collections::BTreeSet;

/// Definitions whose objects are written: one with two versions, status and scale and defaults;
/// one of the cluster with nothing of that.
const DEFINITIONS: &str = include_str!("definitions.json");
/// Objects of these.
const OBJECTS: &str = include_str!("objects.json");

/// An object, and where it is.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) title: String,
    pub(super) object: Value,
    /// The path of its collection.
    pub(super) collection: String,
    /// The paths of its collection in other versions and groups.
    pub(super) others: Vec<String>,
    pub(super) has_status: bool,
    pub(super) has_scale: bool,
    /// The definition must exist before it.
    pub(super) is_custom: bool,
}

impl Subject {
    pub(super) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.collection, self.name())
    }
}

/// The path of a collection.
fn collection(group: &str, version: &str, resource: &str, is_namespaced: bool) -> String {
    let root = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    match is_namespaced {
        true => format!("{root}/namespaces/{NAMESPACE}/{resource}"),
        false => format!("{root}/{resource}"),
    }
}

/// All objects, or those of one kind.
pub(super) fn subjects(kind: Option<&str>) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for base in bases::bases(None)? {
        let row = base.resource;
        let verbs = ["create", "get", "watch"];
        if !verbs.iter().all(|verb| base.has_verb(verb)) {
            continue;
        }
        let same = |other: &&setpoint_facts::Resource| {
            let is_event = row.kind == "Event" && other.kind == "Event";
            (other.group == row.group || is_event)
                && other.resource == row.resource
                && (other.group, other.version) != (row.group, row.version)
        };
        let others = RESOURCES.iter().filter(same);
        let path = |row: &setpoint_facts::Resource| {
            collection(row.group, row.version, row.resource, row.namespaced)
        };
        subjects.push(Subject {
            title: format!("{} {}", row.kind, base.fixture["metadata"]["name"]).replace('"', ""),
            collection: path(row),
            others: others.map(path).collect(),
            has_status: base.has_status(),
            has_scale: base.serves("scale"),
            object: base.fixture,
            is_custom: false,
        });
    }
    for object in serde_json::from_str::<Vec<Value>>(OBJECTS)? {
        let text = |pointer: &str| {
            object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let (group, version) = api_version.split_once('/').unwrap_or_default();
        let plural = format!("{}s", kind.to_lowercase());
        let is_namespaced = kind != "Planet";
        let other = if version == "v1" { "v1beta1" } else { "v1" };
        let others = is_namespaced.then(|| collection(group, other, &plural, is_namespaced));
        subjects.push(Subject {
            title: format!("{kind} {} ({version})", text("/metadata/name")),
            collection: collection(group, version, &plural, is_namespaced),
            others: others.into_iter().collect(),
            has_status: object.get("status").is_some(),
            has_scale: kind == "Ship" && version == "v1",
            object,
            is_custom: true,
        });
    }
    subjects.retain(|subject| kind.is_none_or(|kind| subject.object["kind"] == kind));
    ensure!(!subjects.is_empty(), "no such kind");
    Ok(subjects)
}

/// The built-in kinds that can be created and watched, and that no object here has.
pub(super) fn missing(subjects: &[Subject]) -> BTreeSet<String> {
    let verbs = ["create", "get", "watch"];
    let rows = RESOURCES.iter().filter(|row| verbs.iter().all(|verb| row.serves(verb)));
    let is_there = |kind: &str| subjects.iter().any(|subject| subject.object["kind"] == kind);
    rows.map(|row| row.kind.to_owned()).filter(|kind| !is_there(kind)).collect()
}

/// Creates the definitions of the custom objects, one at each server, and waits until both serve
/// all of them.
pub(super) fn define(clients: &mut Clients, subjects: &[Subject]) -> Result<()> {
    const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    if !subjects.iter().any(|subject| subject.is_custom) {
        return Ok(());
    }
    for (at, definition) in serde_json::from_str::<Vec<Value>>(DEFINITIONS)?.iter().enumerate() {
        let (code, answer) = clients.json(at % 2, "POST", PATH, definition)?;
        ensure!(code == 201, "a definition: {code} {}", answer["message"]);
    }
    for subject in subjects.iter().filter(|subject| subject.is_custom) {
        for server in [0, 1] {
            for collection in subject.others.iter().chain([&subject.collection]) {
                let served = eventually(|| {
                    let (code, _) = clients.json(server, "GET", collection, &json!(null))?;
                    Ok((code == 200).then_some(()))
                })?;
                ensure!(served.is_some(), "{collection} at {}", NAMES[server]);
            }
        }
    }
    Ok(())
}
