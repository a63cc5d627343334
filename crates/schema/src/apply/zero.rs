//! A built-in object before anything is in it: what a created object is compared with.

use crate::node::{Scalar, Shape, View};
use serde_json::{Map, Value};

/// The object with only those fields that its type always writes.
pub(super) fn zero(view: View<'_>) -> Value {
    if view.zero_null {
        return Value::Null;
    }
    match (view.shape, view.scalar) {
        (Shape::Object, _) => {
            let fields = view.node().properties.iter();
            let present = fields
                .map(|(name, id)| (name, view.at(*id)))
                .filter(|(_, field)| field.always_present);
            Value::Object(
                present.map(|(name, field)| (name.to_string(), zero(field))).collect::<Map<_, _>>(),
            )
        }
        (Shape::String, Scalar::Quantity) => Value::from("0"),
        (Shape::String, Scalar::Plain | Scalar::Bytes | Scalar::Duration) => Value::from(""),
        (Shape::Integer | Shape::Number, _) => Value::from(0),
        (Shape::Boolean, _) => Value::from(false),
        (Shape::IntOrString, _) => Value::from(0),
        _ => Value::Null,
    }
}
