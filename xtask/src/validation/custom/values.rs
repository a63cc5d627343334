//! Values for schemas, right and odd ones, and the places of an object.

use super::schema::{FORMATS, PATTERNS};
use crate::validation::change::Change;
use crate::validation::random::Random;
use serde_json::{Map, Value, json};

const WORDS: &[&str] = &["a", "b", "ab", "x", "abc", "hello", "ü"];
const KEYS: &[&str] = &["a", "b", "c", "k.1", "x y"];
const INTEGERS: &[i64] = &[0, 1, 2, 3, 5, 10, -1, 100, 4];

/// How deep values are made.
const DEPTH_MAX: usize = 7;
/// How many items a list is given.
const ITEMS_MAX: usize = 3;

/// A value that a schema takes, most times.
pub(super) fn valid(random: &mut Random, schema: &Value, depth: usize) -> Value {
    if schema["nullable"] == true && random.percent(15) {
        return Value::Null;
    }
    if let Some(some) = schema["enum"].as_array() {
        return random.pick(some).cloned().unwrap_or_default();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return [json!(1), json!("50%"), json!("a"), json!(0)][random.below(4)].clone();
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        return json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "e", "labels": {"a": "b"}},
            "data": {"a": "b"},
        });
    }
    match schema["type"].as_str() {
        Some("boolean") => random.percent(50).into(),
        Some("integer") => integer(random, schema),
        Some("number") => {
            [json!(0.5), json!(1), json!(-1.5), json!(1e3), json!(3.0)][random.below(5)].clone()
        }
        Some("string") => string(random, schema),
        Some("array") => list(random, schema, depth),
        Some("object") if schema.get("properties").is_some() => object(random, schema, depth),
        Some("object") if schema.get("additionalProperties").is_some() => {
            let mut map = Map::new();
            let max = schema["maxProperties"].as_u64().map_or(ITEMS_MAX, |max| max as usize);
            for _ in 0..random.below(max.min(ITEMS_MAX) + 1) {
                let key = random.pick(KEYS).copied().unwrap_or_default();
                let values = &schema["additionalProperties"];
                map.insert(key.to_owned(), valid(random, values, depth + 1));
            }
            map.into()
        }
        _ => {
            let some = [json!({}), json!({"a": 1, "z": {"y": [1, "b", null]}}), json!({"b": null})];
            some[random.below(some.len())].clone()
        }
    }
}

fn integer(random: &mut Random, schema: &Value) -> Value {
    let min = schema["minimum"].as_i64().unwrap_or(-10);
    let max = schema["maximum"].as_i64().unwrap_or(1000);
    let max = if schema["exclusiveMaximum"] == true { max - 1 } else { max };
    let step = schema["multipleOf"].as_i64().unwrap_or(1);
    let fits = |value: &&i64| (min..=max).contains(*value) && **value % step == 0;
    let some: Vec<i64> = INTEGERS.iter().filter(fits).copied().collect();
    random.pick(&some).copied().unwrap_or(min).into()
}

fn string(random: &mut Random, schema: &Value) -> Value {
    let listed = |rows: &[(&str, &str)], of: &str| {
        rows.iter().find(|(name, _)| schema[of] == *name).map(|(_, text)| Value::from(*text))
    };
    if let Some(text) = listed(PATTERNS, "pattern").or_else(|| listed(FORMATS, "format")) {
        return text;
    }
    let mut text = random.pick(WORDS).copied().unwrap_or_default().to_owned();
    let min = schema["minLength"].as_u64().unwrap_or(0) as usize;
    let max = schema["maxLength"].as_u64().unwrap_or(100) as usize;
    while text.chars().count() < min {
        text.push('a');
    }
    text.chars().take(max).collect::<String>().into()
}

fn list(random: &mut Random, schema: &Value, depth: usize) -> Value {
    let max = schema["maxItems"].as_u64().map_or(ITEMS_MAX, |max| max as usize).min(ITEMS_MAX);
    let min = schema["minItems"].as_u64().unwrap_or(0) as usize;
    let n = if depth > DEPTH_MAX { min } else { min + random.below((max + 1).saturating_sub(min)) };
    let mut items: Vec<Value> = Vec::new();
    for _ in 0..n {
        let item = valid(random, &schema["items"], depth + 1);
        let keys = schema["x-kubernetes-list-map-keys"].as_array();
        let is_same = |other: &Value| match keys {
            Some(keys) => keys.iter().filter_map(Value::as_str).all(|key| other[key] == item[key]),
            None => *other == item,
        };
        if !items.iter().any(is_same) {
            items.push(item);
        }
    }
    items.into()
}

fn object(random: &mut Random, schema: &Value, depth: usize) -> Value {
    let mut object = Map::new();
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let mut needed = schema["required"].as_array().into_iter().flatten();
        let is_needed = needed.any(|one| one == name);
        if is_needed || depth <= DEPTH_MAX && random.percent(60) {
            object.insert(name.clone(), valid(random, member, depth + 1));
        }
    }
    object.into()
}

