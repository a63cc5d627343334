//! Objects of a schema, and strategic merge patches of them.

use super::random::Random;
use serde_json::{Map, Value, json};
use setpoint_schema::node::{ListType, Scalar, Shape, View};

/// Members that objects have often; the others are rare.
const FREQUENT: &[&str] = &[
    "annotations",
    "args",
    "atomic",
    "conditions",
    "containers",
    "either",
    "emptyDir",
    "env",
    "externalIPs",
    "finalizers",
    "free",
    "hostAliases",
    "image",
    "imagePullSecrets",
    "inner",
    "ip",
    "labels",
    "limits",
    "list",
    "map",
    "matchLabels",
    "metadata",
    "mountPath",
    "name",
    "number",
    "numbers",
    "nodeSelector",
    "objects",
    "ownerReferences",
    "pairs",
    "parts",
    "plain",
    "podIPs",
    "port",
    "ports",
    "protocol",
    "replicas",
    "resources",
    "rollingUpdate",
    "selector",
    "set",
    "spec",
    "status",
    "strategy",
    "template",
    "tolerations",
    "topologySpreadConstraints",
    "type",
    "uid",
    "value",
    "volumeMounts",
    "volumes",
    "whole",
    "containerPort",
    "topologyKey",
    "initContainers",
    "ingress",
    "loadBalancer",
    "configMap",
    "data",
    "requests",
    "securityContext",
];

/// What is left out: the server sets it.
const SET_BY_SERVERS: &[&str] = &[
    "managedFields",
    "creationTimestamp",
    "deletionTimestamp",
    "resourceVersion",
    "selfLink",
    "generation",
    "namespace",
    "deletionGracePeriodSeconds",
];

/// Keys of lists and maps. Few, so that writers meet.
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// How odd values may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taste {
    /// Everything fits its type.
    Fitting,
    /// Now and then a value of a wrong type, an unknown member, a key twice or none.
    Odd,
}

/// Makes values of schemas.
#[derive(Debug)]
pub(super) struct Typed<'a> {
    pub(super) random: &'a mut Random,
    pub(super) taste: Taste,
}

