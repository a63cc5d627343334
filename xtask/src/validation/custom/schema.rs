//! Definitions of custom resources, drawn from a seed.

use super::values;
use crate::validation::random::Random;
use serde_json::{Map, Value, json};

/// How deep schemas are made.
const DEPTH_MAX: usize = 4;

/// Names of members; `in` is a word of CEL, `x-y` is escaped there.
const NAMES: &[&str] = &["a", "b", "c", "d", "name", "key", "value", "type", "in", "x-y"];

/// Patterns, each with a text that matches.
pub(super) const PATTERNS: &[(&str, &str)] = &[
    ("^[a-z]+$", "abc"),
    ("^a", "a1"),
    ("b{2,3}$", "abb"),
    ("^(x|y)?[0-9]*$", "x12"),
    (r"^\d+(\.\d+)?$", "1.5"),
    ("[^ ]", "-"),
];

/// Formats, each with a text that has it. One is unknown.
pub(super) const FORMATS: &[(&str, &str)] = &[
    ("date", "2026-01-31"),
    ("date-time", "2026-01-31T10:00:00Z"),
    ("ipv4", "10.0.0.1"),
    ("ipv6", "2001:db8::1"),
    ("cidr", "10.0.0.0/8"),
    ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
    ("byte", "YWJj"),
    ("duration", "1h30m"),
    ("hostname", "a.example.com"),
    ("uri", "https://example.com/a"),
    ("email", "a@example.com"),
    ("mac", "01:23:45:67:89:ab"),
    ("bsonobjectid", "507f1f77bcf86cd799439011"),
    ("password", "secret"),
    ("other", "any"),
];

/// A definition with a group of its own.
#[derive(Clone, Debug)]
pub(in crate::validation) struct Definition {
    /// What is created.
    pub(in crate::validation) object: Value,
    /// How often its schemas were changed.
    pub(super) changes: usize,
}

impl Definition {
    pub(in crate::validation) fn draw(random: &mut Random, number: usize) -> Self {
        let group = format!("s{number}.example.com");
        let root = root(random);
        let mut subresources = Map::new();
        if random.percent(65) {
            subresources.insert("status".to_owned(), json!({}));
        }
        if random.percent(25) {
            let mut scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
            if random.percent(40) {
                scale["labelSelectorPath"] = ".status.selector".into();
            }
            subresources.insert("scale".to_owned(), scale);
        }
        let version = |name: &str, is_stored: bool, schema: Value| {
            json!({
                "name": name, "served": true, "storage": is_stored,
                "schema": {"openAPIV3Schema": schema}, "subresources": subresources.clone(),
            })
        };
        let mut versions = Vec::new();
        let mut has_others = random.percent(45);
        let is_first = random.percent(60);
        if has_others {
            let mut other = root.clone();
            if random.percent(85) {
                vary(random, &mut other);
            }
            versions.push(version("v2", !is_first, other));
            has_others = !is_first;
        }
        versions.push(version("v1", !has_others, root));
        let scope = if random.percent(60) { "Namespaced" } else { "Cluster" };
        let object = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": scope, "versions": versions,
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            },
        });
        Self { object, changes: 0 }
    }

    pub(in crate::validation) fn group(&self) -> &str {
        self.object["spec"]["group"].as_str().unwrap_or_default()
    }

    /// Where the definition is.
    pub(in crate::validation) fn path(&self) -> String {
        let name = self.object["metadata"]["name"].as_str().unwrap_or_default();
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
    }

    /// The collection of a version.
    pub(super) fn collection(&self, version: &str) -> String {
        let root = format!("/apis/{}/{version}", self.group());
        match self.object["spec"]["scope"] == "Namespaced" {
            true => format!("{root}/namespaces/default/things"),
            false => format!("{root}/things"),
        }
    }

    pub(in crate::validation) fn versions(&self) -> Vec<String> {
        let all = self.object["spec"]["versions"].as_array().into_iter().flatten();
        all.filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect()
    }

    pub(super) fn schema(&self, version: &str) -> &Value {
        let mut all = self.object["spec"]["versions"].as_array().into_iter().flatten();
        let one = all.find(|one| one["name"] == version).unwrap_or(&Value::Null);
        &one["schema"]["openAPIV3Schema"]
    }

    pub(super) fn serves(&self, subresource: &str) -> bool {
        self.object["spec"]["versions"][0]["subresources"].get(subresource).is_some()
    }

    /// The same with some nodes changed. A new member with a default shows when it is in force.
    pub(super) fn changed(&self, random: &mut Random) -> Self {
        let mut new = self.clone();
        new.changes += 1;
        let mark = new.mark();
        let all = new.object["spec"]["versions"].as_array_mut().into_iter().flatten();
        for one in all {
            let schema = &mut one["schema"]["openAPIV3Schema"];
            vary(random, schema);
            if let Some(members) = schema["properties"].as_object_mut() {
                members.remove(&self.mark());
                members.insert(mark.clone(), json!({"type": "string", "default": "new"}));
            }
        }
        new
    }

    /// The member that shows the last change.
    pub(super) fn mark(&self) -> String {
        format!("mark{}", self.changes)
    }
}

