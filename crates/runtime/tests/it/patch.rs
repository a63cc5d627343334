//! The patches that the in-memory server understands.

use serde_json::{Value, json};
use setpoint_object::{ApiError, Reason};

/// The part of RFC 6902 that the crate sends.
pub(crate) fn json_patch(object: &mut Value, operations: &Value) -> Result<(), ApiError> {
    for operation in operations.as_array().unwrap() {
        let path = operation["path"].as_str().unwrap();
        let value = &operation["value"];
        let (parent, member) = path.rsplit_once('/').unwrap();
        match operation["op"].as_str().unwrap() {
            "test" if object.pointer(path).unwrap_or(&Value::Null) == value => {}
            "test" => {
                return Err(ApiError::new(422, Reason::Invalid, "the test failed"));
            }
            "add" => match object.pointer_mut(parent).unwrap() {
                Value::Array(array) => array.push(value.clone()),
                parent => parent[member] = value.clone(),
            },
            "remove" => {
                _ = object
                    .pointer_mut(parent)
                    .unwrap()
                    .as_array_mut()
                    .unwrap()
                    .remove(member.parse().unwrap())
            }
            other => panic!("no such operation: {other}"),
        }
    }
    Ok(())
}

/// RFC 7396.
pub(crate) fn merge_patch(object: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in members {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge_patch(&mut object[name], value);
        }
    }
}
