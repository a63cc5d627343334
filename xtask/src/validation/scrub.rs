//! What differs by chance in the objects of reads and of watches: times, uids, versions, owners of
//! fields, addresses.

use super::answer::shape;
use super::chance::{UID_LEN, is_time};
use crate::http::Answer;
use serde_json::{Map, Value};

/// What a server gives an object by chance.
const CHANCE: &[&str] =
    &["creationTimestamp", "deletionTimestamp", "managedFields", "resourceVersion", "uid"];

/// Removes what differs by chance.
pub(super) fn scrub(value: &mut Value) {
    match value {
        Value::String(text) => {
            if is_time(text) {
                *text = "BY CHANCE".to_owned();
            } else if is_age(text) {
                *text = "AGE".to_owned();
            } else {
                *text = without_uids(text);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        Value::Object(members) => {
            for name in ["managedFields", "resourceVersion", "continue", "remainingItemCount"] {
                if let Some(member) = members.get_mut(name).filter(|member| !member.is_null()) {
                    *member = "BY CHANCE".into();
                }
            }
            // Versions of objects are in messages.
            if members.get("status").is_some_and(|status| status == "Failure")
                && let Some(Value::String(message)) = members.get_mut("message")
            {
                *message = shape(&without_uids(message));
            }
            if let Some(spec) = members.get_mut("spec").and_then(Value::as_object_mut) {
                scrub_spec(spec);
            }
            members.values_mut().for_each(scrub);
        }
        _ => {}
    }
}

/// Removes who asks, and addresses and ports that were free.
fn scrub_spec(spec: &mut Map<String, Value>) {
    for name in ["uid", "username", "groups", "clusterIP", "clusterIPs"] {
        spec.remove(name);
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
}

/// A text with stars in the place of uids and of addresses that were free.
fn without_uids(text: &str) -> String {
    let is_uid = |word: &str| {
        let is_of = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        word.len() == UID_LEN && word.bytes().all(is_of) && word.matches('-').count() == 4
    };
    let parts =
        text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '.'));
    let clean = |part: &str| {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        match is_uid(word) || word.starts_with("10.96.") {
            true => part.replace(word, "*"),
            false => part.to_owned(),
        }
    };
    parts.map(clean).collect()
}

/// An answer without what differs by chance in the objects of a list and of a table, and without
/// the descriptions of columns.
pub(super) fn without_chance_in_items(mut answer: Answer) -> Answer {
    let Ok(mut body) = serde_json::from_slice::<Value>(&answer.body) else { return answer };
    let list = |body: &mut Value, name: &str| {
        body.get_mut(name).and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default()
    };
    if answer.code >= 400 || body["kind"] == "Status" {
        return answer;
    }
    let items = list(&mut body, "items");
    let rows = list(&mut body, "rows").into_iter().map(|mut row| row["object"].take());
    let objects: Vec<Value> = items
        .into_iter()
        .chain(rows)
        .map(|mut object| {
            if let Some(meta) = object["metadata"].as_object_mut() {
                for name in CHANCE {
                    meta.remove(*name);
                }
            }
            object["spec"].as_object_mut().into_iter().for_each(scrub_spec);
            object
        })
        .collect();
    if !objects.is_empty() {
        body["objects"] = objects.into();
    }
    drop_descriptions(&mut body);
    answer.body = body.to_string().into_bytes();
    answer
}

/// Drops the descriptions of a table's columns.
pub(super) fn drop_descriptions(table: &mut Value) {
    let columns = table.get_mut("columnDefinitions").and_then(Value::as_array_mut);
    columns.into_iter().flatten().for_each(|column| drop(column["description"].take()));
}

/// `5s`, `2m3s`.
fn is_age(text: &str) -> bool {
    let is_of = |c: char| c.is_ascii_digit() || matches!(c, 's' | 'm' | 'h' | 'd');
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(['s', 'm', 'h', 'd'])
        && text.chars().all(is_of)
        && text.len() < 9
}