/// The schema of a whole object.
fn root(random: &mut Random) -> Value {
    let mut spec = object(random, 1);
    spec["properties"]["replicas"] = json!({"type": "integer", "format": "int32"});
    let mut status = object(random, 2);
    status["properties"]["replicas"] = json!({"type": "integer"});
    status["properties"]["selector"] = json!({"type": "string"});
    let mut root = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    if random.percent(20) {
        root["properties"]["extra"] = node(random, 2);
    }
    if random.percent(15) {
        root["required"] = json!(["spec"]);
    }
    if random.percent(5) {
        root["properties"]["metadata"] =
            json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}});
    }
    if random.percent(8) {
        root["x-kubernetes-preserve-unknown-fields"] = true.into();
    }
    if random.percent(15) {
        let rules = ["!has(self.status) || has(self.spec)", "self.metadata.name != 'x'"];
        root["x-kubernetes-validations"] = json!([{"rule": rules[random.below(2)]}]);
    }
    root
}

fn node(random: &mut Random, depth: usize) -> Value {
    let mut node = match random.below(100) {
        0..18 if depth < DEPTH_MAX => object(random, depth),
        18..28 if depth < DEPTH_MAX => map(random, depth),
        28..48 if depth < DEPTH_MAX => list(random, depth),
        48..51 => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        51 => json!({"x-kubernetes-preserve-unknown-fields": true}),
        52 => json!({
            "type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true,
        }),
        53..58 => json!({"x-kubernetes-int-or-string": true}),
        58..66 => json!({"type": "boolean"}),
        66..70 => json!({"type": "number"}),
        70..82 => integer(random),
        _ => string(random),
    };
    if random.percent(10) {
        node["nullable"] = true.into();
    }
    if random.percent(10) {
        rules(random, &mut node);
    }
    node
}

fn object(random: &mut Random, depth: usize) -> Value {
    let mut members = Map::new();
    for _ in 0..1 + random.below(4) {
        let name = random.pick(NAMES).copied().unwrap_or_default();
        members.insert(name.to_owned(), member(random, depth));
    }
    let mut object = json!({"type": "object", "properties": members});
    let names: Vec<String> = members.keys().cloned().collect();
    if random.percent(15) {
        object["required"] = json!([random.pick(&names)]);
    }
    if random.percent(8) {
        object["x-kubernetes-map-type"] = ["atomic", "granular"][random.below(2)].into();
    }
    if random.percent(5) {
        object["x-kubernetes-preserve-unknown-fields"] = true.into();
    }
    if random.percent(4) {
        object["maxProperties"] = json!(1 + random.below(3));
    }
    if random.percent(8) {
        let one = || json!({"required": [names[0]]});
        match random.below(5) {
            0 => object["not"] = one(),
            1 => object["anyOf"] = json!([one(), {"required": [names[names.len() - 1]]}]),
            2 => object["oneOf"] = json!([one(), {"required": [names[names.len() - 1]]}]),
            3 => object["allOf"] = json!([one()]),
            _ => {
                object["anyOf"] = json!([one(), {"properties": {(names[0].clone()): {"not": {}}}}])
            }
        }
    }
    object
}

/// A schema with a default, sometimes.
fn member(random: &mut Random, depth: usize) -> Value {
    let mut schema = node(random, depth + 1);
    if random.percent(22) {
        schema["default"] = values::valid(random, &schema, depth);
    }
    schema
}

