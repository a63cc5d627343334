//! Documents without a schema, and JSON and merge patches of them.

use super::random::Random;
use serde_json::{Map, Value, json};

/// Names of members; some need escapes, some look like an index.
const NAMES: [&str; 12] = ["a", "b", "c", "d", "a/b", "m~n", "", "0", "-", "é", "~1", "spec"];
/// Texts of tokens that are no index of most lists, or one in an odd form.
const INDEXES: [&str; 14] = [
    "0",
    "1",
    "2",
    "3",
    "9",
    "-",
    "-1",
    "-2",
    "-9",
    "01",
    "+1",
    "x",
    "1e0",
    "99999999999999999999",
];

/// A document: an object.
pub(super) fn document(random: &mut Random) -> Value {
    object(random, 4)
}

fn object(random: &mut Random, depth: usize) -> Value {
    let n = random.below(5);
    let members = (0..n).map(|_| (random.of(&NAMES).to_owned(), value(random, depth - 1)));
    Value::Object(members.collect::<Map<_, _>>())
}

fn value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 6 } else { 12 }) {
        0 => Value::Null,
        1 => json!(random.chance(500)),
        2 => {
            json!(*random.of(&[&0, &1, &-1, &7, &9_007_199_254_740_993_i64, &i64::MAX, &i64::MIN]))
        }
        3 => json!(*random.of(&[&0.5, &1.0, &-1.5, &1e3, &1e-7, &1e21])),
        4 | 5 => json!(random.of(&["", "a", "b", "1", "null", "<&>", "é\u{2028}", "\u{0}"])),
        6..9 => (0..random.below(4)).map(|_| value(random, depth - 1)).collect(),
        _ => object(random, depth),
    }
}

/// The text of a JSON patch.
pub(super) fn json_patch(random: &mut Random, document: &Value) -> String {
    if random.chance(10) {
        let odd =
            ["null", "{}", "[]", "1", "\"\"", "[null]", "[1]", "[[]]", "", "[", "[{}]", "[{}] x"];
        return random.of(&odd).to_owned();
    }
    let paths = pointers(document);
    let operations: Vec<String> =
        (0..=random.below(4)).map(|_| operation(random, document, &paths)).collect();
    format!("[{}]", operations.join(","))
}

fn operation(random: &mut Random, document: &Value, paths: &[String]) -> String {
    let op = match random.below(40) {
        0 => random.of(&["Add", "", "unknown", "remove ", "set"]),
        n => ["add", "remove", "replace", "move", "copy", "test"][n % 6],
    };
    let path = pointer(random, paths);
    let mut members = vec![("op", json!(op)), ("path", json!(path))];
    if matches!(op, "move" | "copy") || random.chance(20) {
        members.push(("from", json!(pointer(random, paths))));
    }
    if matches!(op, "add" | "replace" | "test") || random.chance(20) {
        let there = document.pointer(&path).filter(|_| random.chance(600));
        members.push(("value", there.cloned().unwrap_or_else(|| value(random, 2))));
    }
    match random.below(100) {
        0 => {
            members.remove(random.below(members.len()));
        }
        1 => {
            let at = random.below(members.len());
            members[at].1 = value(random, 1);
        }
        2 => members.push((random.of(&["note", "Op", "PATH", "values"]), value(random, 1))),
        3 => {
            let name = members[random.below(members.len())].0;
            members.push((name, json!(pointer(random, paths))));
        }
        _ => {}
    }
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

/// The pointers to everything in a document.
fn pointers(document: &Value) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut at = 0;
    while at < all.len() && all.len() < 200 {
        let path = all[at].clone();
        match document.pointer(&path) {
            Some(Value::Object(members)) => {
                let names = members.keys().map(|name| name.replace('~', "~0").replace('/', "~1"));
                all.extend(names.map(|name| format!("{path}/{name}")));
            }
            Some(Value::Array(items)) => {
                all.extend((0..items.len()).map(|index| format!("{path}/{index}")));
            }
            _ => {}
        }
        at += 1;
    }
    all
}

fn pointer(random: &mut Random, paths: &[String]) -> String {
    let path = if random.chance(950) && paths.len() > 1 {
        paths[1 + random.below(paths.len() - 1)].clone()
    } else {
        String::new()
    };
    let parent = || path.rsplit_once('/').map_or("", |(parent, _)| parent);
    match random.below(40) {
        0..31 => path,
        31..33 => format!("{}/{}", parent(), random.of(&INDEXES)),
        33..35 => format!("{path}/{}", random.of(&INDEXES)),
        35 => format!(
            "{}/{}",
            parent(),
            random.of(&["a", "b", "a~1b", "m~0n", "new", "~", "~2", "a/b"])
        ),
        36 => format!("{path}/{}", random.of(&["a", "b", "", "new/deep"])),
        37 => path.trim_start_matches('/').to_owned(),
        38 => format!("{}/-", parent()),
        _ => path.replace("~1", "/"),
    }
}

/// The text of a merge patch.
pub(super) fn merge_patch(random: &mut Random, document: &Value) -> String {
    if random.chance(10) {
        let odd = ["null", "[]", "1", "\"a\"", "", "{", "{} x", "true", "[{\"a\":null}]", "-0"];
        return random.of(&odd).to_owned();
    }
    let patch = change(random, document, 3);
    let text = patch.to_string();
    // A member twice: the last one counts.
    match text.strip_prefix('{') {
        Some(rest) if rest.len() > 1 && random.chance(20) => {
            format!("{{\"a\":[null],\"a\":{{\"b\":null}},{rest}")
        }
        _ => text,
    }
}

/// An object that changes some members of another one.
fn change(random: &mut Random, old: &Value, depth: usize) -> Value {
    let mut members = Map::new();
    for (name, member) in old.as_object().into_iter().flatten() {
        match random.below(8) {
            0 => members.insert(name.clone(), Value::Null),
            1 => members.insert(name.clone(), value(random, 2)),
            2..5 if depth > 0 && member.is_object() => {
                members.insert(name.clone(), change(random, member, depth - 1))
            }
            _ => None,
        };
    }
    for _ in 0..random.below(3) {
        members.insert(random.of(&NAMES).to_owned(), value(random, depth.max(1)));
    }
    Value::Object(members)
}
