//! What both servers have for requests that change nothing: an object of every kind, and some of a
//! kind of their own.

use super::bases::{self, FIXTURES};
use super::both::{Sides, wait};
use super::{stored, text};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A collection with objects.
#[derive(Clone, Debug)]
pub(super) struct Served {
    /// The path of the collection of a namespace, or of all.
    pub(super) collection: String,
    /// The same of all namespaces.
    pub(super) everywhere: String,
    /// The objects as they were posted.
    pub(super) objects: Vec<Value>,
    pub(super) subresources: Vec<&'static str>,
}

impl Served {
    /// The name of an object.
    pub(super) fn name(object: &Value) -> String {
        object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }
}

/// The ConfigMaps beside the others.
const CONFIG_MAPS: usize = 7;

/// Gives both servers the same objects. Returns what they have.
pub(super) fn prepare(sides: &mut Sides) -> Result<Vec<Served>> {
    let starts = stored(bases::bases(None)?, sides)?;
    let config_map = |n: usize| {
        let app = ["a", "b", "c"][n % 3];
        let labels = json!({"app": app, "tier": n.to_string()});
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"n": n.to_string()},
            "metadata": {"name": format!("c{n}"), "labels": labels},
        })
    };
    for object in (1..=CONFIG_MAPS).map(config_map) {
        for side in sides.iter_mut() {
            let path = format!("/api/v1/namespaces/{FIXTURES}/configmaps");
            let answer = side.send("POST", &path, object.to_string().as_bytes())?;
            ensure!(answer.code == 201, "a ConfigMap: {}", text(&answer));
        }
    }
    let mut by_collection: BTreeMap<String, Served> = BTreeMap::new();
    for start in starts.iter().filter(|start| start.stored.is_some()) {
        // Controllers of the servers write these, or make more.
        if ["FlowSchema", "Event"].contains(&start.base.resource.kind) {
            continue;
        }
        let collection = start.base.path(FIXTURES);
        let everywhere = collection.replace(&format!("/namespaces/{FIXTURES}"), "");
        let subresources = start.base.resource.subresources.iter().map(|one| one.name);
        let served = by_collection.entry(collection.clone()).or_insert_with(|| Served {
            collection,
            everywhere,
            objects: Vec::new(),
            subresources: subresources.collect(),
        });
        served.objects.push(start.base.fixture.clone());
    }
    let configs = by_collection.get_mut(&format!("/api/v1/namespaces/{FIXTURES}/configmaps"));
    if let Some(configs) = configs {
        configs.objects.extend((1..=CONFIG_MAPS).map(config_map));
    }
    let mut all: Vec<Served> = by_collection.into_values().collect();
    all.extend(custom(sides)?);
    Ok(all)
}

/// Defines custom resources in two versions, and waits until both are served.
pub(super) fn define_shapes(sides: &mut Sides) -> Result<()> {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let version = |name: &str, is_stored: bool| {
        // Equal schemas would be those of all versions, whose selectable fields must be equal.
        let ratio = if is_stored { "ratio" } else { "other" };
        json!({
            "name": name, "served": true, "storage": is_stored,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "color": {"type": "string"}, "replicas": {"type": "integer"}, "list": {"type": "array", "items": {"type": "string"}},
                    "when": {"type": "string", "format": "date-time"}, ratio: {"type": "number"}, "on": {"type": "boolean"},
                }},
                "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}},
            }}},
            "selectableFields": [{"jsonPath": ".spec.color"}, {"jsonPath": format!(".spec.{}", if is_stored { "replicas" } else { "on" })}],
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector",
            }},
            "additionalPrinterColumns": match is_stored {
                false => json!([]),
                true => json!([
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "description": "Its color", "priority": 1},
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}, {"name": "First", "type": "string", "jsonPath": ".spec.list[0]"},
                    {"name": "All", "type": "string", "jsonPath": ".spec.list"}, {"name": "When", "type": "date", "jsonPath": ".spec.when"},
                    {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"}, {"name": "On", "type": "boolean", "jsonPath": ".spec.on"},
                ]),
            },
        })
    };
    let definition = json!({
        "metadata": {"name": "shapes.reads.example.com"},
        "spec": {
            "group": "reads.example.com", "scope": "Namespaced", "versions": [version("v1", true), version("v2", false)],
            "names": {"plural": "shapes", "singular": "shape", "kind": "Shape", "listKind": "ShapeList", "shortNames": ["sh"], "categories": ["all"]},
        },
    });
    for side in sides.iter_mut() {
        let answer = side.send("POST", DEFINITIONS, definition.to_string().as_bytes())?;
        ensure!(answer.code == 201, "a definition: {}", text(&answer));
        for version in ["v1", "v2"] {
            wait(side, &shapes(version), |answer| answer.code == 200)?;
        }
    }
    Ok(())
}

/// The path of custom resources.
fn shapes(version: &str) -> String {
    format!("/apis/reads.example.com/{version}/namespaces/{FIXTURES}/shapes")
}

/// Makes custom resources in two versions. Returns those of each.
fn custom(sides: &mut Sides) -> Result<Vec<Served>> {
    define_shapes(sides)?;
    let specs = [
        json!({"color": "red", "replicas": 2, "list": ["a", "b"], "when": "2026-01-01T00:00:00Z", "ratio": 0.5, "on": true}),
        json!({"color": "green", "list": [], "ratio": 3}),
        json!({}),
    ];
    let object = |version: &str, (n, spec): (usize, &Value)| {
        let name = format!("s{}", n + 1);
        json!({
            "apiVersion": format!("reads.example.com/{version}"), "kind": "Shape", "spec": spec,
            "metadata": {"name": name, "labels": {"app": name}},
        })
    };
    for side in sides.iter_mut() {
        for object in specs.iter().enumerate().map(|spec| object("v1", spec)) {
            let answer = side.send("POST", &shapes("v1"), object.to_string().as_bytes())?;
            ensure!(answer.code == 201, "a custom resource: {}", text(&answer));
        }
    }
    let served = |version| Served {
        collection: shapes(version),
        everywhere: format!("/apis/reads.example.com/{version}/shapes"),
        objects: specs.iter().enumerate().map(|spec| object(version, spec)).collect(),
        subresources: vec!["status", "scale"],
    };
    // As often as some other kinds together.
    Ok(["v1", "v1", "v1", "v2", "v2"].map(served).into())
}
