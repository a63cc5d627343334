//! Built-in definitions as schemas.

use super::row::Kind;
use super::{Dialect, Texts, values};
use serde_json::{Map, Value, json};
use setpoint_facts::{DEFINITIONS, Definition, Field, Presence, Type};
use std::collections::BTreeSet;

/// The prefix of the types that belong to every group version.
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
pub(super) const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";
pub(super) const META_API_VERSIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions";
/// The list of the resources of a group version.
pub(super) const META_RESOURCES: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";
pub(super) const META_API_GROUP: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup";
pub(super) const META_API_GROUP_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList";
/// The document `/version`, which is no definition of the API.
pub(super) const VERSION: &str = "io.k8s.apimachinery.pkg.version.Info";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";

/// The name of a built-in kind's definition.
pub(super) fn of_kind(kind: &Kind<'_>) -> Option<&'static str> {
    let at = setpoint_facts::kind(kind.group, kind.version, kind.kind)?;
    Some(DEFINITIONS[usize::from(at)].name)
}

fn find(name: &str) -> Option<&'static Definition> {
    setpoint_facts::definition(name).map(|at| &DEFINITIONS[usize::from(at)])
}

/// `roots` and every definition that they refer to, directly or indirectly.
pub(super) fn reachable(roots: Vec<&'static str>) -> BTreeSet<&'static str> {
    let mut pending = roots;
    let mut found = BTreeSet::new();
    while let Some(name) = pending.pop() {
        if found.insert(name) {
            let fields = find(name).map(|definition| definition.fields).unwrap_or_default();
            pending.extend(fields.iter().filter_map(|field| target(&field.ty)));
        }
    }
    found
}

/// The definition that a type refers to.
fn target(ty: &Type) -> Option<&'static str> {
    match ty {
        Type::List(inner) | Type::Map(inner) => target(inner),
        Type::Ref(at) => Some(DEFINITIONS[usize::from(*at)].name),
        Type::Quantity => Some(QUANTITY),
        Type::IntOrString => Some(INT_OR_STRING),
        Type::Time => Some(TIME),
        Type::MicroTime => Some(MICRO_TIME),
        _ => None,
    }
}

/// The schema of a built-in definition; `{}` for an unknown name.
pub(super) fn definition(name: &str, dialect: Dialect, texts: Texts<'_>) -> Value {
    if name == VERSION {
        return version(dialect);
    }
    let Some(definition) = find(name) else { return json!({}) };
    let mut schema = undescribed(definition, dialect, texts);
    if let (Some(text), Value::Object(members)) =
        (texts.descriptions.and_then(|texts| texts.of(name)), &mut schema)
    {
        members.insert("description".to_owned(), text.into());
    }
    schema
}

fn version(dialect: Dialect) -> Value {
    let mut required = Vec::new();
    let mut properties = Map::new();
    for (name, is_required) in [
        ("major", true),
        ("minor", true),
        ("gitVersion", true),
        ("gitCommit", true),
        ("gitTreeState", true),
        ("buildDate", true),
        ("goVersion", true),
        ("compiler", true),
        ("platform", true),
        ("emulationMajor", false),
        ("emulationMinor", false),
        ("minCompatibilityMajor", false),
        ("minCompatibilityMinor", false),
    ] {
        let mut schema = json!({"type": "string"});
        if is_required {
            required.push(name);
            if dialect == Dialect::V3 {
                schema["default"] = "".into();
            }
        }
        properties.insert(name.to_owned(), schema);
    }
    json!({"properties": properties, "required": required, "type": "object"})
}

/// The schema of a definition without its own description; its fields have theirs.
fn undescribed(definition: &Definition, dialect: Dialect, texts: Texts<'_>) -> Value {
    match definition.ty {
        Type::Quantity if dialect == Dialect::V3 => {
            json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
        }
        Type::Quantity => json!({"type": "string"}),
        Type::IntOrString if dialect == Dialect::V3 => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Type::IntOrString => json!({"format": "int-or-string", "type": "string"}),
        Type::Time | Type::MicroTime => json!({"format": "date-time", "type": "string"}),
        // The types of apiextensions that stand for any JSON have no type; the others are objects.
        Type::Any if definition.name.contains(".apiextensions.") => json!({}),
        Type::Any => json!({"type": "object"}),
        _ => object(definition, dialect, texts),
    }
}

