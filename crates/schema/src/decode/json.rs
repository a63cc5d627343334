//! JSON with an eye on members that are given twice.
use super::budget::Budget;
use super::place::At;
use super::{DecodeError, Decoded, JSON_DEPTH_MAX, number, syntax};
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::map::Entry;
use serde_json::{Map, Value};
use setpoint_object::field::quote;
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

/// The text of a body as serde_json reads it, if Go does.
pub(super) fn readable(body: &[u8]) -> Cow<'_, str> {
    let mut text = String::from_utf8_lossy(body);
    if let Some(whole) = syntax::without_lone_surrogates(&text) {
        text = whole.into();
    }
    if let Some(within) = syntax::within_float(&text) {
        text = within.into();
    }
    text
}

pub(super) fn parse(body: &[u8]) -> Result<Decoded, DecodeError> {
    parse_within(body, Budget::default()).map(|(decoded, _)| decoded)
}

/// Parses, and leaves integral floats. `takes_any`: also numbers beyond `float64`, as the largest
/// one.
pub(super) fn parse_typed(body: &[u8], takes_any: bool) -> Result<Decoded, DecodeError> {
    let notes = Notes { floats: true, takes_any, ..Notes::default() };
    read_with(body, notes).map(|(decoded, _)| decoded)
}

/// Parses a text that is a part of a larger body: what that has taken before counts.
pub(super) fn parse_within(body: &[u8], budget: Budget) -> Result<(Decoded, Budget), DecodeError> {
    read_with(body, Notes { budget, ..Notes::default() })
}

/// Parses a list whose elements are structs with these members, and leaves integral floats. Notes
/// unknown members of the elements and duplicate members, in document order.
pub(super) fn parse_elements(
    body: &[u8],
    members: &'static [&'static str],
) -> Result<Decoded, DecodeError> {
    let notes = Notes { floats: true, element_members: Some(members), ..Notes::default() };
    read_with(body, notes).map(|(decoded, _)| decoded)
}

fn read_with(body: &[u8], initial: Notes) -> Result<(Decoded, Budget), DecodeError> {
    let text = match std::str::from_utf8(body) {
        Ok(text) => Cow::Borrowed(text),
        // Go replaces what is no UTF-8 by U+FFFD.
        Err(_) => String::from_utf8_lossy(body),
    };
    let mut notes = initial.clone();
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let parsed = Tree { notes: &mut notes, at: &At::root("") }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match parsed {
        Ok(value) => Ok((Decoded { value, problems: notes.problems }, notes.budget)),
        Err(error) => {
            if let Some(fault) = syntax::go_error(body, JSON_DEPTH_MAX) {
                return Err(DecodeError(fault));
            }
            // Valid JSON that serde_json refuses. Go reads half a surrogate pair as U+FFFD.
            if let Some(whole) = syntax::without_lone_surrogates(&text) {
                return read_with(whole.as_bytes(), initial);
            }
            // Of a type, Go reads the numbers that it has a place for.
            if initial.takes_any
                && let Some(within) = syntax::within_float(&text)
            {
                return read_with(within.as_bytes(), initial);
            }
            Err(DecodeError(match syntax::number_beyond_float(&text) {
                Some(number) => super::wrong_type(&format!("number {number}"), "", "float64"),
                None => error.to_string(),
            }))
        }
    }
}

/// Why a text is neither a JSON object nor `null`: what Go's decoder says when it reads a map.
pub fn json_object_fault(text: &[u8]) -> Option<String> {
    match parse(text) {
        Ok(Decoded { value: Value::Object(_) | Value::Null, .. }) => None,
        Ok(decoded) => {
            let found = super::go_type::found(&decoded.value, false);
            Some(super::wrong_type(&found, "", "map[string]interface {}"))
        }
        Err(error) => Some(error.0),
    }
}

/// What the parser has noticed and how much it has made.
#[derive(Clone, Default)]
struct Notes {
    problems: Vec<String>,
    budget: Budget,
    /// Whether integral floats stay floats.
    floats: bool,
    /// Whether numbers beyond `float64` are taken.
    takes_any: bool,
    /// The members that elements of the outermost list may have.
    element_members: Option<&'static [&'static str]>,
}

impl Notes {
    /// Notes a problem of the member at a place.
    fn note(&mut self, what: &str, at: &At<'_>) {
        super::note(&mut self.problems, || format!("{what} field {}", quote(&at.path())));
    }
    /// Notes the same before the problems after the first `n_before`.
    fn note_before(&mut self, n_before: usize, what: &str, at: &At<'_>) {
        let later = self.problems.split_off(n_before);
        self.note(what, at);
        for problem in later {
            super::note(&mut self.problems, || problem);
        }
    }
    /// Whether `key` is no member of what is at a place.
    fn is_unknown(&self, at: &At<'_>, key: &str) -> bool {
        self.element_members.is_some_and(|members| at.is_top_element() && !members.contains(&key))
    }
}