fn map(random: &mut Random, depth: usize) -> Value {
    let values = match random.percent(4) {
        true => json!(true),
        false => node(random, depth + 1),
    };
    let mut map = json!({"type": "object", "additionalProperties": values});
    if random.percent(12) {
        map["maxProperties"] = json!(1 + random.below(3));
    }
    if random.percent(10) {
        map["x-kubernetes-map-type"] = ["atomic", "granular"][random.below(2)].into();
    }
    map
}

fn list(random: &mut Random, depth: usize) -> Value {
    let mut list = json!({"type": "array"});
    match random.below(100) {
        0..35 => {
            let mut item = object(random, depth + 1);
            let keys = if random.percent(30) { vec!["name", "key"] } else { vec!["name"] };
            for key in &keys {
                item["properties"][*key] = match random.below(4) {
                    0 => json!({"type": "integer"}),
                    _ => json!({"type": "string"}),
                };
            }
            let at = keys.len() - 1;
            let mut needed: Vec<Value> = item["required"].as_array().cloned().unwrap_or_default();
            for key in &keys[..at] {
                needed.push((*key).into());
            }
            match random.percent(20) {
                true => {
                    let is_text = item["properties"][keys[at]]["type"] == "string";
                    item["properties"][keys[at]]["default"] =
                        if is_text { json!("d") } else { json!(7) };
                }
                false => needed.push(keys[at].into()),
            }
            needed.dedup();
            if !needed.is_empty() {
                item["required"] = needed.into();
            }
            list["items"] = item;
            list["x-kubernetes-list-type"] = "map".into();
            list["x-kubernetes-list-map-keys"] = json!(keys);
        }
        35..55 => {
            list["items"] = match random.percent(70) {
                true => string(random),
                false => integer(random),
            };
            list["x-kubernetes-list-type"] = "set".into();
        }
        55..65 => {
            list["items"] = node(random, depth + 1);
            list["x-kubernetes-list-type"] = "atomic".into();
        }
        _ => list["items"] = node(random, depth + 1),
    }
    if random.percent(15) {
        list["maxItems"] = json!(1 + random.below(4));
    }
    if random.percent(6) {
        list["minItems"] = json!(1);
    }
    list
}

fn integer(random: &mut Random) -> Value {
    let mut node = json!({"type": "integer"});
    match random.below(12) {
        0 => node["format"] = "int32".into(),
        1 => node["format"] = "int64".into(),
        2 => node["minimum"] = json!(0),
        3 => {
            node["minimum"] = json!(1);
            node["maximum"] = json!(100);
        }
        4 => {
            node["maximum"] = json!(10);
            node["exclusiveMaximum"] = true.into();
        }
        5 => node["multipleOf"] = json!(2),
        6 => node["enum"] = json!([1, 2, 3]),
        _ => {}
    }
    node
}

fn string(random: &mut Random) -> Value {
    let mut node = json!({"type": "string"});
    match random.below(14) {
        0 | 1 => node["enum"] = json!(["a", "b", "abc"]),
        2 => {
            let at = random.below(PATTERNS.len());
            node["pattern"] = PATTERNS[at].0.into();
        }
        3..6 => {
            let at = random.below(FORMATS.len());
            node["format"] = FORMATS[at].0.into();
        }
        6 => node["minLength"] = json!(1 + random.below(3)),
        7 => node["maxLength"] = json!(1 + random.below(3)),
        8 => node["maxLength"] = json!(20),
        _ => {}
    }
    node
}

