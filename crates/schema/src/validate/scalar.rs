//! Type, format, length, range and enum of one value.
use super::format;
use super::openapi::{invalid, rootless, shape_mismatch, type_invalid, type_of};
use super::report::Report;
use crate::node::{Shape, Validation, View};
use serde_json::{Number, Value};
use setpoint_object::field::{Error, Path};
use std::cmp::Ordering;

/// The formats that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Formats {
    /// Those that are known for a type: what objects are held to.
    Known,
    /// All: what defaults are held to.
    All,
}

/// Checks the type, null included.
pub(super) fn check_type(
    schema: View<'_>,
    formats: Formats,
    path: &str,
    value: &Value,
    report: &mut Report,
) {
    if value.is_null() && schema.nullable {
        return;
    }
    let format = schema.format.as_deref().unwrap_or("");
    let format = match formats {
        Formats::Known if !is_enforced(schema.shape, format) => "",
        _ => format,
    };
    if let Some((wanted, found)) = wrong_type(schema.shape, format, value) {
        report.push(type_invalid(path, wanted, &found.into()));
        if schema.shape != Shape::Integer {
            return;
        }
    }
    let Value::Number(number) = value else { return };
    fits(schema, "Checked", number, path, report);
}

/// What a value is held to, and what it is instead. What has a format is called by its format.
fn wrong_type<'a>(shape: Shape, format: &'a str, value: &Value) -> Option<(&'a str, &'static str)> {
    let wanted = shape_mismatch(shape, value);
    let found = type_of(value);
    if format.is_empty() || value.is_null() {
        return wanted.map(|wanted| (wanted, found));
    }
    if let Value::String(_) | Value::Array(_) = value {
        // The format of a text is checked on its own.
        let is_numeric = matches!(shape, Shape::Integer | Shape::Number | Shape::IntOrString);
        return wanted.filter(|_| is_numeric).map(|wanted| (wanted, found));
    }
    if shape != Shape::Any && wanted.is_none() {
        return None;
    }
    let own = match value {
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        _ => "",
    };
    match own == format {
        true => Some((wanted.unwrap_or_default(), found)),
        false => Some((format, own)),
    }
}

/// Whether objects are held to a format of a type: the API ignores others.
fn is_enforced(shape: Shape, format: &str) -> bool {
    match shape {
        Shape::Integer => matches!(format, "int32" | "int64"),
        Shape::Number => matches!(format, "float" | "double"),
        Shape::String | Shape::IntOrString | Shape::Any => format::is_known(format),
        _ => false,
    }
}

/// The first integers beyond `int64`: 2^63.
const INT64_END: f64 = 9_223_372_036_854_775_808.0;

/// Reports a number, or a bound of numbers, that the type of the schema cannot hold. Returns
/// whether it can.
fn fits(schema: View<'_>, what: &str, number: &Number, path: &str, report: &mut Report) -> bool {
    let format = schema.format.as_deref().unwrap_or("");
    let is_whole = || number.as_f64().is_some_and(|n| n.fract() == 0.0);
    let fits = match (schema.shape, format) {
        (Shape::Integer, "int32") => {
            let range = f64::from(i32::MIN)..=f64::from(i32::MAX);
            number.as_f64().is_some_and(|n| range.contains(&n)) && is_whole()
        }
        (Shape::Integer, _) => {
            let is_within = |n: f64| (-INT64_END..INT64_END).contains(&n);
            number.is_i64() || number.as_f64().is_some_and(is_within) && is_whole()
        }
        (Shape::Number, "float") => number.as_f64().is_some_and(|n| n.abs() <= f64::from(f32::MAX)),
        _ => true,
    };
    if !fits {
        let kind = if schema.shape == Shape::Integer { "integer" } else { "number" };
        report.push(rootless(unfit(what, kind, format, path)));
    }
    fits
}

/// The sentence about a number that its type and format cannot hold.
fn unfit(what: &str, kind: &str, format: &str, path: &str) -> String {
    if format.is_empty() {
        format!("{what} value must be of type {kind} (default format) in {path}")
    } else {
        format!("{what} value must be of type {kind} with format {format} in {path}")
    }
}

/// Checks a string or number.
pub(super) fn check(
    schema: View<'_>,
    formats: Formats,
    path: &str,
    value: &Value,
    report: &mut Report,
) {
    let validation = schema.node().validation.as_deref();
    match value {
        Value::String(text) => {
            report.read(text.len());
            if let Some(validation) = validation {
                string(validation, path, text, value, report);
            }
            if let Some(name) = schema.format.as_deref()
                && (formats == Formats::All || is_enforced(schema.shape, name))
                && !format::valid(name, text)
            {
                report.push(type_invalid(path, name, value));
            }
        }
        Value::Number(n) => {
            if let Some(validation) = validation {
                number(schema, validation, path, n, value, report);
            }
        }
        _ => {}
    }
}

