//! Texts of documents: JSON and YAML with what a tree of values cannot have. Members that are there
//! twice or in any order, numbers in odd forms, damage.

use crate::validation::random::Random;
use serde_json::Value;

/// How often a node is drawn until it has members.
const DRAWS_MAX: usize = 8;
/// Values that may be wrong anywhere.
const WORDS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "1.5",
    "1.0",
    "1e3",
    "-0",
    "2147483648",
    "9223372036854775808",
    "12345678901234567890123",
    "1e400",
    "\"\"",
    "\"x\"",
    "\"1\"",
    "\"true\"",
    "\" a b \"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\u{fc}<>&\"",
    "\"2026-01-01T00:00:00Z\"",
    "\"5m\"",
    "\"1Gi\"",
    "[]",
    "{}",
    "[null]",
    "[1]",
    "[\"x\"]",
    "[{}]",
    "[[]]",
    "{\"a\":null}",
    "{\"a\":1}",
    "{\"a\":\"b\"}",
    "{\"a\":{}}",
    "{\"\":\"\"}",
    "{\"name\":\"x\"}",
];
/// Values that are no JSON.
const NO_JSON: &[&str] =
    &["01", "+1", ".5", "1.", "0x10", "NaN", "True", "'x'", "x", "\"\\x\"", "\"a", "1 2", "[1,]"];
/// Values in YAML.
const YAML: &[&str] = &[
    "~",
    "yes",
    "off",
    "010",
    "0x10",
    "0o10",
    "1_000",
    ".inf",
    ".nan",
    "+1",
    "1.",
    "!!str 1",
    "!!int \"1\"",
    "!!binary aGk=",
    "!own x",
    "2001-01-01",
    "&a x",
    "*a",
    "'x'",
    "|\n  a\n  b",
    ">-\n  a\n  b",
    "a b # c",
    "{a: b}",
    "[a, 1]",
    "{1: a}",
    "{true: a}",
    "{null: a}",
    "{1.5: a}",
    "? a",
    "@x",
    "%x",
    "\"a",
    "<<",
    "1:30",
    "=",
];
/// Names of members that may be wrong anywhere.
const NAMES: &[&str] =
    &["x", "", "a.b", "kind", "metadata", "name", "items", "$patch", "$setElementOrder/x", "-"];
/// Members of metadata, and values for them.
const META: &[(&str, &[&str])] = &[
    ("name", &["\"\"", "\"a/b\"", "\"A\"", "1", "null", "\"x\"", "\"..\"", "\"%41\""]),
    ("namespace", &["\"\"", "\"other\"", "1", "null", "\"default\""]),
    ("generateName", &["\"g-\"", "1", "\"\"", "\"A\""]),
    ("uid", &["\"\"", "\"x\"", "1", "null"]),
    ("resourceVersion", &["\"\"", "\"0\"", "\"1\"", "\"x\"", "1", "null", "\"-1\""]),
    ("generation", &["1", "0", "-1", "\"1\"", "1.5", "null"]),
    ("creationTimestamp", &["null", "\"2026-01-01T00:00:00Z\"", "\"x\"", "1", "\"\"", "{}"]),
    ("deletionTimestamp", &["null", "\"2026-01-01T00:00:00Z\"", "\"x\"", "\"\""]),
    ("deletionGracePeriodSeconds", &["0", "1", "-1", "\"1\"", "null"]),
    (
        "labels",
        &["null", "{}", "[]", "{\"a\":1}", "{\"a\":null}", "{\"!\":\"b\"}", "{\"a\":\"!\"}"],
    ),
    ("annotations", &["null", "{\"a\":true}", "{\"a b\":\"\"}", "\"x\"", "{\"a\":null}"]),
    ("finalizers", &["null", "[]", "[\"a\"]", "[\"e.io/a\",\"e.io/a\"]", "[null]", "[1]", "\"x\""]),
    (
        "ownerReferences",
        &[
            "null",
            "[]",
            "[{}]",
            "[null]",
            "[{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"p\",\"uid\":\"u\"}]",
            "[{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"p\",\"uid\":\"u\",\"controller\":\
             true}]",
            "[{\"apiVersion\":\"a/b/c\",\"kind\":\"\",\"name\":1}]",
        ],
    ),
    (
        "managedFields",
        &[
            "null",
            "[]",
            "[{}]",
            "[{\"manager\":\"m\",\"operation\":\"Update\"}]",
            "[{\"manager\":\"m\",\"operation\":\"Other\",\"apiVersion\":\"v1\",\
             \"fieldsType\":\"FieldsV1\",\"fieldsV1\":{}}]",
            "[{\"manager\":\"m\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\
             \"fieldsType\":\"FieldsV1\",\"fieldsV1\":{\"f:x\":{}}}]",
            "[{\"manager\":\"m\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\
             \"fieldsType\":\"Other\",\"fieldsV1\":1}]",
        ],
    ),
    ("selfLink", &["\"x\"", "1"]),
    ("clusterName", &["\"x\""]),
    ("x", &["1"]),
];
/// What may be in the place of an object's version, and of its kind.
const VERSIONS: &[&str] = &[
    "\"\"",
    "null",
    "1",
    "\"v1\"",
    "\"apps/v1\"",
    "\"apps/\"",
    "\"/v1\"",
    "\"/\"",
    "\"a/b/c\"",
    "\"nope/v1\"",
    "\"v9\"",
    "\"meta.k8s.io/v1\"",
    "\"__internal\"",
    "\"apps/__internal\"",
    "[]",
];
const KINDS: &[&str] = &[
    "\"\"",
    "null",
    "1",
    "\"Pod\"",
    "\"Nope\"",
    "\"List\"",
    "\"ConfigMapList\"",
    "\"Status\"",
    "\"DeleteOptions\"",
    "\"CreateOptions\"",
    "\"Scale\"",
    "\"Table\"",
    "\"WatchEvent\"",
    "\"pod\"",
    "{}",
];

