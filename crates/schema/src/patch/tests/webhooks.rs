//! Patches that webhooks have made.

use super::*;

#[test]
fn patches_of_webhooks_name_the_operation_that_failed() {
    let fails = |operations: serde_json::Value| {
        let mut target = json!({"data": {"x": "1"}, "list": [1]});
        let operations = super::super::operations(operations.to_string().as_bytes())?;
        apply_operations(&mut target, operations).map(|()| target)
    };
    for (operation, error) in [
        (
            json!({"op": "test", "path": "/data/x", "value": "2"}),
            "testing value /data/x failed: test failed",
        ),
        (
            json!({"op": "remove", "path": "/data/absent"}),
            "error in remove for path: '/data/absent': Unable to remove nonexistent key: absent: missing value",
        ),
        (
            json!({"op": "add", "path": "/no/x", "value": 1}),
            "add operation does not apply: doc is missing path: \"/no/x\": missing value",
        ),
        (
            json!({"op": "copy", "from": "/no/x", "path": "/data/y"}),
            "copy operation does not apply: doc is missing from path: /no/x: missing value",
        ),
        (json!({"op": "jump", "path": "/"}), "Unexpected kind: jump"),
        (json!({"path": "/"}), "Unexpected kind: unknown"),
        (json!(null), "Unexpected kind: unknown"),
        (
            json!({"op": "add", "path": "/list/3", "value": 1}),
            "error in add for path: '/list/3': Unable to access invalid index: 3: invalid index referenced",
        ),
        (
            json!({"op": "remove", "path": "/list/x"}),
            "error in remove for path: '/list/x': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            json!({"op": "replace", "path": "", "value": 1}),
            "replace operation value must be object or array: %!w(<nil>)",
        ),
        (json!({"op": "add"}), "add operation failed to decode path: missing value"),
    ] {
        assert_eq!(fails(json!([operation])).unwrap_err(), error);
    }
    assert!(fails(json!({"op": "add"})).is_err());
    assert!(fails(json!([1])).is_err());
    assert!(fails(json!(null)).is_ok());
    let added =
        json!([{"op": "add", "path": "/list/-", "value": 2}, {"op": "remove", "path": "/data"}]);
    assert_eq!(fails(added).unwrap(), json!({"list": [1, 2]}));
    let many = vec![json!({"op": "test", "path": "/data/x", "value": "1"}); OPERATIONS_MAX + 1];
    assert!(fails(many.into()).unwrap_err().contains("maximum operations"));
}
