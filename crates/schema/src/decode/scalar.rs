//! Scalars of built-in types that have a canonical form.
use crate::node::Scalar;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use setpoint_object::time::Moment;
use std::fmt::Write as _;

/// Why a value does not stand for what it should.
pub(super) enum Fault {
    /** Its JSON type is wrong. */
    Type,
    /** An item of a list of bytes is none. What it is, in Go's words. */
    Item(String),
    /** It is no string. What it is, in Go's words. */
    NotAString(String),
    /** Go's sentence. */
    Text(String),
}

/// `metav1.Time`'s layout, as Go's errors show it.
const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
/// `metav1.MicroTime`'s layout.
const RFC3339_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Makes a value canonical.
pub(super) fn canonical(scalar: Scalar, value: &mut Value) -> Result<(), Fault> {
    match scalar {
        Scalar::Quantity => quantity(value),
        Scalar::Time => time(value, false),
        Scalar::MicroTime => time(value, true),
        Scalar::Bytes => bytes(value),
        Scalar::Duration => match value {
            Value::String(_) => Ok(()),
            _ => Err(not_a_string(value)),
        },
        Scalar::Plain | Scalar::Int32 | Scalar::Int64 => Ok(()),
    }
}

fn not_a_string(value: &Value) -> Fault {
    Fault::NotAString(super::go_type::found(value, false))
}

fn quantity(value: &mut Value) -> Result<(), Fault> {
    let text = match &*value {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    let quantity = Quantity::parse(&text).map_err(|error| Fault::Text(error.to_string()))?;
    *value = Value::from(quantity.as_str());
    Ok(())
}

/// Rounds a quantity in canonical form to thousandths, away from zero.
pub(super) fn round_amount(value: &mut Value) {
    let Some(text) = value.as_str() else { return };
    // Only smaller units and negative exponents can have more digits.
    if (text.ends_with(['n', 'u']) || text.contains("e-"))
        && let Ok(quantity) = Quantity::parse(text)
    {
        *value = Value::from(quantity.in_thousandths().as_str());
    }
}

fn time(value: &mut Value, micro: bool) -> Result<(), Fault> {
    let Value::String(text) = &*value else { return Err(not_a_string(value)) };
    let Some((time, text)) = moment(text, micro) else {
        return Err(Fault::Text(time_error(text, if micro { RFC3339_MICRO } else { RFC3339 })));
    };
    // The zero time is no time.
    *value = if time == Moment::ZERO { Value::Null } else { Value::from(text) };
    Ok(())
}

/// The time of a text, and its canonical text.
fn moment(text: &str, micro: bool) -> Option<(Moment, String)> {
    let fraction = text
        .find(['.', ','])
        .map(|dot| text[dot + 1..].bytes().take_while(u8::is_ascii_digit).count());
    let time = Moment::parse(text).filter(|_| !micro || fraction == Some(6))?;
    Some((time, time.rfc3339(micro)?))
}

/// Why a text is no `metav1.Time`: the error of Go's parser.
pub fn time_fault(text: &str) -> Option<String> {
    moment(text, false).is_none().then(|| time_error(text, RFC3339))
}

/// Digits of a microsecond.
const MICRO_DIGITS: usize = 6;

/// Go's error for a text that does not follow a layout, or names a time that does not exist.
fn time_error(text: &str, layout: &str) -> String {
    let shown = quoted(text);
    if Moment::parse(text).is_some_and(|time| time != time.clamped()) {
        return format!("parsing time {shown}: year outside of range [0,9999]");
    }
    match time_element(text, layout == RFC3339_MICRO) {
        TimeFault::Element { rest, wanted } => {
            format!(
                "parsing time {shown} as {layout:?}: cannot parse {} as {wanted:?}",
                quoted(rest)
            )
        }
        TimeFault::Range(what) => format!("parsing time {shown}: {what} out of range"),
        TimeFault::Extra(rest) => format!("parsing time {shown}: extra text: {}", quoted(rest)),
    }
}

/// Where Go's parser stops.
enum TimeFault<'t> {
    /// At an element of the layout, which the rest of the text does not begin with.
    Element { rest: &'t str, wanted: &'static str },
    /// At a number that is too large or too small.
    Range(&'static str),
    /// Behind the time.
    Extra(&'t str),
}

fn time_element(text: &str, micro: bool) -> TimeFault<'_> {
    // Each element of the layout, the digits it takes, and the numbers that Go checks at once;
    // separators have no digits.
    type Element = (&'static str, usize, Option<(&'static str, [u8; 2])>);
    const ELEMENTS: [Element; 11] = [
        ("2006", 4, None),
        ("-", 0, None),
        ("01", 2, Some(("month", [1, 12]))),
        ("-", 0, None),
        ("02", 2, None),
        ("T", 0, None),
        ("15", 2, Some(("hour", [0, 23]))),
        (":", 0, None),
        ("04", 2, Some(("minute", [0, 59]))),
        (":", 0, None),
        ("05", 2, Some(("second", [0, 59]))),
    ];
    let mut rest = text;
    for (wanted, digits, range) in ELEMENTS {
        let found = rest.bytes().take(digits).take_while(u8::is_ascii_digit).count();
        // An hour may have one digit.
        let fits = match digits {
            0 => rest.starts_with(wanted),
            _ => found == digits || wanted == "15" && found == 1,
        };
        if !fits {
            return TimeFault::Element { rest, wanted };
        }
        let (taken, left) = rest.split_at(if digits == 0 { wanted.len() } else { found });
        if let Some((what, [min, max])) = range
            && taken.parse().is_ok_and(|number: u8| !(min..=max).contains(&number))
        {
            return TimeFault::Range(what);
        }
        rest = left;
    }
    let fraction = rest.strip_prefix(['.', ',']).unwrap_or_default();
    let n_digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if micro && n_digits < MICRO_DIGITS {
        return TimeFault::Element { rest, wanted: ".000000" };
    }
    if n_digits > 0 {
        rest = &fraction[if micro { MICRO_DIGITS } else { n_digits }..];
    }
    let zone = TimeFault::Element { rest, wanted: "Z07:00" };
    rest = match rest.as_bytes() {
        [b'Z', ..] => &rest[1..],
        [b'+' | b'-', h1, h2, b':', m1, m2, ..]
            if [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit()) =>
        {
            let number = |high: &u8, low: &u8| (high - b'0') * 10 + (low - b'0');
            if number(h1, h2) > 24 {
                return TimeFault::Range("time zone offset hour");
            }
            if number(m1, m2) > 60 {
                return TimeFault::Range("time zone offset minute");
            }
            &rest[6..]
        }
        _ => return zone,
    };
    // Go looks at the day last, when it knows the month.
    if rest.is_empty() { TimeFault::Range("day") } else { TimeFault::Extra(rest) }
}