/// A document, in the order of its text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// Whatever is neither of the others, as it is written.
    Word(String),
    List(Vec<Node>),
    Members(Vec<(String, Node)>),
}

impl Node {
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Array(items) => Self::List(items.iter().map(Self::of).collect()),
            Value::Object(members) => Self::Members(
                members.iter().map(|(name, value)| (name.clone(), Self::of(value))).collect(),
            ),
            word => Self::Word(word.to_string()),
        }
    }

    pub(super) fn word(text: &str) -> Self {
        Self::Word(text.to_owned())
    }

    /// As JSON, if its words are.
    pub(super) fn json(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::json).collect();
                format!("[{}]", items.join(","))
            }
            Self::Members(members) => {
                let members = members.iter();
                let members: Vec<String> = members
                    .map(|(name, value)| format!("{}:{}", quoted(name), value.json()))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// As YAML: the members of the root are lines.
    pub(super) fn yaml(&self) -> String {
        let Self::Members(members) = self else { return self.json() };
        let line = |(name, value): &(String, Node)| {
            let is_plain = name.bytes().all(|byte| byte.is_ascii_alphabetic()) && !name.is_empty();
            let name = if is_plain { name.clone() } else { quoted(name) };
            format!("{name}: {}\n", value.json())
        };
        members.iter().map(line).collect()
    }

    /// How many nodes it has down to a depth.
    fn count(&self, depth: usize) -> usize {
        let below = depth.checked_sub(1);
        1 + match (self, below) {
            (Self::List(items), Some(depth)) => items.iter().map(|item| item.count(depth)).sum(),
            (Self::Members(members), Some(depth)) => {
                members.iter().map(|(_, value)| value.count(depth)).sum::<usize>()
            }
            _ => 0,
        }
    }

    /// The node with a number, down to a depth.
    fn at(&mut self, number: &mut usize, depth: usize) -> Option<&mut Node> {
        if *number == 0 {
            return Some(self);
        }
        *number -= 1;
        let depth = depth.checked_sub(1)?;
        match self {
            Self::Word(_) => None,
            Self::List(items) => items.iter_mut().find_map(|item| item.at(number, depth)),
            Self::Members(members) => {
                members.iter_mut().find_map(|(_, value)| value.at(number, depth))
            }
        }
    }

    fn any(&mut self, random: &mut Random) -> Option<&mut Node> {
        let depth = if random.percent(50) { 2 } else { 64 };
        let mut number = random.below(self.count(depth));
        self.at(&mut number, depth)
    }

    /// The members of some node.
    fn some_members(&mut self, random: &mut Random) -> Option<&mut Vec<(String, Node)>> {
        for _ in 0..DRAWS_MAX {
            let depth = if random.percent(50) { 2 } else { 64 };
            let number = random.below(self.count(depth));
            if matches!(self.at(&mut number.clone(), depth), Some(Self::Members(_))) {
                return match self.at(&mut number.clone(), depth) {
                    Some(Self::Members(members)) => Some(members),
                    _ => None,
                };
            }
        }
        None
    }

    /// Sets a member of the root, or adds it.
    pub(super) fn set(&mut self, name: &str, value: Node) {
        let Self::Members(members) = self else { return };
        match members.iter_mut().find(|(own, _)| own == name) {
            Some((_, own)) => *own = value,
            None => members.push((name.to_owned(), value)),
        }
    }

    /// A member of the root.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        let Self::Members(members) = self else { return None };
        members.iter_mut().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// Makes one change.
    pub(super) fn change(&mut self, random: &mut Random, is_yaml: bool) {
        match random.below(100) {
            0..36 => {
                let word = odd(random, is_yaml);
                if let Some(node) = self.any(random) {
                    *node = Self::Word(word);
                }
            }
            36..48 => {
                let (word, is_same) = (odd(random, is_yaml), random.percent(40));
                let Some(members) = self.some_members(random) else { return };
                let Some((name, value)) = random.pick(members).cloned() else { return };
                let value = if is_same { value } else { Self::Word(word) };
                members.push((name, value));
            }
            48..58 => {
                let (name, word) = (pick(random, NAMES), odd(random, is_yaml));
                let Some(members) = self.some_members(random) else { return };
                let at = random.below(members.len() + 1);
                members.insert(at, (name.to_owned(), Self::Word(word)));
            }
            58..64 => {
                let Some(members) = self.some_members(random) else { return };
                let at = random.below(members.len());
                if let Some((name, _)) = members.get_mut(at) {
                    *name = other_case(name);
                }
            }
            64..71 => {
                let Some(members) = self.some_members(random) else { return };
                for at in 0..members.len() {
                    let to = random.below(members.len());
                    members.swap(at, to);
                }
            }
            71..78 => {
                let Some(members) = self.some_members(random) else { return };
                if !members.is_empty() {
                    members.remove(random.below(members.len()));
                }
            }
            78..90 => {
                let (name, values) = META[random.below(META.len())];
                let value = Self::word(pick(random, values));
                match self.get_mut("metadata") {
                    Some(meta) => meta.set(name, value),
                    None => self.set("metadata", Self::Members(vec![(name.to_owned(), value)])),
                }
            }
            90..94 => self.set("apiVersion", Self::word(pick(random, VERSIONS))),
            94..98 => self.set("kind", Self::word(pick(random, KINDS))),
            _ => *self = Self::Word(odd(random, is_yaml)),
        }
    }
}

