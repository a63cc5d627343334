//! Numbers as the API stores them: `int64` if the value is one, else `float64`.
use serde_json::{Number, Value};

/// Integral floats below this are written as integers, so that `1.0` is stored as `1`: 2^53, up to
/// where every integer is a float.
const INTEGRAL_MAX: f64 = 9_007_199_254_740_992.0;

/// A float that JSON can write; `None` for infinities and NaN.
pub(super) fn float(number: f64) -> Option<Value> {
    if number.fract() == 0.0 && number.abs() < INTEGRAL_MAX {
        return Some(Value::from(number as i64));
    }
    Number::from_f64(number).map(Value::Number)
}