/// A text as Go's errors about times quote it: with bytes in place of characters beyond ASCII.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            0x20..0x80 => quoted.push(char::from(byte)),
            _ => _ = write!(quoted, "\\x{byte:02x}"),
        }
    }
    quoted.push('"');
    quoted
}

fn bytes(value: &mut Value) -> Result<(), Fault> {
    if let Value::Array(items) = &*value {
        *value = STANDARD.encode(numbers(items)?).into();
        return Ok(());
    }
    let Value::String(text) = &*value else { return Err(Fault::Type) };
    if !text.contains(['\r', '\n']) && STANDARD.decode(text).is_ok() {
        return Ok(());
    }
    let joined: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match STANDARD.decode(&joined) {
        Ok(_) => {
            *value = Value::String(joined);
            Ok(())
        }
        Err(error) => Err(Fault::Text(base64_fault(&joined, &error))),
    }
}

/// The text of Go's decoder for a text that is not base64.
pub fn base64_fault(text: &str, error: &base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) => *at,
        // Go names the start of the last group of four.
        _ => text.len().saturating_sub(1) / 4 * 4,
    };
    format!("illegal base64 data at input byte {at}")
}

/// Bytes as a list of numbers, which Go reads, too.
fn numbers(items: &[Value]) -> Result<Vec<u8>, Fault> {
    let number = |item: &Value| match item {
        Value::Null => Ok(0),
        _ => item
            .as_u64()
            .and_then(|n| u8::try_from(n).ok())
            .ok_or_else(|| Fault::Item(super::go_type::found(item, true))),
    };
    items.iter().map(number).collect()
}