/// Reports the first violation of a string, as the API does.
fn string(v: &Validation, path: &str, text: &str, value: &Value, report: &mut Report) {
    if v.max_length.is_some() || v.min_length.is_some() {
        let length = text.chars().count() as u64;
        if let Some(max) = v.max_length.filter(|max| length > *max) {
            return report.push(Error::too_long(Path::new(path), max as usize));
        }
        if let Some(min) = v.min_length.filter(|min| length < *min) {
            let what = format!("should be at least {min} chars long");
            return report.push(invalid(path, value, &what));
        }
    }
    if let Some(pattern) = &v.pattern {
        match report.matches(pattern, text) {
            Ok(true) => {}
            Ok(false) => {
                let what = format!("should match '{}'", pattern.source());
                report.push(invalid(path, value, &what));
            }
            Err(why) => report.push(invalid(path, value, &why)),
        }
    }
}

fn number(
    schema: View<'_>,
    v: &Validation,
    path: &str,
    n: &Number,
    value: &Value,
    report: &mut Report,
) {
    let bound = |what: &str, bound: &Number, report: &mut Report| {
        let fits = fits(schema, what, bound, path, report);
        if fits && n.is_i64() { truncated(bound) } else { bound.clone() }
    };
    if let Some(factor) = &v.multiple_of {
        let factor = bound("MultipleOf", factor, report);
        if factor.as_f64().is_some_and(|factor| factor <= 0.0) {
            let detail =
                format!("factor MultipleOf declared for {path} must be positive: {factor}");
            report.push(Error::invalid(Path::new(path), &factor.into(), detail));
        } else if !is_multiple(n, &factor) {
            report.push(invalid(path, value, &format!("should be a multiple of {factor}")));
        }
    }
    if let Some(min) = &v.minimum {
        let min = bound("Minimum boundary", min, report);
        let order = compare(n, &min);
        if v.exclusive_minimum && order != Ordering::Greater {
            report.push(invalid(path, value, &format!("should be greater than {min}")));
        } else if order == Ordering::Less {
            let what = format!("should be greater than or equal to {min}");
            report.push(invalid(path, value, &what));
        }
    }
    if let Some(max) = &v.maximum {
        let max = bound("Maximum boundary", max, report);
        let order = compare(n, &max);
        if v.exclusive_maximum && order != Ordering::Less {
            report.push(invalid(path, value, &format!("should be less than {max}")));
        } else if order == Ordering::Greater {
            report.push(invalid(path, value, &format!("should be less than or equal to {max}")));
        }
    }
}

/// A bound as the API holds integers to it: without its fraction.
fn truncated(bound: &Number) -> Number {
    match bound.as_f64() {
        Some(float) if bound.is_f64() => Number::from(float as i64),
        _ => bound.clone(),
    }
}

fn compare(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        // JSON has no NaN.
        _ => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
    }
}

fn is_multiple(n: &Number, factor: &Number) -> bool {
    match (n.as_i64(), factor.as_i64()) {
        (_, Some(0)) => true,
        (Some(n), Some(factor)) => n.wrapping_rem(factor) == 0,
        _ => match (n.as_f64(), factor.as_f64()) {
            // The reference divides by small factors like this.
            (Some(n), Some(factor)) if factor != 0.0 && factor < 1.0 => is_whole(1.0 / factor * n),
            (Some(n), Some(factor)) if factor != 0.0 => is_whole(n / factor),
            _ => true,
        },
    }
}

/// Whether a quotient is a whole number, but for what floating point numbers lose: 4.35 is 435
/// times 0.01.
fn is_whole(quotient: f64) -> bool {
    const EPSILON: f64 = 1e-9;
    let rounded = quotient.round();
    let is_near = (quotient - rounded).abs() < EPSILON * rounded.abs();
    quotient.abs() < WHOLE_MAX && (quotient == rounded || is_near)
}

/// Numbers from 2^53 on are no whole numbers in JSON.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Checks membership, as the reference does: `null` is in no enum, also in one that lists it, and
/// a number is listed that is so once it is converted, to an integer or to a character.
pub(super) fn check_enum(v: &Validation, path: &str, value: &Value, report: &mut Report) {
    report.step(v.enumeration.len());
    let is_listed = || v.enumeration.iter().any(|allowed| lists(allowed, value));
    if v.enumeration.is_empty() || !value.is_null() && is_listed() {
        return;
    }
    let texts: Vec<String> = v
        .enumeration
        .iter()
        .map(|allowed| allowed.as_str().map_or_else(|| allowed.to_string(), str::to_owned))
        .collect();
    report.push(Error::not_supported(Path::new(path), value, &texts));
}

fn lists(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (Value::Number(allowed), Value::Number(n)) if allowed.is_i64() && n.is_f64() => {
            n.as_f64().map(|n| n.trunc() as i64) == allowed.as_i64()
        }
        (Value::Number(allowed), Value::Number(n)) => compare(allowed, n) == Ordering::Equal,
        (Value::String(allowed), Value::Number(n)) => {
            let code = n.as_u64().and_then(|code| u32::try_from(code).ok());
            code.and_then(char::from_u32).is_some_and(|c| allowed.chars().eq([c]))
        }
        _ => allowed == value,
    }
}
