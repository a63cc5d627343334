//! Valid objects that cases start from.

use super::places::{Place, places};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use setpoint_facts::{DEFINITIONS, Definition, RESOURCES, Resource, Type};
use std::collections::BTreeMap;

/// The namespace of the objects that are created for real.
pub(crate) const FIXTURES: &str = "fixtures";
/// The namespace of the objects that are created as dry runs.
pub(crate) const CASES: &str = "default";

const FILES: &[&str] = &[
    include_str!("bases/pods.json"),
    include_str!("bases/workloads.json"),
    include_str!("bases/core.json"),
    include_str!("bases/cluster.json"),
    include_str!("bases/policies.json"),
];

/// Objects that are posted to subresources of fixtures.
const ACTS: &str = include_str!("bases/acts.json");

/// What differs in the object that is created for real, so that the dry runs do not meet it.
const OTHERS: &[(&str, &str)] = &[
    ("30080", "30090"),
    ("10.96.77.7", "10.96.77.9"),
    ("10.7.0.1", "10.7.0.2"),
    ("[\"10.9.0.0/24\",\"2001:db8::/112\"]", "[\"2001:db8::/112\"]"),
    ("widgets.example.com", "widgets.fixture.example.com"),
    ("gadgets.example.com", "gadgets.fixture.example.com"),
    ("\"group\":\"example.com\"", "\"group\":\"fixture.example.com\""),
    ("\"namespace\":\"default\"", "\"namespace\":\"fixtures\""),
    ("v1.ex.io", "v1.fixture.ex.io"),
    ("v2.ex.io", "v2.fixture.ex.io"),
    ("\"group\":\"ex.io\"", "\"group\":\"fixture.ex.io\""),
];

/// A valid object.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) resource: &'static Resource,
    /// Where it is posted, if that does something to another object of the resource.
    act: Option<String>,
    /// Its kind.
    pub(crate) kind: &'static str,
    pub(crate) ty: Type,
    /// What is created as a dry run, changed.
    pub(crate) object: Value,
    /// What is created for real; then its updates are dry runs.
    pub(crate) fixture: Value,
}

impl Base {
    /// `kind/name`.
    pub(crate) fn title(&self) -> String {
        let name = self.object["metadata"]["name"].as_str().unwrap_or("-");
        format!("{}/{name}", self.kind)
    }

    /// The path of the collection in a namespace, or of the act.
    pub(crate) fn path(&self, namespace: &str) -> String {
        if let Some(act) = &self.act {
            return act.clone();
        }
        let Resource { group, version, resource, namespaced, .. } = self.resource;
        let root = match *group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        match namespaced {
            true => format!("{root}/namespaces/{namespace}/{resource}"),
            false => format!("{root}/{resource}"),
        }
    }

    /// The path of the object that is created for real.
    pub(crate) fn fixture_path(&self) -> String {
        let name = self.fixture["metadata"]["name"].as_str().unwrap_or_default();
        format!("{}/{name}", self.path(FIXTURES))
    }

    pub(crate) fn has_status(&self) -> bool {
        self.serves("status") && self.fixture.get("status").is_some()
    }

    pub(crate) fn serves(&self, subresource: &str) -> bool {
        self.act.is_none() && self.resource.subresources.iter().any(|one| one.name == subresource)
    }

    /// Whether its collection and its objects have a verb.
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.act.is_none() && self.resource.serves(verb)
    }
}

/// All bases, or those of a kind. Acts come after the objects that they need.
pub(crate) fn bases(kind: Option<&str>) -> Result<Vec<Base>> {
    let mut bases = Vec::new();
    for file in FILES {
        for object in serde_json::from_str::<Vec<Value>>(file)? {
            bases.push(base(object)?);
        }
    }
    for act in serde_json::from_str::<Vec<Act>>(ACTS)? {
        bases.push(act.base()?);
    }
    bases.retain(|base| kind.is_none_or(|kind| base.kind == kind));
    ensure!(!bases.is_empty(), "no such kind");
    Ok(bases)
}

/// An object that is posted to a subresource.
#[derive(Debug, Deserialize)]
struct Act {
    path: String,
    /// The resource: group, version, plural name.
    of: (String, String, String),
    object: Value,
}

impl Act {
    fn base(self) -> Result<Base> {
        let (group, version, resource) = &self.of;
        let resource = setpoint_facts::resource(group, version, resource).context("no resource")?;
        let (kind, ty) = body_type(&self.object)?;
        let (object, fixture) = (self.object, Value::Null);
        Ok(Base { resource, act: Some(self.path), kind, ty, object, fixture })
    }
}

/// The kind of an object, and the type of its body.
fn body_type(object: &Value) -> Result<(&'static str, Type)> {
    let (api, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let (api, kind) = (api.context("apiVersion")?, kind.context("kind")?);
    let (group, version) = api.rsplit_once('/').unwrap_or(("", api));
    let wanted = (group, version, kind);
    let found = DEFINITIONS.iter().enumerate().find_map(|(at, one): (usize, &Definition)| {
        let (.., kind) = *one.kinds.iter().find(|one| **one == wanted)?;
        Some((kind, at))
    });
    let (kind, at) = found.with_context(|| format!("{api} {kind}"))?;
    Ok((kind, Type::Ref(u16::try_from(at)?)))
}

fn base(object: Value) -> Result<Base> {
    let (kind, ty) = body_type(&object)?;
    let api = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api.rsplit_once('/').unwrap_or(("", api));
    let is_its = |one: &&Resource| (one.group, one.version, one.kind) == (group, version, kind);
    let resource = RESOURCES.iter().find(is_its).with_context(|| format!("{api} {kind}"))?;
    let mut text = object.to_string();
    for (from, to) in OTHERS {
        text = text.replace(from, to);
    }
    let mut fixture: Value = serde_json::from_str(&text)?;
    if fixture["metadata"]["name"] == object["metadata"]["name"] && !resource.namespaced {
        let name = format!("fixture-{}", fixture["metadata"]["name"].as_str().unwrap_or_default());
        fixture["metadata"]["name"] = name.into();
    }
    Ok(Base { resource, act: None, kind, ty, object, fixture })
}

/// What members have in the bases: a change often takes a value from another place.
#[derive(Debug, Default)]
pub(crate) struct Material {
    by_field: BTreeMap<(u16, &'static str), Vec<Value>>,
    by_name: BTreeMap<&'static str, Vec<Value>>,
}

impl Material {
    pub(crate) fn of(bases: &[Base]) -> Self {
        let mut material = Self::default();
        let add = |all: &mut Vec<Value>, value: &Value| {
            if !all.contains(value) {
                all.push(value.clone());
            }
        };
        for base in bases {
            for Place { pointer, field, .. } in places(&base.object, base.ty) {
                let (Some(field), Some(value)) = (field, base.object.pointer(&pointer)) else {
                    continue;
                };
                add(material.by_field.entry(field).or_default(), value);
                if value.is_string() {
                    add(material.by_name.entry(field.1).or_default(), value);
                }
            }
        }
        material
    }

    /// Values of a field in the bases.
    pub(crate) fn of_field(&self, field: (u16, &'static str)) -> &[Value] {
        self.by_field.get(&field).map_or(&[], Vec::as_slice)
    }

    /// Texts of fields with this name.
    pub(crate) fn of_name(&self, name: &str) -> &[Value] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}