/// Adds rules in CEL that fit the type.
fn rules(random: &mut Random, node: &mut Value) {
    let name = |node: &Value, last: bool| {
        let members = node["properties"].as_object();
        let mut names = members.into_iter().flat_map(Map::keys);
        let name = if last { names.last() } else { names.next() };
        name.map(|name| match &**name {
            "in" => "__in__".to_owned(),
            "x-y" => "x__dash__y".to_owned(),
            name => name.to_owned(),
        })
    };
    let some: Vec<String> = match node["type"].as_str() {
        Some("integer") => ["self >= 0", "self >= oldSelf", "self % 2 == 0", "self < 10"]
            .map(str::to_owned)
            .to_vec(),
        Some("string") => {
            ["self.size() < 5", "self == oldSelf", "self.startsWith('a')", "self != 'x'"]
                .map(str::to_owned)
                .to_vec()
        }
        Some("boolean") => ["self", "self == oldSelf"].map(str::to_owned).to_vec(),
        Some("array") => ["self.size() < 3", "self.size() >= oldSelf.size()", "self == oldSelf"]
            .map(str::to_owned)
            .to_vec(),
        Some("object") => match (name(node, false), name(node, true)) {
            (Some(a), Some(b)) => vec![
                format!("has(self.{a})"),
                format!("!has(self.{a}) || has(self.{b})"),
                format!("has(self.{a}) == has(oldSelf.{a})"),
                format!("!has(self.{b}) || self.{b} == oldSelf.{b}"),
                "self == oldSelf".to_owned(),
            ],
            _ if node["additionalProperties"].is_object() => {
                ["self.size() < 3", "self.all(k, k != 'b')", "self == oldSelf"]
                    .map(str::to_owned)
                    .to_vec()
            }
            _ => return,
        },
        _ => return,
    };
    let Some(rule) = random.pick(&some).cloned() else { return };
    let mut one = json!({"rule": rule});
    match random.below(10) {
        0 | 1 => one["message"] = "not so".into(),
        2 => one["messageExpression"] = "'not ' + 'so'".into(),
        3 => one["reason"] = ["FieldValueForbidden", "FieldValueRequired"][random.below(2)].into(),
        4 => {
            let members = node["properties"].as_object();
            if let Some(name) = members.into_iter().flat_map(Map::keys).find(|name| name.len() == 1)
            {
                one["fieldPath"] = format!(".{name}").into();
            }
        }
        5 if rule.contains("oldSelf") => {
            one["rule"] = rule.replace("oldSelf", "oldSelf.value()").into();
            one["rule"] =
                format!("!oldSelf.hasValue() || ({})", one["rule"].as_str().unwrap_or_default())
                    .into();
            one["optionalOldSelf"] = true.into();
        }
        _ => {}
    }
    // What rules read is bounded, or their cost is not.
    let bound = match node["type"].as_str() {
        Some("array") => Some("maxItems"),
        Some("string") if node.get("enum").is_none() => Some("maxLength"),
        Some("object") if node.get("additionalProperties").is_some() => Some("maxProperties"),
        _ => None,
    };
    if let Some(bound) = bound
        && node.get(bound).is_none()
        && random.percent(90)
    {
        node[bound] = json!(5);
    }
    node["x-kubernetes-validations"] = json!([one]);
}

/// Changes some nodes of a schema, its root not.
fn vary(random: &mut Random, schema: &mut Value) {
    for part in ["spec", "status"] {
        if let Some(schema) = schema["properties"].get_mut(part) {
            vary_members(random, schema, 1);
        }
    }
}

fn vary_members(random: &mut Random, schema: &mut Value, depth: usize) {
    if let Some(members) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let names: Vec<String> = members.keys().cloned().collect();
        for name in names {
            // Keys of lists, and what `scale` writes, stay.
            if matches!(&*name, "name" | "key" | "replicas" | "selector") {
                continue;
            }
            match random.below(100) {
                0..8 => drop(members.remove(&name)),
                8..14 => drop(members.insert(name, member(random, depth))),
                14..20 => {
                    if let Some(one) = members[&name].as_object_mut() {
                        one.remove("default");
                    }
                }
                20..28 => {
                    let value = values::valid(random, &members[&name], depth);
                    members[&name]["default"] = value;
                }
                28..34 => rules(random, &mut members[&name]),
                34..38 if members[&name]["type"] == "string" => {
                    members[&name]["maxLength"] = json!(2)
                }
                34..38 if members[&name]["type"] == "integer" => {
                    members[&name]["minimum"] = json!(2)
                }
                38..41 => {
                    if let Some(one) = members[&name].as_object_mut() {
                        one.remove("x-kubernetes-validations");
                    }
                }
                _ => vary_members(random, &mut members[&name], depth + 1),
            }
        }
        if random.percent(12) {
            let name = random.pick(NAMES).copied().unwrap_or_default();
            if members.get(name).is_none() {
                members.insert(name.to_owned(), member(random, depth));
            }
        }
    }
    for part in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get_mut(part).filter(|schema| schema.is_object()) {
            vary_members(random, schema, depth + 1);
        }
    }
}
