//! Small changes of objects.

use super::bases::Material;
use super::places::{Place, places};
use super::random::Random;
use serde_json::{Map, Value, json};
use setpoint_facts::{DEFINITIONS, Field, Type};

/// How deep new values are made.
const DEPTH_MAX: usize = 4;

/// A change of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// A JSON pointer.
    pub(super) pointer: String,
    /// The new value; `None` removes it.
    pub(super) value: Option<Value>,
}

impl Change {
    /// Applies it. Returns false if its parent is missing.
    pub(super) fn apply(&self, object: &mut Value) -> bool {
        let Some((parent, member)) = self.pointer.rsplit_once('/') else { return false };
        let member = member.replace("~1", "/").replace("~0", "~");
        match (object.pointer_mut(parent), &self.value) {
            (Some(Value::Object(members)), Some(value)) => {
                members.insert(member, value.clone());
                true
            }
            (Some(Value::Object(members)), None) => members.remove(&member).is_some(),
            (Some(Value::Array(items)), value) => {
                let Ok(at) = member.parse::<usize>() else { return false };
                match (items.get_mut(at), value) {
                    (Some(item), Some(value)) => *item = value.clone(),
                    (Some(_), None) => drop(items.remove(at)),
                    (None, _) => return false,
                }
                true
            }
            _ => false,
        }
    }

    /// One line, not longer than a row of a table may be.
    pub(super) fn show(&self) -> String {
        let path = self.pointer.trim_start_matches('/').replace('/', ".").replace("~1", "/");
        match &self.value {
            None => format!("no {path}"),
            Some(value) => {
                let text = value.to_string();
                let short: String = text.chars().take(160).collect();
                format!("{path} = {short}{}", if short.len() < text.len() { "…" } else { "" })
            }
        }
    }
}

/// Texts that are wrong, or at an edge, for some field.
const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "x",
    "A",
    "a b",
    "-a",
    "a-",
    "a_b",
    "a.b",
    "a..b",
    ".",
    "..",
    "a/b",
    "a/b/c",
    "/a",
    "/a/b",
    "/a/../b",
    "../b",
    "a//b",
    "/",
    "*",
    "*.a.com",
    "*a",
    "example.com",
    "Example.com",
    "example.com/a",
    "example.com/",
    "https://example.com/a",
    "http://a",
    "10.0.0.1",
    "010.0.0.1",
    "10.0.0.256",
    "10.0.0.0/8",
    "10.0.0.1/8",
    "0.0.0.0",
    "127.0.0.1",
    "169.254.1.1",
    "224.0.0.1",
    "::1",
    "fe80::1",
    "2001:db8::1",
    "2001:db8::/64",
    "2001:DB8::1",
    "::ffff:1.2.3.4",
    "80",
    "0",
    "-1",
    "65536",
    "http",
    "http-alt-name-too-long",
    "100%",
    "101%",
    "50%",
    "1.5%",
    "%",
    "1Gi",
    "100m",
    "1.5",
    "1e3",
    "-1Gi",
    "* * * * *",
    "@hourly",
    "@every 1h",
    "TZ=UTC * * * * *",
    "61 * * * *",
    "* * * *",
    "Etc/UTC",
    "Local",
    "Mars/Base",
    "true",
    "None",
    "Always",
    "TCP",
    "tcp",
    "UDP",
    "Exists",
    "In",
    "Equal",
    "NoSchedule",
    "NoExecute",
    "Gt",
    "Foo",
    "foo=bar",
    "kubernetes.io/foo",
    "kubernetes.io/hostname",
    "k8s.io/a",
    "cpu",
    "memory",
    "storage",
    "pods",
    "requests.cpu",
    "hugepages-2Mi",
    "example.com/gpu",
    "ümlaut",
    "a\nb",
    "\u{0}",
    "2026-01-01T00:00:00Z",
    "system:node:a",
    "system-cluster-critical",
    "$(A)",
    "$(",
    "metadata.name",
    "metadata.labels['a']",
    "status.podIP",
    "limits.cpu",
    "a:b",
    "a=b",
    "a,b",
    "1-3",
    "3-1",
    "default",
    "kube-system",
    "self.x > 0",
    "1 +",
    "true && false",
    "{.a}",
    ".spec.a",
    "^[a-z",
    "YQ==",
    "%%%",
    "iqn.2001-04.com.example:a",
];
const INTEGERS: &[i64] = &[
    -2,
    -1,
    0,
    0,
    1,
    1,
    2,
    3,
    5,
    10,
    15,
    30,
    50,
    99,
    100,
    101,
    255,
    256,
    420,
    511,
    512,
    600,
    1000,
    1024,
    3600,
    10000,
    30000,
    32767,
    32768,
    65535,
    65536,
    86400,
    86401,
    100_000,
    1_000_000_000,
    1_000_000_001,
    2_147_483_647,
    2_147_483_648,
    4_294_967_296,
    9_223_372_036_854_775_807,
];
const QUANTITIES: &[&str] = &[
    "0", "1", "-1", "1m", "100m", "1.5", "0.5", "1Gi", "1.5Gi", "1k", "1e3", "10Mi", "-5Gi", "2",
    "1n", "9E", "x", "", "1 Gi",
];
const TIMES: &[&str] = &[
    "2026-01-01T00:00:00Z",
    "2020-01-01T00:00:00Z",
    "2099-01-01T00:00:00Z",
    "2026-01-01T00:00:00.5Z",
    "yesterday",
    "",
];
const KEYS: &[&str] = &[
    "",
    "a",
    "A",
    "a b",
    "app",
    "example.com/a",
    "kubernetes.io/a",
    "a/b/c",
    "-a",
    "a.b",
    "..",
    ".a",
    "cpu",
    "memory",
    "storage",
    "pods",
    "requests.cpu",
    "limits.memory",
    "hugepages-2Mi",
    "example.com/gpu",
    "ephemeral-storage",
    "count/a",
    "foo=bar",
    "requests.storage",
    "attachable-volumes-a",
    "kubernetes.io/os",
    "ü",
];

