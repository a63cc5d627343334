//! Formats values in messages as Go does.
use serde_json::Value;
use std::fmt::Write as _;

/// Formats a value as the API does in messages: strings quoted, numbers and booleans bare,
/// everything else as JSON.
pub fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => match n.as_f64() {
            Some(float) if n.is_f64() => show_float(float),
            _ => n.to_string(),
        },
        other => String::from_utf8_lossy(&crate::encode::to_bytes(other)).into_owned(),
    }
}

/// Quotes a string with the escapes of Go's `%q`.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_printable(c) => out.push(c),
            // Writing to a `String` cannot fail.
            c => {
                _ = match u32::from(c) {
                    n if n < 0x80 => write!(out, "\\x{n:02x}"),
                    n if n < 0x10000 => write!(out, "\\u{n:04x}"),
                    n => write!(out, "\\U{n:08x}"),
                }
            }
        }
    }
    out.push('"');
    out
}

/// Whether a character is printed, as Go's `unicode.IsPrint` has it: letters, marks, numbers,
/// punctuation, symbols and the ASCII space.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // Combining marks are printed, so it is tested after a letter.
    let mut text = String::with_capacity(5);
    text.push('a');
    text.push(c);
    text.escape_debug().eq(text.chars())
}

/// Formats a float as Go's `%v`: shortest digits, with an exponent below 1e-4 and from 1e6 on.
/// Integral numbers that a body has as such are no floats.
fn show_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(e) if (-4..6).contains(&e) => format!("{float}"),
        Ok(e) => format!("{mantissa}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs()),
        Err(_) => scientific,
    }
}

/// The name of a value's Go type after decoding from JSON.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
