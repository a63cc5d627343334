//! `format`: verbs `%s %d %f %e %b %o %x %X %%`.
//!
//! As in cel-go's version 2, decimal numbers are written for readers of American English: groups of
//! three digits, `2.500000×10⁰³`, `∞`.

use super::Result;
use crate::eval::{Context, Error};
use crate::library::go;
use crate::value::{Key, Value};
use setpoint_object::field::quote;

/// Default number of digits after the point.
const DIGITS: usize = 6;
/// The most digits behind the point: Go's own limit is a million.
const DIGITS_MAX: usize = 1_000;
/// How deep lists and maps nest in what is written.
const DEPTH_MAX: usize = 64;

type Text = std::result::Result<String, Error>;

pub(super) fn format<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::String(format), Value::List(values)] = args else {
        return Err(Error::NoSuchOverload);
    };
    let mut text = String::with_capacity(format.len());
    let mut used = 0;
    let mut rest = &**format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        let Some(value) = values.get(used) else {
            return Err(Error::message(format!("index {used} out of range")));
        };
        if rest.is_empty() {
            return Err(Error::message("unexpected end of string"));
        }
        used += 1;
        let clause = Clause::read(rest).map_err(|message| {
            Error::message(format!("could not parse formatting clause: {message}"))
        })?;
        let written = clause.write(context, &value?).map_err(|error| match error {
            Error::CostLimit => error,
            error => Error::message(format!("error during formatting: {error}")),
        })?;
        context.allocate(written.len())?;
        text.push_str(&written);
        rest = &rest[clause.size..];
    }
    text.push_str(rest);
    Ok(text.into())
}

/// A verb of a format: the part after a percent sign.
struct Clause {
    verb: char,
    /// The number between point and verb. For `%e`, a width.
    digits: usize,
    /// Its bytes.
    size: usize,
}

impl Clause {
    fn read(text: &str) -> std::result::Result<Clause, String> {
        let mut digits = DIGITS;
        let mut size = 0;
        if let Some(after) = text.strip_prefix('.') {
            let precision = "error while parsing precision";
            let end = after
                .find(|c: char| !c.is_ascii_digit())
                .ok_or_else(|| format!("{precision}: could not find end of precision specifier"))?;
            digits = after[..end].parse().ok().filter(|digits| *digits <= DIGITS_MAX).ok_or_else(
                || format!("{precision}: error while converting precision to integer"),
            )?;
            size = 1 + end;
        }
        let verb = text[size..].chars().next().unwrap_or(' ');
        if !"sdfebxXo".contains(verb) {
            return Err(format!("unrecognized formatting clause \"{verb}\""));
        }
        Ok(Clause { verb, digits, size: size + 1 })
    }

    fn write(&self, context: &mut Context<'_>, value: &Value<'_>) -> Text {
        let refuse = |allowed: &str| {
            Err(Error::message(format!("{allowed}, was given {}", value.type_name())))
        };
        match self.verb {
            's' => string(context, value, 0),
            'd' => match value {
                Value::Int(value) => Ok(value.to_string()),
                Value::Uint(value) => Ok(value.to_string()),
                _ => refuse("decimal clause can only be used on integers"),
            },
            'f' => match double(value) {
                Some(value) => Ok(fixed(value, self.digits)),
                None => refuse("fixed-point clause can only be used on doubles"),
            },
            'e' => match double(value) {
                Some(value) => Ok(scientific(value, self.digits)),
                None => refuse("scientific clause can only be used on doubles"),
            },
            'b' => match value {
                Value::Int(value) => Ok(signed(*value, |size| format!("{size:b}"))),
                Value::Uint(value) => Ok(format!("{value:b}")),
                Value::Bool(value) => Ok(u8::from(*value).to_string()),
                _ => refuse("only integers and bools can be formatted as binary"),
            },
            'o' => match value {
                Value::Int(value) => Ok(signed(*value, |size| format!("{size:o}"))),
                Value::Uint(value) => Ok(format!("{value:o}")),
                _ => refuse("octal clause can only be used on integers"),
            },
            _ => {
                let text = match value {
                    Value::Int(value) => signed(*value, |size| format!("{size:x}")),
                    Value::Uint(value) => format!("{value:x}"),
                    Value::String(text) => hex(context, text.as_bytes())?,
                    Value::Bytes(bytes) => hex(context, bytes)?,
                    _ => {
                        return refuse(
                            "only integers, byte buffers, and strings can be formatted as hex",
                        );
                    }
                };
                Ok(if self.verb == 'X' { text.to_ascii_uppercase() } else { text })
            }
        }
    }
}

