//! Libraries of cel-go that Kubernetes does not have: `math`, `base64`.

use base64::Engine;

use super::{Cost, Overload, global};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Bool, Bytes, Double, Dyn, Int, String as Text, Uint};
use crate::value::Value;

type Result<'v> = std::result::Result<Value<'v>, Error>;

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let mut rows = vec![
        global("base64.encode", "base64_encode_bytes", [Bytes], Text).cost(Cost::Scan).call(encode),
        global("base64.decode", "base64_decode_string", [Text], Bytes)
            .cost(Cost::Scan)
            .call(decode),
        global("math.isNaN", "math_isNaN_double", [Double], Bool)
            .call(|_, args| with_double(args, |value| Value::Bool(value.is_nan()))),
        global("math.isInf", "math_isInf_double", [Double], Bool)
            .call(|_, args| with_double(args, |value| Value::Bool(value.is_infinite()))),
        global("math.isFinite", "math_isFinite_double", [Double], Bool)
            .call(|_, args| with_double(args, |value| Value::Bool(value.is_finite()))),
        global("math.ceil", "math_ceil_double", [Double], Double)
            .call(|_, args| with_double(args, |value| Value::Double(value.ceil()))),
        global("math.floor", "math_floor_double", [Double], Double)
            .call(|_, args| with_double(args, |value| Value::Double(value.floor()))),
        global("math.round", "math_round_double", [Double], Double)
            .call(|_, args| with_double(args, |value| Value::Double(value.round()))),
        global("math.trunc", "math_trunc_double", [Double], Double)
            .call(|_, args| with_double(args, |value| Value::Double(value.trunc()))),
        global("math.bitNot", "math_bitNot", [Dyn], Dyn).call(bit_not),
        global("math.abs", "math_abs", [Dyn], Dyn).call(abs),
        global("math.sign", "math_sign", [Dyn], Dyn).call(sign),
        global("math.sqrt", "math_sqrt", [Dyn], Double).call(sqrt),
    ];
    for (function, id, call) in [
        ("math.bitAnd", "math_bitAnd", bit_and as crate::eval::Function),
        ("math.bitOr", "math_bitOr", bit_or),
        ("math.bitXor", "math_bitXor", bit_xor),
    ] {
        rows.push(global(function, id, [Int, Int], Int).call(call));
        rows.push(global(function, id, [Uint, Uint], Uint).call(call));
    }
    for (function, id, call) in [
        ("math.bitShiftLeft", "math_bitShiftLeft", shift_left as crate::eval::Function),
        ("math.bitShiftRight", "math_bitShiftRight", shift_right),
    ] {
        rows.push(global(function, id, [Int, Int], Int).call(call));
        rows.push(global(function, id, [Uint, Int], Uint).call(call));
    }
    // Up to five operands, or a list.
    for (function, id, call) in [
        ("math.greatest", "math_greatest", greatest as crate::eval::Function),
        ("math.least", "math_least", least),
    ] {
        rows.push(global(function, id, [Type::list(Dyn)], Dyn).call(call));
        rows.push(global(function, id, [Dyn], Dyn).call(call));
        rows.push(global(function, id, [Dyn, Dyn], Dyn).call(call));
        rows.push(global(function, id, [Dyn, Dyn, Dyn], Dyn).call(call));
        rows.push(global(function, id, [Dyn, Dyn, Dyn, Dyn], Dyn).call(call));
        rows.push(global(function, id, [Dyn, Dyn, Dyn, Dyn, Dyn], Dyn).call(call));
    }
    rows
}

fn encode<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::Bytes(bytes)] = args else { return Err(Error::NoSuchOverload) };
    context.allocate(bytes.len() * 2)?;
    Ok(base64::engine::general_purpose::STANDARD.encode(bytes).into())
}

fn decode<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::String(text)] = args else { return Err(Error::NoSuchOverload) };
    context.allocate(text.len())?;
    let bare = text.trim_end_matches('=');
    let bytes = base64::engine::general_purpose::STANDARD_NO_PAD
        .decode(bare)
        .map_err(|error| Error::message(format!("illegal base64 data: {error}")))?;
    Ok(Value::Bytes(bytes.into()))
}

