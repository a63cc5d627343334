//! The functions of standard CEL.

use crate::eval::{Context, Error};
use crate::library::go;
use crate::value::{Civil, Duration, Timestamp, Value};
use setpoint_object::boolean;

type Result<'v> = std::result::Result<Value<'v>, Error>;

const INT_OVERFLOW: Error = Error::Message(std::borrow::Cow::Borrowed("integer overflow"));
const UINT_OVERFLOW: Error =
    Error::Message(std::borrow::Cow::Borrowed("unsigned integer overflow"));
const TIMESTAMP_OVERFLOW: Error = Error::Message(std::borrow::Cow::Borrowed("timestamp overflow"));

pub(super) fn add<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_add(*b).ok_or(INT_OVERFLOW)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_add(*b).ok_or(UINT_OVERFLOW)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a + b),
        [Value::String(a), Value::String(b)] => {
            context.allocate(a.len() + b.len())?;
            format!("{}{}", &**a, &**b).into()
        }
        [Value::Bytes(a), Value::Bytes(b)] => {
            context.allocate(a.len() + b.len())?;
            Value::Bytes([&**a, &**b].concat().into())
        }
        [Value::List(a), Value::List(b)] => {
            context.allocate((a.len() + b.len()) * size_of::<Value<'_>>())?;
            Value::List(a.concat(b, &mut context.fuel)?)
        }
        [Value::Duration(a), Value::Duration(b)] => {
            Value::Duration(a.checked_add(*b).ok_or(INT_OVERFLOW)?)
        }
        [Value::Timestamp(time), Value::Duration(duration)]
        | [Value::Duration(duration), Value::Timestamp(time)] => {
            Value::Timestamp(time.checked_add(*duration).ok_or(TIMESTAMP_OVERFLOW)?)
        }
        _ => return Err(Error::NoSuchOverload),
    })
}

pub(super) fn subtract<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_sub(*b).ok_or(INT_OVERFLOW)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_sub(*b).ok_or(UINT_OVERFLOW)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a - b),
        [Value::Duration(a), Value::Duration(b)] => {
            Value::Duration(a.checked_sub(*b).ok_or(INT_OVERFLOW)?)
        }
        [Value::Timestamp(time), Value::Duration(duration)] => {
            let back = duration.nanos().checked_neg().ok_or(INT_OVERFLOW)?;
            let time = time.checked_add(Duration::from_nanos(back)).ok_or(TIMESTAMP_OVERFLOW)?;
            Value::Timestamp(time)
        }
        [Value::Timestamp(a), Value::Timestamp(b)] => {
            Value::Duration(a.since(*b).ok_or(INT_OVERFLOW)?)
        }
        _ => return Err(Error::NoSuchOverload),
    })
}

pub(super) fn multiply<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_mul(*b).ok_or(INT_OVERFLOW)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_mul(*b).ok_or(UINT_OVERFLOW)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a * b),
        _ => return Err(Error::NoSuchOverload),
    })
}

pub(super) fn divide<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(Error::message("division by zero"));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_div(*b).ok_or(INT_OVERFLOW)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a / b),
        [Value::Double(a), Value::Double(b)] => Value::Double(a / b),
        _ => return Err(Error::NoSuchOverload),
    })
}

pub(super) fn modulo<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(Error::message("modulus by zero"));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_rem(*b).ok_or(INT_OVERFLOW)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a % b),
        _ => return Err(Error::NoSuchOverload),
    })
}

pub(super) fn negate<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(match args {
        [Value::Int(a)] => Value::Int(a.checked_neg().ok_or(INT_OVERFLOW)?),
        [Value::Double(a)] => Value::Double(-a),
        _ => return Err(Error::NoSuchOverload),
    })
}

pub(super) fn not<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(Error::NoSuchOverload),
    }
}

fn compare(args: &[Value<'_>]) -> std::result::Result<std::cmp::Ordering, Error> {
    match args {
        [a, b] => a.compare(b),
        _ => Err(Error::NoSuchOverload),
    }
}

pub(super) fn less<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(compare(args)?.is_lt()))
}