/// Deserializes one value.
struct Tree<'a> {
    notes: &'a mut Notes,
    at: &'a At<'a>,
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.notes.budget.value(0).map_err(D::Error::custom)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(integer(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(float(value, self.notes.floats))
    }
    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.notes.budget.value(value.len()).map_err(E::custom)?;
        Ok(Value::String(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let Self { notes, at } = self;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Tree { notes, at: &at.index(items.len()) })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let Self { notes, at } = self;
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let is_unknown = notes.is_unknown(at, &key);
            if is_unknown {
                notes.note("unknown", &at.key(&key));
            }
            notes.budget.member(members.len(), key.len()).map_err(A::Error::custom)?;
            let n_problems = notes.problems.len();
            let value = map.next_value_seed(Tree { notes, at: &at.key(&key) })?;
            if is_unknown {
                // Go does not look into it.
                notes.problems.truncate(n_problems);
            }
            match members.entry(key) {
                Entry::Vacant(place) => _ = place.insert(value),
                Entry::Occupied(mut earlier) => {
                    if !is_unknown {
                        let at = at.key(earlier.key());
                        notes.note_before(n_problems, "duplicate", &at);
                    }
                    // Go tells of what cannot be a text even if a text follows.
                    let is_told = notes.element_members.is_some()
                        && at.is_top_element()
                        && earlier.key() != "value"
                        && !matches!(earlier.get(), Value::String(_) | Value::Null);
                    if !is_told {
                        earlier.insert(value);
                    }
                }
            }
        }
        Ok(Value::Object(members))
    }
}

/// A number that serde_json reads as `u64`.
pub(super) fn integer(value: u64) -> Value {
    i64::try_from(value).map_or_else(|_| Value::from(value as f64), Value::from)
}

/// A number that serde_json reads as `f64`. `stays`: an integral one stays a float.
pub(super) fn float(value: f64, stays: bool) -> Value {
    // `-0` is an integer, and serde_json reads it as a float.
    match stays && value != 0.0 {
        true => Value::from(value),
        false => number::float(value).unwrap_or_default(),
    }
}

/// The text of the number at a path like `spec.containers[0].ports[1].hostPort`.
pub fn number_at(body: &[u8], path: &str) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = NumberAt { path, found: None }.deserialize(&mut deserializer).ok()??;
    found.starts_with(|c: char| c == '-' || c.is_ascii_digit()).then_some(found)
}

/// Reads the value at the rest of a path; of a member given twice, the last one.
struct NumberAt<'p> {
    path: &'p str,
    found: Option<String>,
}

/// The rest of a path after a member or an index, if it leads there.
fn after<'p>(path: &'p str, step: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(step)?;
    match rest.as_bytes().first() {
        None | Some(b'[') => Some(rest),
        Some(b'.') => Some(&rest[1..]),
        Some(_) => None,
    }
}

/// Which of some paths like `spec.containers[0].ports[1].hostPort` a body comes to first.
pub(super) fn first_of<'p>(body: &[u8], paths: impl Iterator<Item = &'p str>) -> Option<usize> {
    let text = readable(body);
    let found = Cell::new(None);
    let search = FirstOf { paths: paths.enumerate().collect(), found: &found };
    // What is found ends the reading, which therefore fails.
    _ = search.deserialize(&mut serde_json::Deserializer::from_str(&text));
    found.get()
}

/// Of some paths, whose values are wrong, the one that a body comes to first.
pub(crate) fn first_of_wrong<'p>(
    body: &[u8],
    wrong: impl Iterator<Item = &'p str> + Clone,
) -> Option<&'p str> {
    let mut all = wrong.clone();
    let first = all.next()?;
    // One alone needs no search. A text that is no JSON has the order of names.
    match all.next().and_then(|_| first_of(body, wrong.clone())) {
        Some(at) => wrong.clone().nth(at),
        None => Some(first),
    }
}

/// Reads a value that some paths lead into: their numbers, and what is left of them.
struct FirstOf<'p, 'f> {
    paths: Vec<(usize, &'p str)>,
    found: &'f Cell<Option<usize>>,
}

impl<'p> FirstOf<'p, '_> {
    /// The same below a member or an index.
    fn below(&self, step: &str) -> Self {
        let inside = |(at, path): &(usize, &'p str)| Some((*at, after(path, step)?));
        Self { paths: self.paths.iter().filter_map(inside).collect(), found: self.found }
    }
}

impl<'de> DeserializeSeed<'de> for FirstOf<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if let Some((at, _)) = self.paths.iter().find(|(_, path)| path.is_empty()) {
            self.found.set(Some(*at));
            return Err(D::Error::custom("found"));
        }
        match self.paths.is_empty() {
            true => deserializer.deserialize_ignored_any(IgnoredAny).map(drop),
            false => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for FirstOf<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }
    // A path seems to lead into a scalar if a key has a dot.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        while seq.next_element_seed(self.below(&format!("[{index}]")))?.is_some() {
            index += 1;
        }
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(self.below(&key))?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for NumberAt<'_> {
    type Value = Option<String>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.path.is_empty() {
            let raw = <&serde_json::value::RawValue>::deserialize(deserializer)?;
            return Ok(Some(raw.get().to_owned()));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NumberAt<'_> {
    type Value = Option<String>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self::Value, A::Error> {
        for index in 0.. {
            let step = format!("[{index}]");
            let more = match after(self.path, &step) {
                Some(path) => {
                    let item = seq.next_element_seed(NumberAt { path, found: None })?;
                    let more = item.is_some();
                    self.found = item.flatten().or(self.found);
                    more
                }
                None => seq.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                break;
            }
        }
        Ok(self.found)
    }
    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match after(self.path, &key) {
                Some(path) => {
                    let member = map.next_value_seed(NumberAt { path, found: None })?;
                    self.found = member.or(self.found);
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(self.found)
    }
}