fn with_double<'v>(args: &[Value<'v>], compute: fn(f64) -> Value<'v>) -> Result<'v> {
    match args {
        [Value::Double(value)] => Ok(compute(*value)),
        _ => Err(Error::NoSuchOverload),
    }
}

fn abs<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(match args {
        [Value::Int(value)] => {
            Value::Int(value.checked_abs().ok_or_else(|| Error::message("integer overflow"))?)
        }
        [value @ Value::Uint(_)] => value.clone(),
        [Value::Double(value)] => Value::Double(value.abs()),
        _ => return Err(Error::NoSuchOverload),
    })
}

fn sign<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(match args {
        [Value::Int(value)] => Value::Int(value.signum()),
        [Value::Uint(value)] => Value::Uint((*value).min(1)),
        [Value::Double(value)] if *value == 0.0 || value.is_nan() => Value::Double(*value),
        [Value::Double(value)] => Value::Double(value.signum()),
        _ => return Err(Error::NoSuchOverload),
    })
}

fn sqrt<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Double(match args {
        [Value::Int(value)] => (*value as f64).sqrt(),
        [Value::Uint(value)] => (*value as f64).sqrt(),
        [Value::Double(value)] => value.sqrt(),
        _ => return Err(Error::NoSuchOverload),
    }))
}

fn bit_not<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(match args {
        [Value::Int(value)] => Value::Int(!value),
        [Value::Uint(value)] => Value::Uint(!value),
        _ => return Err(Error::NoSuchOverload),
    })
}

fn bits<'v>(args: &[Value<'v>], of: fn(u64, u64) -> u64) -> Result<'v> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => {
            Value::Int(of(a.cast_unsigned(), b.cast_unsigned()).cast_signed())
        }
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(of(*a, *b)),
        _ => return Err(Error::NoSuchOverload),
    })
}

fn bit_and<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    bits(args, |a, b| a & b)
}

fn bit_or<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    bits(args, |a, b| a | b)
}

fn bit_xor<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    bits(args, |a, b| a ^ b)
}

/// Shifts without carrying the sign along.
fn shifted<'v>(args: &[Value<'v>], left: bool) -> Result<'v> {
    let by = |by: &i64| {
        u32::try_from((*by).min(64)).map_err(|_| {
            let name = if left { "math.bitShiftLeft" } else { "math.bitShiftRight" };
            Error::message(format!("{name}() negative offset: {by}"))
        })
    };
    let of = |value: u64, by: u32| {
        let shifted = if left { value.checked_shl(by) } else { value.checked_shr(by) };
        shifted.unwrap_or(0)
    };
    Ok(match args {
        [Value::Int(value), Value::Int(offset)] => {
            Value::Int(of(value.cast_unsigned(), by(offset)?).cast_signed())
        }
        [Value::Uint(value), Value::Int(offset)] => Value::Uint(of(*value, by(offset)?)),
        _ => return Err(Error::NoSuchOverload),
    })
}

fn shift_left<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    shifted(args, true)
}

fn shift_right<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    shifted(args, false)
}

fn extreme<'v>(args: &[Value<'v>], name: &str, greatest: bool) -> Result<'v> {
    let values = match args {
        [Value::List(list)] => list.to_vec()?,
        values => values.to_vec(),
    };
    let mut values = values.into_iter();
    let mut found = values
        .next()
        .ok_or_else(|| Error::message(format!("{name}(list) argument must not be empty")))?;
    if !matches!(found, Value::Int(_) | Value::Uint(_) | Value::Double(_)) {
        return Err(Error::NoSuchOverload);
    }
    for value in values {
        let order = value.compare(&found)?;
        if greatest && order.is_gt() || !greatest && order.is_lt() {
            found = value;
        }
    }
    Ok(found)
}

fn greatest<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    extreme(args, "math.@max", true)
}

fn least<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    extreme(args, "math.@min", false)
}
