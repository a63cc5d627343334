//! Go's `%v` and `%#v` of decoded JSON, which some messages show.

use serde_json::Value;
pub use setpoint_object::field::go_type;
use setpoint_object::field::quote;
use std::fmt::Write as _;

/// A value as Go prints it with `%v`: `map[image:q ports:[80 443]]`, members sorted, strings bare,
/// `null` as `<nil>`.
pub fn go_value(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

/// The name of a value's JSON type, as errors of Go's decoder have it.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The name of a value's Go kind.
pub(super) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => go_type(other),
    }
}

/// A number as Go prints it with `%v`: floats in the shortest form, with an exponent below 1e-4 and
/// from 1e6 on.
pub(crate) fn go_number(number: &serde_json::Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        None => number.to_string(),
        Some(float) => go_float(float),
    }
}

/// A value as Go prints it with `%#v`: `map[string]interface {}{"a":1}`. `key`: the type of the
/// names of members, which is `string` in decoded JSON.
pub(crate) fn go_syntax(value: &Value, key: &str) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| go_syntax(item, key)).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}:{}", quote(name), go_syntax(value, key))
            };
            let members: Vec<String> = members.iter().map(member).collect();
            format!("map[{key}]interface {{}}{{{}}}", members.join(", "))
        }
    }
}

fn go_float(float: f64) -> String {
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-4..1e6).contains(&magnitude) {
        let text = format!("{float:e}");
        let Some((digits, exponent)) = text.split_once('e') else { return text };
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(rest) => ('-', rest),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{float}")
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::Bool(b) => text.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => text.push_str(&go_number(n)),
        Value::String(s) => text.push_str(s),
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(' ');
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            text.push_str("map[");
            for (at, name) in names.into_iter().enumerate() {
                if at > 0 {
                    text.push(' ');
                }
                let _ = write!(text, "{name}:");
                write(&members[name], text);
            }
            text.push(']');
        }
    }
}