pub(super) fn less_equals<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(compare(args)?.is_le()))
}

pub(super) fn greater<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(compare(args)?.is_gt()))
}

pub(super) fn greater_equals<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(compare(args)?.is_ge()))
}

pub(super) fn contained<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(match args {
        [value, Value::List(list)] => list.contains(value, &mut context.fuel)?,
        // As in cel-go a value that can be no key is not among the keys.
        [value, Value::Map(map)] => map.has(value),
        [Value::String(field), Value::Object(object)] => object.has(field),
        _ => return Err(Error::NoSuchOverload),
    }))
}

pub(super) fn size<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    match args {
        [
            value @ (Value::String(_)
            | Value::Bytes(_)
            | Value::List(_)
            | Value::Map(_)
            | Value::Object(_)),
        ] => Ok(Value::Int(i64::try_from(value.size()).unwrap_or(i64::MAX))),
        _ => Err(Error::NoSuchOverload),
    }
}

pub(super) fn type_of<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    match args {
        [value] => Ok(Value::Type(value.type_of())),
        _ => Err(Error::NoSuchOverload),
    }
}

pub(super) fn same<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    args.first().cloned().ok_or(Error::NoSuchOverload)
}

/// The error of a conversion that is not possible.
fn no_conversion(value: &Value<'_>, to: &str) -> Error {
    Error::message(format!("type conversion error from '{}' to '{to}'", value.type_name()))
}

fn one<'a, 'v>(args: &'a [Value<'v>]) -> std::result::Result<&'a Value<'v>, Error> {
    args.first().ok_or(Error::NoSuchOverload)
}

pub(super) fn to_bool<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    match one(args)? {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        value @ Value::String(text) => {
            boolean::parse(text).map(Value::Bool).ok_or_else(|| no_conversion(value, "bool"))
        }
        value => Err(no_conversion(value, "bool")),
    }
}

pub(super) fn to_bytes<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    match one(args)? {
        value @ Value::Bytes(_) => Ok(value.clone()),
        Value::String(text) => {
            context.allocate(text.len())?;
            Ok(Value::Bytes(text.as_bytes().into()))
        }
        value => Err(no_conversion(value, "bytes")),
    }
}

pub(super) fn to_double<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    match one(args)? {
        Value::Double(value) => Ok(Value::Double(*value)),
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        value @ Value::String(text) => {
            go::parse_float(text).map(Value::Double).ok_or_else(|| no_conversion(value, "double"))
        }
        value => Err(no_conversion(value, "double")),
    }
}

pub(super) fn to_int<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Int(match one(args)? {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| INT_OVERFLOW)?,
        // The bounds themselves are refused, as cel-go does.
        Value::Double(value) if *value > -(2f64.powi(63)) && *value < 2f64.powi(63) => {
            *value as i64
        }
        Value::Double(_) => return Err(INT_OVERFLOW),
        value @ Value::String(text) => {
            go::parse_int(text).ok_or_else(|| no_conversion(value, "int"))?
        }
        Value::Timestamp(time) => time.seconds(),
        Value::Duration(duration) => duration.nanos(),
        value => return Err(no_conversion(value, "int")),
    }))
}

pub(super) fn to_uint<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Uint(match one(args)? {
        Value::Uint(value) => *value,
        Value::Int(value) => u64::try_from(*value).map_err(|_| UINT_OVERFLOW)?,
        Value::Double(value) if *value >= 0.0 && *value < 2f64.powi(64) => *value as u64,
        Value::Double(_) => return Err(UINT_OVERFLOW),
        value @ Value::String(text) => {
            go::parse_uint(text).ok_or_else(|| no_conversion(value, "uint"))?
        }
        value => return Err(no_conversion(value, "uint")),
    }))
}

pub(super) fn to_string<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(match one(args)? {
        value @ Value::String(_) => value.clone(),
        Value::Bool(value) => value.to_string().into(),
        Value::Int(value) => value.to_string().into(),
        Value::Uint(value) => value.to_string().into(),
        Value::Double(value) => go::general(*value).into(),
        Value::Bytes(bytes) => {
            context.allocate(bytes.len())?;
            let text = std::str::from_utf8(bytes)
                .map_err(|_| Error::message("invalid UTF-8 in bytes, cannot convert to string"))?;
            text.to_owned().into()
        }
        Value::Duration(duration) => duration.to_string().into(),
        Value::Timestamp(time) => time.to_string().into(),
        value => return Err(no_conversion(value, "string")),
    })
}

