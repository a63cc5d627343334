//! JSON patch, merge patch, strategic merge patch (spec: patch §2–4).
//!
//! # Theory
//!
//! | patch | knows the schema | lists | `null` |
//! |---|---|---|---|
//! | [`json_patch`] | no | by index | assigned |
//! | [`merge_patch`] | no | replaced | deletes the member |
//! | [`strategic_merge_patch`] | yes | merged by key where the schema says so | deletes the member |
//!
//! Each takes the object as seen in the request's version and changes it in place; after an error
//! the object is of no use (the caller drops it). The result is not decoded yet: the caller
//! conforms, defaults and validates it as it does an update. Duplicate and unknown fields of a
//! patch document go to `problems`, in the words that `fieldValidation` reports. For
//! `fieldValidation=Ignore`, [`json_patch_unchecked`] and [`merge_patch_unchecked`] check less.

pub(crate) mod check;
mod directive;
mod json;
mod merge;
pub(crate) mod notation;
mod order;
mod strategic;
#[cfg(test)]
mod tests;

pub use json::{
    COPIED_BYTES_MAX, OPERATIONS_MAX, STEPS_MAX, apply_operations, check_number, json_patch,
    json_patch_unchecked, may_multiply, may_multiply_text, operations,
};
pub use merge::{merge_patch, merge_patch_unchecked};
pub use notation::{go_type, go_value, json_type};
pub use strategic::strategic_merge_patch;

use setpoint_object::field;
use setpoint_object::status::Details;
use setpoint_object::{ApiError, GroupKind, Reason};

/// 422 ` "" is invalid: patch: Invalid value: "<shown>": <why>`: the result of a patch is no object
/// of its type.
///
/// `shown` is the resulting object as JSON, for strategic merge patches the patch as [`go_value`]
/// prints it. `details` hold causes only, as kind and name are empty.
pub fn undecodable(shown: &str, why: &str) -> ApiError {
    let shown = serde_json::Value::from(shown);
    let error = field::Error::invalid(field::Path::new("patch"), &shown, why);
    ApiError::invalid(&GroupKind { group: "".into(), kind: "".into() }, "", &[error])
}

/// 422 with the text that hides what went wrong, as every failing JSON patch operation is answered.
fn rejected() -> ApiError {
    ApiError::new(
        422,
        Reason::Invalid,
        "the server rejected our request due to an error in our request",
    )
    .with_details(Details::default())
}