impl Typed<'_> {
    fn is_odd(&mut self, permille: usize) -> bool {
        self.taste == Taste::Odd && self.random.chance(permille)
    }

    fn is_picked(&mut self, name: &str, permille: usize) -> bool {
        let frequent = FREQUENT.contains(&name);
        !SET_BY_SERVERS.contains(&name) && self.random.chance(if frequent { permille } else { 8 })
    }

    /// A value of a schema, with members that many of a thousand times.
    pub(super) fn value(&mut self, schema: View<'_>, permille: usize) -> Value {
        if self.is_odd(4) {
            return self.wrong();
        }
        match schema.shape {
            Shape::Object => self.object(schema, permille),
            Shape::Array => Value::Array(self.list(schema, permille)),
            Shape::Any => self.free(2),
            _ => self.scalar(schema),
        }
    }

    fn wrong(&mut self) -> Value {
        match self.random.below(7) {
            0 => Value::Null,
            1 => json!(1),
            2 => json!("a"),
            3 => json!([]),
            4 => json!({}),
            5 => json!(1.5),
            _ => json!(true),
        }
    }

    fn free(&mut self, depth: usize) -> Value {
        match self.random.below(if depth == 0 { 3 } else { 6 }) {
            0 => json!(1),
            1 => json!("a"),
            2 => json!(true),
            3 => (0..self.random.below(3)).map(|_| self.free(depth - 1)).collect(),
            _ => {
                let n = self.random.below(3);
                let members = (0..n).map(|_| (self.key(), self.free(depth - 1)));
                Value::Object(members.collect())
            }
        }
    }

    fn key(&mut self) -> String {
        self.random.of(&KEYS).to_owned()
    }

    fn object(&mut self, schema: View<'_>, permille: usize) -> Value {
        let mut members = Map::new();
        for property in &schema.node().properties {
            if self.is_picked(&property.name, permille) {
                let value = self.value(schema.at(property.id), permille * 9 / 10);
                members.insert(property.name.to_string(), value);
            }
        }
        if let Some(additional) = schema.additional.filter(|_| schema.properties.is_empty()) {
            for _ in 0..self.random.below(3) {
                let key = self.key();
                members.insert(key, self.value(schema.at(additional), permille));
            }
        } else if schema.preserve_unknown {
            for _ in 0..self.random.below(3) {
                let (key, value) = (self.key(), self.free(2));
                members.insert(key, value);
            }
        } else if self.is_odd(4) {
            members.insert("unknown".to_owned(), json!(1));
        }
        Value::Object(members)
    }

    fn list(&mut self, schema: View<'_>, permille: usize) -> Vec<Value> {
        let Some(items) = schema.items() else { return Vec::new() };
        let n = self.random.below(4);
        let keys = identity(schema);
        let mut all: Vec<Value> = (0..n).map(|_| self.element(items, &keys, permille)).collect();
        let is_set = schema.list_type == ListType::Set || schema.patch.merge;
        if (!keys.is_empty() || is_set) && !self.is_odd(20) {
            let mut seen = Vec::new();
            all.retain(|element| {
                let id: Vec<Value> = match keys.is_empty() {
                    true => vec![element.clone()],
                    false => keys.iter().map(|key| element[key].clone()).collect(),
                };
                let is_new = !seen.contains(&id);
                seen.push(id);
                is_new
            });
        }
        all
    }

    fn element(&mut self, items: View<'_>, keys: &[String], permille: usize) -> Value {
        let mut element = self.value(items, permille / 2);
        if let Value::Object(members) = &mut element {
            for key in keys {
                let property = items.property(key);
                let optional = property.is_some_and(|p| p.default.is_some());
                let left_out = if optional { self.random.chance(400) } else { self.is_odd(10) };
                match property {
                    Some(property) if !left_out => {
                        members.insert(key.clone(), self.scalar(property));
                    }
                    _ => {
                        members.remove(key);
                    }
                }
            }
        }
        element
    }

    fn scalar(&mut self, schema: View<'_>) -> Value {
        let random = &mut *self.random;
        match (schema.shape, schema.scalar) {
            (Shape::Boolean, _) => json!(random.chance(500)),
            (Shape::Integer, _) => json!(*random.of(&[&0, &1, &2, &80])),
            (Shape::Number, _) => json!(*random.of(&[&0.5, &2.5])),
            (Shape::IntOrString, _) if random.chance(500) => json!(*random.of(&[&0, &1, &80])),
            (Shape::IntOrString, _) => json!(random.of(&["", "a", "10%"])),
            (_, Scalar::Quantity) => match random.below(8) {
                0 => json!(1),
                _ => json!(random.of(&["0", "1", "100m", "1Gi", "1000m", "0.5"])),
            },
            (_, Scalar::Time) => {
                json!(random.of(&["2026-01-02T03:04:05Z", "1970-01-01T00:00:00Z"]))
            }
            (_, Scalar::MicroTime) => json!("2026-01-02T03:04:05.000006Z"),
            (_, Scalar::Bytes) => json!(random.of(&["", "YQ=="])),
            (_, Scalar::Duration) => json!("1s"),
            _ if random.chance(30) => json!(""),
            _ => json!(random.of(&KEYS)),
        }
    }

    /// A strategic merge patch of an object (its part `old`).
    pub(super) fn patch(
        &mut self,
        schema: View<'_>,
        old: Option<&Value>,
        permille: usize,
    ) -> Value {
        let mut patch = Map::new();
        let names: Vec<&str> = schema.node().properties.iter().map(|p| &*p.name).collect();
        for name in names {
            let there = old.and_then(|old| old.get(name));
            let permille = if there.is_some() { permille * 5 / 4 } else { permille };
            if self.is_picked(name, permille)
                && let Some(field) = schema.property(name)
            {
                self.member(&mut patch, name, field, there, permille);
            }
        }
        if let Some(additional) = schema.additional.filter(|_| schema.properties.is_empty()) {
            for _ in 0..self.random.below(3) {
                let key = self.key();
                let there = old.and_then(|old| old.get(&key));
                self.member(&mut patch, &key, schema.at(additional), there, permille);
            }
        }
        if self.random.chance(12) {
            let directive = self.random.of(&["replace", "delete", "merge", "retain", ""]);
            patch.insert("$patch".to_owned(), json!(directive));
        }
        let retains = if schema.patch.retain_keys { 300 } else { 12 };
        if self.random.chance(retains) {
            let mut kept: Vec<Value> = patch.keys().map(|name| json!(name)).collect();
            if self.random.chance(200) {
                kept.pop();
            }
            if self.random.chance(200) {
                kept.push(json!(self.random.of(&["name", "type", "a"])));
            }
            let kept = if self.random.chance(30) { json!("a") } else { json!(kept) };
            patch.insert("$retainKeys".to_owned(), kept);
        }
        if self.random.chance(4) {
            patch.insert("unknown".to_owned(), self.wrong());
        }
        Value::Object(patch)
    }

    fn member(
        &mut self,
        patch: &mut Map<String, Value>,
        name: &str,
        field: View<'_>,
        there: Option<&Value>,
        permille: usize,
    ) {
        if self.random.chance(60) {
            patch.insert(name.to_owned(), Value::Null);
            return;
        }
        let value = match field.shape {
            Shape::Object if self.random.chance(950) => self.patch(field, there, permille * 9 / 10),
            Shape::Array => return self.list_member(patch, name, field, there, permille),
            _ => self.value(field, permille),
        };
        patch.insert(name.to_owned(), value);
    }

    /// A list with its directives.
    fn list_member(
        &mut self,
        patch: &mut Map<String, Value>,
        name: &str,
        field: View<'_>,
        there: Option<&Value>,
        permille: usize,
    ) {
        let old = there.and_then(Value::as_array).cloned().unwrap_or_default();
        let key = field.patch.merge_key.as_deref().map(str::to_owned);
        if key.is_none() && self.random.chance(if field.patch.merge { 300 } else { 30 }) {
            let mut gone: Vec<Value> =
                old.iter().filter(|_| self.random.chance(500)).cloned().collect();
            gone.push(json!(self.random.of(&KEYS)));
            let gone = if self.random.chance(40) { self.wrong() } else { json!(gone) };
            patch.insert(format!("$deleteFromPrimitiveList/{name}"), gone);
        }
        let mut list = Vec::new();
        if let Some(items) = field.items() {
            for _ in 0..self.random.below(4) {
                let known = old.get(self.random.below(old.len() + 1)).cloned();
                list.push(self.patch_element(items, key.as_deref(), known, permille));
            }
        }
        let has_list = self.random.chance(850);
        if self.random.chance(if field.patch.merge { 350 } else { 30 }) {
            let order = self.order(&old, if has_list { &list } else { &[] }, key.as_deref());
            patch.insert(format!("$setElementOrder/{name}"), order);
        }
        if self.random.chance(4) {
            patch.insert(
                self.random.of(&["$setElementOrder", "$deleteFromPrimitiveList"]).to_owned(),
                json!([]),
            );
        }
        if has_list {
            let list = if self.random.chance(10) { self.wrong() } else { json!(list) };
            patch.insert(name.to_owned(), list);
        }
    }

    fn patch_element(
        &mut self,
        items: View<'_>,
        key: Option<&str>,
        known: Option<Value>,
        permille: usize,
    ) -> Value {
        if items.shape != Shape::Object || self.random.chance(8) {
            return known.unwrap_or_else(|| self.value(items, permille));
        }
        let mut element = self.patch(items, known.as_ref(), permille / 2);
        let Value::Object(members) = &mut element else { return element };
        if let Some(key) = key
            && !self.random.chance(15)
        {
            let id = known.as_ref().and_then(|known| known.get(key)).cloned();
            let id = id.or_else(|| items.property(key).map(|property| self.scalar(property)));
            members.insert(key.to_owned(), id.unwrap_or_default());
        }
        if self.random.chance(120) {
            let directive = match self.random.below(20) {
                0 => "merge",
                1 => "retain",
                2..4 => "replace",
                _ => "delete",
            };
            members.insert("$patch".to_owned(), json!(directive));
            if self.random.chance(500) {
                members.retain(|name, _| name == "$patch" || Some(name.as_str()) == key);
            }
        }
        element
    }

    /// The list of an order directive: mostly what kubectl would write, or what is near it.
    fn order(&mut self, old: &[Value], list: &[Value], key: Option<&str>) -> Value {
        let id = |element: &Value| match key {
            Some(key) => json!({key: element.get(key)}),
            None => element.clone(),
        };
        let is_kept = |element: &&Value| element.get("$patch").is_none();
        let mut named: Vec<Value> = list.iter().filter(is_kept).map(id).collect();
        let mut others: Vec<Value> = old.iter().map(id).collect();
        others.retain(|other| !named.contains(other) && !self.random.chance(150));
        if self.random.chance(250) {
            self.random.shuffle(&mut named);
        }
        for other in others {
            named.insert(self.random.below(named.len() + 1), other);
        }
        match self.random.below(40) {
            0 => self.wrong(),
            1 => {
                named.pop();
                json!(named)
            }
            2 => {
                named.push(json!("a"));
                json!(named)
            }
            _ => json!(named),
        }
    }
}

/// The members that identify an element of a list: under apply, else under strategic merge.
fn identity(schema: View<'_>) -> Vec<String> {
    match &schema.list_type {
        ListType::Map(keys) => keys.iter().map(|key| key.to_string()).collect(),
        _ => schema.patch.merge_key.iter().map(|key| key.to_string()).collect(),
    }
}