fn signed(value: i64, write: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", write(value.unsigned_abs()))
}

fn hex(context: &mut Context<'_>, bytes: &[u8]) -> Text {
    context.allocate(bytes.len() * 2)?;
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    Ok(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
}

/// A double, or one of the texts that stand for what JSON has no number for.
fn double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn infinite(value: f64) -> Option<&'static str> {
    match value {
        value if value.is_nan() => Some("NaN"),
        f64::INFINITY => Some("∞"),
        f64::NEG_INFINITY => Some("-∞"),
        _ => None,
    }
}

/// A decimal number with groups of three digits.
fn fixed(value: f64, digits: usize) -> String {
    if let Some(text) = infinite(value) {
        return text.to_owned();
    }
    let value = without_negative_zero(value);
    let text = go::fixed(value.abs(), digits);
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::from(if value.is_sign_negative() { "-" } else { "" });
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

/// `1.500000×10⁰³`. As in cel-go, the number in the verb is not the number of digits, which is
/// always the default, but the least number of characters.
fn scientific(value: f64, width: usize) -> String {
    if let Some(text) = infinite(value) {
        return format!("{text:>width$}");
    }
    let text = go::exponential(without_negative_zero(value), DIGITS);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
    let raised = exponent.chars().filter_map(|c| match c {
        '-' => Some('⁻'),
        '1' => Some('¹'),
        '2' => Some('²'),
        '3' => Some('³'),
        _ => char::from_u32('⁰' as u32 + c.to_digit(10)?),
    });
    let text = format!("{mantissa}×10{}", raised.collect::<String>());
    format!("{text:>width$}")
}

/// Numbers for readers show no sign of zero.
fn without_negative_zero(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value }
}

/// `%s`.
fn string(context: &mut Context<'_>, value: &Value<'_>, depth: usize) -> Text {
    if let Some(text) = collection(context, value, depth)? {
        return Ok(text);
    }
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => go::general(*value),
        Value::String(text) => text.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(duration) => duration.to_string(),
        Value::Timestamp(time) => time.to_string(),
        Value::Type(ty) => ty.name().into_owned(),
        value => {
            return Err(Error::message(format!(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, \
                 lists, types, durations, and timestamps, was given {}",
                value.type_name()
            )));
        }
    })
}

/// A list or map as a literal.
fn collection(
    context: &mut Context<'_>,
    value: &Value<'_>,
    depth: usize,
) -> std::result::Result<Option<String>, Error> {
    if depth > DEPTH_MAX {
        return Err(Error::CostLimit);
    }
    match value {
        Value::List(list) => {
            let mut parts = Vec::with_capacity(list.len());
            for item in list.iter() {
                parts.push(element(context, &item?, depth + 1)?);
            }
            Ok(Some(format!("[{}]", parts.join(", "))))
        }
        Value::Map(map) => {
            let mut parts = Vec::with_capacity(map.len());
            for key in map.keys() {
                let shown = match Key::of(&key) {
                    Some(Key::String(text)) => quote(&text),
                    _ => go::display(&key),
                };
                let value = map.get(&key).ok_or(Error::NoSuchOverload)??;
                parts.push((shown, element(context, &value, depth + 1)?));
            }
            Ok(Some(braces(parts)))
        }
        Value::Object(object) => {
            let mut parts = Vec::new();
            for key in object.keys() {
                let value = object.get(&key).ok_or(Error::NoSuchOverload)??;
                parts.push((quote(&key), element(context, &value, depth + 1)?));
            }
            Ok(Some(braces(parts)))
        }
        _ => Ok(None),
    }
}