/// A value that a schema may refuse, or that is written oddly.
fn odd(random: &mut Random) -> Value {
    let some = [
        json!(""),
        json!("a"),
        json!("Abc d"),
        json!("1"),
        json!(0),
        json!(-1),
        json!(7),
        json!(1.5),
        json!(2.0),
        json!(1e20),
        json!(4_294_967_296_i64),
        json!(true),
        json!([]),
        json!([1]),
        json!(["a", "a"]),
        json!([null]),
        json!({}),
        json!({"unknown": 1}),
        json!({"a": null}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "A b", "unknown": 1}}),
        Value::Null,
    ];
    some[random.below(some.len())].clone()
}

/// A place in an object: there, or a declared member that is missing.
#[derive(Clone, Debug)]
struct Place<'a> {
    /// A JSON pointer.
    pointer: String,
    schema: &'a Value,
    is_there: bool,
}

fn walk<'a>(value: &Value, schema: &'a Value, pointer: String, found: &mut Vec<Place<'a>>) {
    if !pointer.is_empty() {
        found.push(Place { pointer: pointer.clone(), schema, is_there: true });
    }
    match value {
        Value::Object(members) => {
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                let is_root = pointer.is_empty();
                if is_root && (name == "metadata" || name.starts_with("mark")) {
                    continue;
                }
                let pointer = format!("{pointer}/{name}");
                match members.get(name) {
                    Some(value) => walk(value, schema, pointer, found),
                    None => found.push(Place { pointer, schema, is_there: false }),
                }
            }
            if let Some(values) = schema.get("additionalProperties") {
                for (key, value) in members {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    walk(value, values, format!("{pointer}/{key}"), found);
                }
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                walk(value, &schema["items"], format!("{pointer}/{at}"), found);
            }
        }
        _ => {}
    }
}

/// One to four changes of an object, of its status or of the rest, in order.
pub(super) fn changes(
    random: &mut Random,
    object: &Value,
    schema: &Value,
    is_status: bool,
) -> Vec<Change> {
    let mut object = object.clone();
    let mut changes = Vec::new();
    let is_any = random.percent(6);
    for _ in 0..1 + random.below(4) {
        if !is_status && random.percent(8) {
            let change = metadata(random);
            if change.apply(&mut object) {
                changes.push(change);
            }
            continue;
        }
        let mut places = Vec::new();
        walk(&object, schema, String::new(), &mut places);
        let wants_missing = random.percent(35);
        places.retain(|one| {
            one.is_there != wants_missing
                && (is_any || one.pointer.starts_with("/status") == is_status)
        });
        let Some(place) = random.pick(&places).cloned() else { continue };
        let old = object.pointer(&place.pointer).cloned();
        let change = change(random, &place, old);
        if change.apply(&mut object) {
            changes.push(change);
        }
    }
    changes
}

fn change(random: &mut Random, place: &Place<'_>, old: Option<Value>) -> Change {
    let pointer = place.pointer.clone();
    let new = |random: &mut Random| valid(random, place.schema, 2);
    let value = match (random.below(100), old) {
        (0..6, _) => Some(odd(random)),
        (6..9, _) => Some(Value::Null),
        (9..25, Some(_)) => None,
        (25..60, Some(Value::Array(mut items))) => {
            let at = random.below(items.len());
            match random.below(6) {
                0 if !items.is_empty() => drop(items.remove(at)),
                1 if !items.is_empty() => items.push(items[at].clone()),
                2 => items.reverse(),
                _ => items.push(valid(random, &place.schema["items"], 3)),
            }
            Some(items.into())
        }
        (25..60, Some(Value::Object(mut members))) => {
            match place.schema.get("additionalProperties") {
                Some(values) => {
                    let key = random.pick(KEYS).copied().unwrap_or_default();
                    members.insert(key.to_owned(), valid(random, values, 3));
                }
                None => drop(members.insert("unknown".to_owned(), json!({"a": 1}))),
            }
            Some(members.into())
        }
        _ => Some(new(random)),
    };
    Change { pointer, value }
}

fn metadata(random: &mut Random) -> Change {
    let some = [
        ("/metadata/labels", json!({"a": "b"})),
        ("/metadata/labels", json!({"a": "c", "b": "d"})),
        ("/metadata/annotations", json!({"a": "b"})),
        ("/metadata/annotations", Value::Null),
        ("/metadata/finalizers", json!(["example.com/a"])),
        ("/metadata/finalizers", json!(["example.com/b", "example.com/a"])),
        ("/metadata/finalizers", json!([])),
        ("/metadata/unknown", json!(1)),
        ("/metadata/labels", json!({"a": 1})),
    ];
    let (pointer, value) = some[random.below(some.len())].clone();
    Change { pointer: pointer.to_owned(), value: Some(value) }
}
