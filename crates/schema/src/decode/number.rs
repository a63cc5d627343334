//! Numbers as the API stores them: `int64` if the value is one, else `float64`.
use serde_json::{Number, Value};

/// Integral floats below this are written as integers, so that `1.0` is stored as `1`: 2^53, up to
/// where every integer is a float.
pub(super) const INTEGRAL_MAX: f64 = 9_007_199_254_740_992.0;

/// A float that JSON can write; `None` for infinities and NaN.
pub(super) fn float(number: f64) -> Option<Value> {
    if number.fract() == 0.0 && number.abs() < INTEGRAL_MAX {
        return Some(Value::from(number as i64));
    }
    Number::from_f64(number).map(Value::Number)
}

/// Writes integral floats as integers, at every depth. [`super::parse_typed`] leaves them.
pub fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(settled) = number.as_f64().and_then(float) {
                *value = settled;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(members) => members.values_mut().for_each(settle_numbers),
        _ => {}
    }
}