fn object(definition: &Definition, dialect: Dialect, texts: Texts<'_>) -> Value {
    let mut out = Map::new();
    out.insert("type".to_owned(), "object".into());
    if !definition.fields.is_empty() {
        let own = |name: &str| match definition.name {
            OBJECT_META => describe_metadata(name),
            _ => None,
        };
        let describe = |name: &str| {
            let own = || own(name);
            texts.descriptions.and_then(|texts| texts.of_field(definition.name, name)).or_else(own)
        };
        let properties: Map<String, Value> = definition
            .fields
            .iter()
            .map(|member| {
                let name = definition.name;
                let mut value = field(name, member, describe(member.name), dialect);
                if !texts.has_values {
                    return (member.name.to_owned(), value);
                }
                let values = texts
                    .descriptions
                    .and_then(|texts| texts.values_of_field(definition.name, member.name));
                if let Some(values) = values {
                    put_values(&mut value, values);
                } else if let Some(values) = values::of(definition.name, member.name) {
                    put_values(&mut value, &values.collect());
                }
                (member.name.to_owned(), value)
            })
            .collect();
        out.insert("properties".to_owned(), properties.into());
    }
    if !definition.required.is_empty() {
        out.insert("required".to_owned(), definition.required.into());
    }
    if definition.atomic {
        out.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
    }
    if let Some(union) = union_of(definition.name) {
        out.insert("x-kubernetes-unions".to_owned(), json!([union]));
    }
    if !definition.kinds.is_empty() {
        let kinds =
            definition.kinds.iter().map(|(group, version, kind)| Kind { group, version, kind });
        out.insert("x-kubernetes-group-version-kind".to_owned(), kinds.map(|k| gvk(&k)).collect());
    }
    out.into()
}

/// Which member of a struct says which others are set.
fn union_of(definition: &str) -> Option<Value> {
    let (discriminator, fields) = match definition {
        "io.k8s.api.core.v1.AppArmorProfile" | "io.k8s.api.core.v1.SeccompProfile" => {
            ("type", json!({"localhostProfile": "LocalhostProfile"}))
        }
        "io.k8s.api.core.v1.PodSchedulingGroup" => ("", json!({"podGroupName": "PodGroupName"})),
        "io.k8s.api.flowcontrol.v1.LimitResponse" => ("type", json!({"queuing": "Queuing"})),
        "io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec" => {
            ("type", json!({"exempt": "Exempt", "limited": "Limited"}))
        }
        "io.k8s.api.flowcontrol.v1.Subject" => {
            ("kind", json!({"group": "Group", "serviceAccount": "ServiceAccount", "user": "User"}))
        }
        "io.k8s.api.scheduling.v1alpha2.PodGroupSchedulingPolicy" => {
            ("", json!({"basic": "Basic", "gang": "Gang"}))
        }
        "io.k8s.api.scheduling.v1alpha2.PodGroupTemplateReference" => {
            ("", json!({"workload": "Workload"}))
        }
        _ => return None,
    };
    let mut union = json!({"fields-to-discriminateBy": fields});
    if !discriminator.is_empty() {
        union["discriminator"] = discriminator.into();
    }
    Some(union)
}

/// Leaves only the kinds of a group version and of the core group among those of a schema, as v3
/// documents have them: the options of a delete are a kind of every group version.
pub(super) fn retain_kinds(schema: &mut Value, of: &Kind<'_>) {
    if let Some(Value::Array(kinds)) = schema.get_mut("x-kubernetes-group-version-kind") {
        kinds.retain(|kind| {
            kind["group"] == "" || kind["group"] == of.group && kind["version"] == of.version
        });
    }
}

/// A kind in the form of the extension.
pub(super) fn gvk(kind: &Kind<'_>) -> Value {
    json!({"group": kind.group, "kind": kind.kind, "version": kind.version})
}

/// Descriptions of the fields of `ObjectMeta`, which every kind has, if no published document has
/// them.
fn describe_metadata(field: &str) -> Option<&'static str> {
    Some(match field {
        "annotations" => "Annotations are free-form texts by key that tools keep with an object.",
        "creationTimestamp" => {
            "CreationTimestamp is a timestamp of when the server created this object. Set by the server."
        }
        "deletionGracePeriodSeconds" => {
            "Seconds between the request to delete this object and its removal. Set by the server."
        }
        "deletionTimestamp" => {
            "DeletionTimestamp is when this object is to be removed. Set by the server when a deletion is requested and something has to happen first."
        }
        "finalizers" => {
            "Names of what must be done before this object is removed. It stays until the list is empty."
        }
        "generateName" => "GenerateName is the start of a unique name, used when name is empty.",
        "generation" => {
            "A number that grows with every change of the desired state. Set by the server."
        }
        "labels" => "Labels are texts by key that selectors choose objects by.",
        "managedFields" => {
            "Which manager owns which fields. Kept by the server for server-side apply."
        }
        "name" => {
            "Name is unique among the objects of a kind in a namespace. It cannot be changed."
        }
        "namespace" => {
            "Namespace is the scope in which the name is unique. Empty for objects of the whole cluster."
        }
        "ownerReferences" => {
            "Objects that this one depends on. When all of them are deleted, it is garbage-collected."
        }
        "resourceVersion" => {
            "An opaque text that changes whenever this object does. Compared when it is written."
        }
        "selfLink" => "Deprecated. Not set.",
        "uid" => "UID is unique over time and space. Set by the server.",
        _ => return None,
    })
}

