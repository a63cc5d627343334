//! JSON with an eye on members that are given twice.
use super::budget::Budget;
use super::{DecodeError, Decoded, JSON_DEPTH_MAX, number, syntax};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use setpoint_object::field::quote;
use std::fmt;

pub(super) fn parse(body: &[u8]) -> Result<Decoded, DecodeError> {
    parse_within(body, Budget::default()).map(|(decoded, _)| decoded)
}

/// Parses a text that is a part of a larger body: what that has taken before counts.
pub(super) fn parse_within(body: &[u8], budget: Budget) -> Result<(Decoded, Budget), DecodeError> {
    let text = match std::str::from_utf8(body) {
        Ok(text) => std::borrow::Cow::Borrowed(text),
        // Go replaces what is no UTF-8 by U+FFFD.
        Err(_) => String::from_utf8_lossy(body),
    };
    let mut notes = Notes { budget: budget.clone(), ..Notes::default() };
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let parsed = Tree(&mut notes)
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match parsed {
        Ok(value) => Ok((Decoded { value, problems: notes.duplicates }, notes.budget)),
        Err(error) => {
            if let Some(fault) = syntax::go_error(text.as_bytes(), JSON_DEPTH_MAX) {
                return Err(DecodeError(fault));
            }
            // Valid JSON that serde_json refuses. Go reads half a surrogate pair as U+FFFD.
            if let Some(whole) = syntax::without_lone_surrogates(&text) {
                return parse_within(whole.as_bytes(), budget);
            }
            Err(DecodeError(match syntax::number_beyond_float(&text) {
                Some(number) => {
                    format!("json: cannot unmarshal number {number} into Go value of type float64")
                }
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
            Some(format!(
                "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
            ))
        }
        Err(error) => Some(error.0),
    }
}

/// Where the parser stands, what it has noticed and how much it has made.
#[derive(Default)]
struct Notes {
    path: String,
    duplicates: Vec<String>,
    budget: Budget,
}

/// Deserializes one value.
struct Tree<'a>(&'a mut Notes);

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.budget.value(0).map_err(D::Error::custom)?;
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
        Ok(i64::try_from(value).map_or_else(|_| Value::from(value as f64), Value::from))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(number::float(value).unwrap_or(Value::Null))
    }
    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.budget.value(value.len()).map_err(E::custom)?;
        Ok(Value::String(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let base = self.0.path.len();
        let mut items = Vec::new();
        loop {
            self.0.path.push('[');
            self.0.path.push_str(itoa::Buffer::new().format(items.len()));
            self.0.path.push(']');
            let item = seq.next_element_seed(Tree(self.0))?;
            self.0.path.truncate(base);
            match item {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let base = self.0.path.len();
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if base > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(&key);
            if members.contains_key(&key) {
                let Notes { path, duplicates, .. } = &mut *self.0;
                super::note(duplicates, || format!("duplicate field {}", quote(path)));
            }
            self.0.budget.member(members.len(), key.len()).map_err(A::Error::custom)?;
            let value = map.next_value_seed(Tree(self.0))?;
            self.0.path.truncate(base);
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}