fn braces(mut parts: Vec<(String, String)>) -> String {
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    let parts: Vec<_> = parts.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    format!("{{{}}}", parts.join(", "))
}

/// An element of a list or map, as a literal.
fn element(context: &mut Context<'_>, value: &Value<'_>, depth: usize) -> Text {
    context.fuel.take(1)?;
    let text = match value {
        Value::String(text) => quote(text),
        Value::Bytes(bytes) => format!("b{}", quote(&String::from_utf8_lossy(bytes))),
        Value::Double(value) if !value.is_finite() => quote(&go::general(*value)),
        Value::Double(value) => go::fixed(*value, DIGITS),
        Value::Timestamp(time) => format!("timestamp(\"{time}\")"),
        Value::Duration(duration) => format!("duration(\"{duration}\")"),
        Value::Optional(_) | Value::Opaque(_) => {
            let message = format!("no formatting function for {}", value.type_name());
            return Err(Error::message(message));
        }
        value => string(context, value, depth)?,
    };
    context.allocate(text.len())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use crate::library::tests::check;

    #[test]
    fn verbs_write_what_cel_go_writes() {
        for (expression, text) in [
            ("'str is %s and some more'.format(['filler'])", "str is filler and some more"),
            ("'%%%s%%'.format(['text'])", "%text%"),
            ("'%d %d'.format([1, 2u])", "1 2"),
            ("'%.3f'.format([1.2345])", "1.234"),
            ("'%f'.format([1234567.5])", "1,234,567.500000"),
            ("'%f'.format(['-Infinity'])", "-∞"),
            ("'%f %.1f'.format([-0.0, -0.5])", "0.000000 -0.5"),
            ("'%e'.format([2.71828])", "2.718280×10⁰⁰"),
            ("'%.6e'.format([1052.032911275])", "1.052033×10⁰³"),
            ("'%.2e|%.0e'.format([2.56789, 2.5])", "2.567890×10⁰⁰|2.500000×10⁰⁰"),
            ("'%.15e|%e'.format([-1.5e-7, 'NaN'])", "-1.500000×10⁻⁰⁷|   NaN"),
            ("'%e'.format([-0.0])", "0.000000×10⁰⁰"),
            ("'%b %b %b'.format([5, -5, true])", "101 -101 1"),
            ("'%o %o'.format([11, -11])", "13 -13"),
            ("'%x %X %x'.format([30, 30, -30])", "1e 1E -1e"),
            ("'%X'.format(['Hello'])", "48656C6C6F"),
            ("'%x'.format([b'\\x00b'])", "0062"),
            ("'%s'.format([[2.71, 'a', null, b'x']])", "[2.710000, \\\"a\\\", null, b\\\"x\\\"]"),
            ("'%s'.format([{'b': 1, 'a': [true]}])", "{\\\"a\\\":[true], \\\"b\\\":1}"),
            ("'%s'.format([0.000000002])", "2e-09"),
            ("'%s'.format([type('x')])", "string"),
            ("'%s'.format([duration('1h')])", "3600s"),
            ("'%s'.format([[duration('1h')]])", "[duration(\\\"3600s\\\")]"),
        ] {
            check(expression, &format!("\"{text}\""));
        }
    }

    #[test]
    fn wrong_formats_are_refused() {
        check("'%s'.format([])", "error: index 0 out of range");
        check("'%'.format([1])", "error: unexpected end of string");
        check(
            "'%w'.format([1])",
            "error: could not parse formatting clause: unrecognized formatting clause \"w\"",
        );
        check(
            "'%d'.format([1.5])",
            "error: error during formatting: decimal clause can only be used on integers, was given double",
        );
    }
}
