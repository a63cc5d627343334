//! Patches with `fieldValidation=Ignore`.
use super::*;

#[test]
fn patches_without_field_validation_are_checked_less() {
    let json = |patch: &str| {
        let mut target = json!({"a": 1});
        let result = json_patch_unchecked(&mut target, patch.as_bytes());
        shown(&target, &[], result)
    };
    let merge = |patch: &str| {
        let mut target = json!({"a": 1});
        let result = merge_patch_unchecked(&mut target, patch.as_bytes());
        shown(&target, &[], result)
    };
    let told = [
        // `from` is not looked at, and a path that is no text is found when it is needed.
        json(r#"[{"op":"remove","path":"/a","from":1}]"#),
        json(r#"[{"op":"remove","path":1}]"#),
        json("[1]"),
        json("{}"),
        json("["),
        json("null"),
        merge(r#"{"b":2,"b":3}"#),
        merge(r#"[{"x":null},null]"#),
        merge("1"),
        merge("null"),
        merge("{"),
    ];
    expect![[r#"
        {}
        422 Invalid the server rejected our request due to an error in our request
        400 BadRequest json: cannot unmarshal number into Go value of type jsonpatch.Operation
        400 BadRequest json: cannot unmarshal object into Go value of type jsonpatch.Patch
        400 BadRequest unexpected end of JSON input
        {"a":1}
        {"a":1,"b":3}
        [{},null]
        400 BadRequest Invalid JSON Patch
        400 BadRequest Invalid JSON Patch
        400 BadRequest Invalid JSON Patch"#]]
    .assert_eq(&told.join("\n"));
}