pub(super) fn to_duration<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let to = "google.protobuf.Duration";
    match one(args)? {
        value @ Value::Duration(_) => Ok(value.clone()),
        value @ Value::String(text) => {
            Duration::parse(text).map(Value::Duration).ok_or_else(|| no_conversion(value, to))
        }
        value => Err(no_conversion(value, to)),
    }
}

pub(super) fn to_timestamp<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let to = "google.protobuf.Timestamp";
    match one(args)? {
        value @ Value::Timestamp(_) => Ok(value.clone()),
        Value::Int(seconds) => {
            Timestamp::new(*seconds, 0).map(Value::Timestamp).ok_or(TIMESTAMP_OVERFLOW)
        }
        value @ Value::String(text) => match Timestamp::parse(text) {
            Some(Ok(time)) => Ok(Value::Timestamp(time)),
            Some(Err(_)) => Err(TIMESTAMP_OVERFLOW),
            None => Err(no_conversion(value, to)),
        },
        value => Err(no_conversion(value, to)),
    }
}

fn texts<'a>(args: &'a [Value<'_>]) -> std::result::Result<(&'a str, &'a str), Error> {
    match args {
        [Value::String(a), Value::String(b)] => Ok((a, b)),
        _ => Err(Error::NoSuchOverload),
    }
}

pub(super) fn contains<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (text, part) = texts(args)?;
    Ok(Value::Bool(text.contains(part)))
}

pub(super) fn starts_with<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (text, part) = texts(args)?;
    Ok(Value::Bool(text.starts_with(part)))
}

pub(super) fn ends_with<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (text, part) = texts(args)?;
    Ok(Value::Bool(text.ends_with(part)))
}

pub(super) fn matches<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (text, pattern) = texts(args)?;
    Ok(Value::Bool(context.pattern(pattern)?.is_match(text)?))
}

/// A part of a point in time, in UTC or in a zone; a length of time in a unit.
fn part<'v>(
    args: &[Value<'v>],
    of_time: fn(Civil) -> i64,
    of_duration: Option<fn(i64) -> i64>,
) -> Result<'v> {
    let civil = match args {
        [Value::Timestamp(time)] => time.civil(0),
        [Value::Timestamp(time), Value::String(zone)] => {
            time.in_zone(zone).map_err(|error| Error::message(error.to_string()))?
        }
        [Value::Duration(duration)] => {
            let of_duration = of_duration.ok_or(Error::NoSuchOverload)?;
            return Ok(Value::Int(of_duration(duration.nanos())));
        }
        _ => return Err(Error::NoSuchOverload),
    };
    Ok(Value::Int(of_time(civil)))
}

pub(super) fn full_year<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(args, |civil| civil.year, None)
}

pub(super) fn month<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(args, |civil| i64::from(civil.month) - 1, None)
}

pub(super) fn day_of_year<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(args, |civil| i64::from(civil.year_day) - 1, None)
}

pub(super) fn date<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(args, |civil| civil.day.into(), None)
}

pub(super) fn day_of_month<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(args, |civil| i64::from(civil.day) - 1, None)
}

pub(super) fn day_of_week<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(args, |civil| civil.weekday.into(), None)
}

pub(super) fn hours<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(args, |civil| civil.hour.into(), Some(|nanos| nanos / 3_600_000_000_000))
}

pub(super) fn minutes<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(args, |civil| civil.minute.into(), Some(|nanos| nanos / 60_000_000_000))
}

pub(super) fn seconds<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(args, |civil| civil.second.into(), Some(|nanos| nanos / 1_000_000_000))
}

pub(super) fn milliseconds<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(args, |civil| (civil.nanos / 1_000_000).into(), Some(|nanos| nanos / 1_000_000))
}