/// Fields that are left out if they are zero, and whose declared default is zero.
const ZERO_DEFAULTS: [(&str, &str); 10] = [
    ("io.k8s.api.autoscaling.v1.ScaleSpec", "replicas"),
    ("io.k8s.api.core.v1.ConfigMapEnvSource", "name"),
    ("io.k8s.api.core.v1.ConfigMapKeySelector", "name"),
    ("io.k8s.api.core.v1.ConfigMapProjection", "name"),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", "name"),
    ("io.k8s.api.core.v1.LocalObjectReference", "name"),
    ("io.k8s.api.core.v1.ReplicationControllerSpec", "minReadySeconds"),
    ("io.k8s.api.core.v1.SecretEnvSource", "name"),
    ("io.k8s.api.core.v1.SecretKeySelector", "name"),
    ("io.k8s.api.core.v1.SecretProjection", "name"),
];

/// The published default of a field: the declared one, or the zero value that Go's encoder writes
/// if there is none.
fn default_of(owner: &str, field: &Field) -> Option<Value> {
    if !field.default.is_empty() {
        // Generated JSON: the facts' own tests check that it parses.
        return serde_json::from_str(field.default).ok();
    }
    let is_zero =
        field.presence == Presence::Always || ZERO_DEFAULTS.contains(&(owner, field.name));
    let zero = match field.ty {
        Type::Str => "".into(),
        Type::Int | Type::Num => 0.into(),
        Type::Bool => false.into(),
        Type::Ref(_) => json!({}),
        _ => return None,
    };
    is_zero.then_some(zero)
}

fn field(owner: &str, field: &Field, description: Option<&str>, dialect: Dialect) -> Value {
    let mut extras = Map::new();
    let mut add = |key: &str, value: Value| extras.insert(key.to_owned(), value);
    if let Some(description) = description {
        add("description", description.into());
    }
    if !field.list_type.is_empty() {
        add("x-kubernetes-list-type", field.list_type.into());
    }
    if !field.list_map_keys.is_empty() {
        add("x-kubernetes-list-map-keys", field.list_map_keys.into());
    }
    if !field.patch_strategy.is_empty() {
        add("x-kubernetes-patch-strategy", field.patch_strategy.into());
    }
    if !field.merge_key.is_empty() {
        add("x-kubernetes-patch-merge-key", field.merge_key.into());
    }
    if field.atomic || field.granular {
        let map_type = if field.atomic { "atomic" } else { "granular" };
        add("x-kubernetes-map-type", map_type.into());
    }
    if dialect == Dialect::V3
        && let Some(default) = default_of(owner, field)
    {
        add("default", default);
    }
    let schema = of_type(&field.ty, field.format, dialect);
    with_extras(schema, extras, dialect)
}

/// Puts the known values of a text, or of the texts in a list or map, into its schema.
fn put_values(schema: &mut Value, values: &Value) {
    let place = match schema["type"].as_str() {
        Some("array") => &mut schema["items"],
        Some("object") => &mut schema["additionalProperties"],
        _ => schema,
    };
    if place["type"] == "string"
        && let Value::Object(members) = place
    {
        members.insert("enum".to_owned(), values.clone());
    }
}

/// Adds members to a schema. In v3 a reference must not have siblings, so it moves into `allOf`.
pub(super) fn with_extras(
    schema: Value,
    mut extras: Map<String, Value>,
    dialect: Dialect,
) -> Value {
    if extras.is_empty() {
        return schema;
    }
    match schema {
        Value::Object(members) if dialect == Dialect::V3 && members.contains_key("$ref") => {
            extras.insert("allOf".to_owned(), json!([members]));
        }
        Value::Object(members) => extras.extend(members),
        _ => {}
    }
    extras.into()
}

fn of_type(ty: &Type, format: &str, dialect: Dialect) -> Value {
    let scalar = |name: &str, format: &str| match format {
        "" => json!({"type": name}),
        format => json!({"format": format, "type": name}),
    };
    match ty {
        Type::Str => scalar("string", format),
        Type::Int => scalar("integer", format),
        Type::Num => scalar("number", format),
        Type::Bool => scalar("boolean", ""),
        Type::Bytes => scalar("string", "byte"),
        Type::Object => scalar("object", ""),
        Type::List(items) => json!({"items": of_type(items, format, dialect), "type": "array"}),
        Type::Map(values) => {
            json!({"additionalProperties": of_type(values, format, dialect), "type": "object"})
        }
        Type::Any => json!({}),
        other => target(other).map_or_else(|| json!({}), |name| dialect.reference(name)),
    }
}
