//! Whether an applied configuration fits its type, in the reference's words.

use super::element::path_element;
use super::path::PathElement;
use super::types::{Form, Relation, ScalarKind, Type};
use crate::patch::notation::{go_syntax, go_type, go_value};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The most bytes of faults that are reported of one configuration: 64 KiB. A fault repeats the
/// names on its way, which may be as long as the configuration.
const FAULTS_BYTES_MAX: usize = 64 << 10;

/// Holds a configuration to its type: declared fields, types, keys of lists, each element once.
///
/// # Errors
/// `.spec.replicas: expected numeric (int or float), got string`; several faults as `errors:` and a
/// line for each. In a map with an undeclared field nothing after that field is looked at.
pub(super) fn validate(ty: Type<'_>, value: &Value) -> Result<(), String> {
    check(ty, value, Faults::default())
}

/// The same for an object that is stored, or is about to be: an element may be there twice.
///
/// # Errors
/// As [`validate`].
pub(super) fn validate_object(ty: Type<'_>, value: &Value) -> Result<(), String> {
    check(ty, value, Faults { allows_duplicates: true, ..Faults::default() })
}

fn check(ty: Type<'_>, value: &Value, mut faults: Faults) -> Result<(), String> {
    faults.value(ty, value);
    match faults.texts.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        several => Err(format!("errors:\n  {}", several.join("\n  "))),
    }
}

#[derive(Default)]
struct Faults {
    allows_duplicates: bool,
    path: String,
    texts: Vec<String>,
    /// Bytes of all texts.
    bytes: usize,
}

impl Faults {
    fn report(&mut self, what: &str) {
        if self.bytes < FAULTS_BYTES_MAX {
            let text = format!("{}: {what}", self.path);
            self.bytes += text.len();
            self.texts.push(text);
        }
    }

    fn value(&mut self, ty: Type<'_>, value: &Value) {
        match (ty.form(Some(value)), value) {
            (_, Value::Null) => {}
            (Form::Scalar(kind), _) => {
                if let Some(what) = scalar_fault(kind, value) {
                    self.report(&what);
                }
            }
            (Form::Map, Value::Object(members)) => {
                for (name, value) in members {
                    let base = self.path.len();
                    let _ = write!(self.path, ".{name}");
                    let member = ty.member(name);
                    match member {
                        Some((member, _)) => self.value(member, value),
                        None => self.report("field not declared in schema"),
                    }
                    self.path.truncate(base);
                    if member.is_none() {
                        return;
                    }
                }
            }
            (Form::Map, _) => self.report(&format!("expected map, got &{{{}}}", go_value(value))),
            (Form::List, Value::Array(items)) => self.items(ty, items),
            (Form::List, _) => self.report(&format!("expected list, got &{{{}}}", go_value(value))),
        }
    }

    fn items(&mut self, ty: Type<'_>, items: &[Value]) {
        let keyed = !matches!(ty.relation(), Relation::Atomic);
        let mut seen: BTreeSet<PathElement<'_>> = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let element = if keyed {
                match path_element(ty, item) {
                    Ok(element) => element,
                    Err(why) => return self.report(&format!("element {at}: {why}")),
                }
            } else {
                PathElement::Index(i64::try_from(at).unwrap_or(i64::MAX))
            };
            if !self.allows_duplicates && keyed && seen.contains(&element) {
                self.report(&format!("duplicate entries for key {element}"));
            }
            let before = (self.texts.len(), self.path.len());
            self.value(ty.items(), item);
            if self.texts.len() > before.0 {
                // The path is spelled only for those that are at fault.
                let step = element.to_string();
                let mut complete = before.0;
                for text in &mut self.texts[before.0..] {
                    text.insert_str(before.1, &step);
                    self.bytes += step.len();
                    complete += 1;
                    if self.bytes > FAULTS_BYTES_MAX {
                        break;
                    }
                }
                self.texts.truncate(complete);
            }
            if keyed && !self.allows_duplicates {
                seen.insert(element);
            }
        }
    }
}

fn scalar_fault(kind: ScalarKind, value: &Value) -> Option<String> {
    match (kind, value) {
        (ScalarKind::Numeric, Value::Number(_))
        | (ScalarKind::String, Value::String(_))
        | (ScalarKind::Boolean, Value::Bool(_))
        | (ScalarKind::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (ScalarKind::Numeric, _) => {
            Some(format!("expected numeric (int or float), got {}", go_type(value)))
        }
        (ScalarKind::String, _) => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            go_syntax(value, "string")
        )),
        (ScalarKind::Boolean, _) => Some(format!("expected boolean, got &{{{}}}", go_value(value))),
        (ScalarKind::Any, _) => Some(format!("expected any scalar, got &{{{}}}", go_value(value))),
    }
}