fn pick<'a>(random: &mut Random, some: &[&'a str]) -> &'a str {
    random.pick(some).copied().unwrap_or_default()
}

fn odd(random: &mut Random, is_yaml: bool) -> String {
    let some = match random.below(100) {
        0..3 => NO_JSON,
        3..40 if is_yaml => YAML,
        _ => WORDS,
    };
    pick(random, some).to_owned()
}

fn quoted(name: &str) -> String {
    Value::from(name).to_string()
}

fn other_case(name: &str) -> String {
    let upper =
        |c: char| if c.is_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| upper(first).to_string() + chars.as_str())
}

/// A text with some damage.
pub(super) fn damaged(text: &str, random: &mut Random) -> String {
    let middle =
        (0..=text.len()).rev().find(|at| text.is_char_boundary(*at) && at * 2 <= text.len());
    let (head, tail) = text.split_at(middle.unwrap_or_default());
    match random.below(12) {
        0 => String::new(),
        1 => head.to_owned(),
        2 => format!("{text} x"),
        3 => format!("{text}}}"),
        4 => format!("\u{feff}{text}"),
        5 => format!(" \n\t{text}\n\n"),
        6 => format!("// x\n{text}"),
        7 => format!("# x\n{text}"),
        8 => text.replacen('}', ",}", 1),
        9 => format!("{text}\n{text}"),
        10 => format!("---\n{text}\n---\n{text}"),
        _ => format!("{head}\u{1}{tail}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_is_written_as_it_is_held() {
        let value = json!({"a": [1, {"b": null}], "c": "d\n"});
        assert_eq!(Node::of(&value).json(), value.to_string());
        assert_eq!(Node::of(&value).yaml(), "a: [1,{\"b\":null}]\nc: \"d\\n\"\n");
    }

    #[test]
    fn every_node_has_a_number() {
        let mut node = Node::of(&json!({"a": [1, {"b": null}], "c": "d"}));
        let count = node.count(64);
        assert_eq!(count, 6);
        let all: Vec<String> = (0..count)
            .filter_map(|number| node.at(&mut number.clone(), 64).map(|node| node.json()))
            .collect();
        assert_eq!(all[1..], ["[1,{\"b\":null}]", "1", "{\"b\":null}", "null", "\"d\""]);
        assert_eq!(node.count(1), 3);
    }

    #[test]
    fn changes_are_a_function_of_the_seed() {
        let changed = |seed| {
            let mut node = Node::of(&json!({"a": [1, {"b": null}], "metadata": {"name": "d"}}));
            let mut random = Random::new(seed, 0);
            (0..9).for_each(|_| node.change(&mut random, true));
            damaged(&node.json(), &mut random)
        };
        assert_eq!(changed(1), changed(1));
        assert_ne!(changed(1), changed(2));
    }
}
