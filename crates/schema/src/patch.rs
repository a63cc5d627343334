//! JSON patch, merge patch, strategic merge patch (spec: patch §2–4).
use crate::node::TypeSchema;
use serde_json::Value;
use setpoint_object::ApiError;
/// RFC 6902 with the reference's liberties. Errors carry the API's code and text. `strict` collects `json patch unknown field …` problems.
pub fn json_patch(
    _target: &mut Value,
    _patch: &[u8],
    _problems: &mut Vec<String>,
) -> Result<(), ApiError> {
    todo!()
}
/// RFC 7386; refuses a body that is no object.
pub fn merge_patch(
    _target: &mut Value,
    _patch: &[u8],
    _problems: &mut Vec<String>,
) -> Result<(), ApiError> {
    todo!()
}
/// Strategic merge with schema knowledge.
pub fn strategic_merge_patch(
    _schema: &TypeSchema,
    _target: &mut Value,
    _patch: &[u8],
    _problems: &mut Vec<String>,
) -> Result<(), ApiError> {
    todo!()
}
