//! JSON patches, merge patches and strategic merge patches.
use serde_json::Value;
use setpoint_object::encode::to_bytes;
use setpoint_schema::decode::{Format, conform, parse};
use setpoint_schema::{builtin, patch};

/// The first line of the input is an object, the rest a patch. Each way of patching refuses it or
/// gives a tree that is a body again. A merge patch twice is one.
pub fn check(input: &[u8]) {
    let at = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (object, body) = (&input[..at], input.get(at + 1..).unwrap_or_default());
    let Ok(decoded) = parse(object, Format::Json) else { return };
    let is_body = |value: &Value| assert!(parse(&to_bytes(value), Format::Json).is_ok());
    let (object, mut problems) = (decoded.value, Vec::new());
    let mut target = object.clone();
    if patch::json_patch(&mut target, body, &mut problems).is_ok() {
        is_body(&target);
    }
    let mut target = object.clone();
    if patch::merge_patch(&mut target, body, &mut problems).is_ok() {
        let once = target.clone();
        patch::merge_patch(&mut target, body, &mut problems).unwrap();
        assert_eq!(target, once);
        is_body(&target);
    }
    if let Ok(operations) = patch::operations(body) {
        let _ = patch::apply_operations(&mut object.clone(), operations);
    }
    let schema = builtin::type_schema("", "v1", "Pod").unwrap();
    let mut target = object;
    if conform(&schema, "Pod", &mut target, &mut problems).is_ok()
        && patch::strategic_merge_patch(&schema, &mut target, body, &mut problems).is_ok()
    {
        is_body(&target);
        let _ = conform(&schema, "Pod", &mut target, &mut problems);
    }
}