/// Makes changes from the bases' values and from tables of bad ones.
#[derive(Debug)]
pub(super) struct Changer<'a> {
    pub(super) material: &'a Material,
    pub(super) random: Random,
}

impl Changer<'_> {
    /// One to three changes of an object at places that are wanted, in order.
    pub(super) fn changes(
        &mut self,
        object: &Value,
        ty: Type,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<Change> {
        let n = match self.random.below(10) {
            0..=5 => 1,
            6..=8 => 2,
            _ => 3,
        };
        let mut object = object.clone();
        let mut changes = Vec::new();
        for _ in 0..n {
            let mut places = places(&object, ty);
            let wants_missing = self.random.percent(35);
            places.retain(|one| is_wanted(&one.pointer) && one.is_there != wants_missing);
            let Some(place) = self.random.pick(&places).cloned() else { continue };
            let value = self.value_at(&place, object.pointer(&place.pointer));
            let change = Change { pointer: place.pointer, value };
            if change.apply(&mut object) {
                changes.push(change);
            }
        }
        changes
    }

    /// A new value of a place; `None` removes what is there.
    fn value_at(&mut self, place: &Place, old: Option<&Value>) -> Option<Value> {
        if self.random.percent(1) {
            // A value of another type.
            return Some(
                [json!("a"), json!(1), json!(true), json!([]), json!({}), json!(1.5)]
                    [self.random.below(6)]
                .clone(),
            );
        }
        let Some(old) = old else { return Some(self.new_value(place, 0)) };
        let chance = self.random.below(100);
        match old {
            Value::Array(items) => Some(self.list(items, place, chance)),
            Value::Object(members) => match place.ty {
                Type::Map(_) => Some(self.map(members, place, chance)),
                _ if chance < 40 => None,
                _ if chance < 60 => Some(json!({})),
                _ if chance < 65 => Some(Value::Null),
                _ => Some(self.new_value(place, 0)),
            },
            _ if chance < 22 => None,
            _ if chance < 25 => Some(Value::Null),
            _ => Some(self.new_value(place, 0)),
        }
    }

    fn list(&mut self, items: &[Value], place: &Place, chance: usize) -> Value {
        let mut items = items.to_vec();
        let at = self.random.below(items.len());
        let item = match place.ty {
            Type::List(item) => Place { ty: *item, ..place.clone() },
            _ => place.clone(),
        };
        match chance {
            0..15 => items.clear(),
            15..40 if !items.is_empty() => drop(items.remove(at)),
            40..60 if !items.is_empty() => items.push(items[at].clone()),
            60..65 => items.reverse(),
            65..67 => return Value::Null,
            67..80 => match self.other(place) {
                Some(Value::Array(others)) => items.extend(others),
                _ => items.push(self.new_value(&item, 1)),
            },
            _ => items.push(self.new_value(&item, 1)),
        }
        Value::Array(items)
    }

    fn map(&mut self, members: &Map<String, Value>, place: &Place, chance: usize) -> Value {
        let mut members = members.clone();
        let keys: Vec<String> = members.keys().cloned().collect();
        let key = self.random.pick(&keys).cloned();
        let item = match place.ty {
            Type::Map(item) => Place { ty: *item, ..place.clone() },
            _ => place.clone(),
        };
        match (chance, key) {
            (0..15, _) => members.clear(),
            (15..35, Some(key)) => drop(members.remove(&key)),
            (35..60, Some(key)) => {
                if let Some(value) = members.remove(&key) {
                    members.insert(self.key(), value);
                }
            }
            (60..62, _) => return Value::Null,
            _ => drop(members.insert(self.key(), self.new_value(&item, 1))),
        }
        Value::Object(members)
    }

    fn key(&mut self) -> String {
        if self.random.percent(4) {
            return "k".repeat([64, 254, 300][self.random.below(3)]);
        }
        self.random.pick(KEYS).copied().unwrap_or_default().to_owned()
    }

    /// What the field has elsewhere.
    fn other(&mut self, place: &Place) -> Option<Value> {
        self.random.pick(self.material.of_field(place.field?)).cloned()
    }

    fn new_value(&mut self, place: &Place, depth: usize) -> Value {
        if depth == 0
            && self.random.percent(45)
            && let Some(value) = self.other(place)
        {
            return value;
        }
        self.generate(place.ty, place.name(), depth)
    }

    fn generate(&mut self, ty: Type, name: &str, depth: usize) -> Value {
        let random = &mut self.random;
        match ty {
            Type::Str => self.text(name),
            Type::Int => random.pick(INTEGERS).copied().unwrap_or_default().into(),
            Type::Num => json!([0.5, -1.0, 1e3][random.below(3)]),
            Type::Bool => random.percent(50).into(),
            Type::IntOrString if random.percent(50) => {
                random.pick(INTEGERS).copied().unwrap_or_default().into()
            }
            Type::IntOrString => self.text(name),
            Type::Quantity => random.pick(QUANTITIES).copied().into(),
            Type::Time | Type::MicroTime => random.pick(TIMES).copied().into(),
            Type::Bytes => json!(["YQ==", "", "e30=", "%%%"][random.below(4)]),
            Type::Any | Type::Object => {
                json!([json!({}), json!({"a": 1}), json!("a")][random.below(3)])
            }
            Type::List(item) => {
                let n = random.below(3);
                (0..n).map(|_| self.generate(*item, name, depth + 1)).collect()
            }
            Type::Map(item) => {
                let n = random.below(3);
                (0..n)
                    .map(|_| (self.key(), self.generate(*item, name, depth + 1)))
                    .collect::<Map<_, _>>()
                    .into()
            }
            Type::Ref(at) => self.structure(at, depth),
        }
    }

    fn structure(&mut self, at: u16, depth: usize) -> Value {
        let definition = &DEFINITIONS[usize::from(at)];
        if definition.fields.is_empty() {
            return match definition.ty {
                Type::Ref(_) => Value::Null,
                ty => self.generate(ty, "", depth),
            };
        }
        let mut object = Map::new();
        if depth > DEPTH_MAX || self.random.percent(15) {
            return object.into();
        }
        let chance = if definition.fields.len() > 8 { 15 } else { 40 };
        for &Field { name, facts } in definition.fields {
            let ty = facts.ty;
            let is_needed = definition.required.contains(&name) && self.random.percent(90);
            if is_needed || self.random.percent(chance) {
                let place =
                    Place { pointer: String::new(), ty, field: Some((at, name)), is_there: false };
                let elsewhere = self.random.percent(50).then(|| self.other(&place)).flatten();
                let value = elsewhere.unwrap_or_else(|| self.generate(ty, name, depth + 1));
                object.insert(name.to_owned(), value);
            }
        }
        object.into()
    }

    fn text(&mut self, name: &str) -> Value {
        let random = &mut self.random;
        match random.below(100) {
            0..40 => {
                if let Some(value) = random.pick(self.material.of_name(name)) {
                    return value.clone();
                }
            }
            40..45 => {
                let letters = [16, 64, 129, 254, 317, 513, 1100, 33_000];
                let n = letters[random.below(letters.len())];
                return "a".repeat(n).into();
            }
            _ => {}
        }
        random.pick(TEXTS).copied().unwrap_or_default().into()
    }
}

/// The merge patch between two objects.
pub(super) fn merge_patch(old: &Value, new: &Value) -> Value {
    let (Value::Object(a), Value::Object(b)) = (old, new) else { return new.clone() };
    let mut patch = Map::new();
    for key in a.keys().filter(|key| !b.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in b {
        match a.get(key) {
            Some(old) if old == value => {}
            Some(old) => drop(patch.insert(key.clone(), merge_patch(old, value))),
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    patch.into()
}
