use super::to_bytes;
use serde_json::{Value, json};

fn check(object: &Value, expected: &str) {
    let bytes = to_bytes(object);
    assert_eq!(std::str::from_utf8(&bytes).unwrap(), expected);
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), *object);
}

#[test]
fn members_of_built_in_objects_have_the_order_of_their_structs() {
    check(
        &json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "annotations": {"b": "1", "a": "2"}, "creationTimestamp": null, "labels": {"z": "1", "a": "2"},
                "managedFields": [{"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:z": {}, "f:a": {}},
                    "manager": "m", "operation": "Apply", "time": "2026-01-01T00:00:00Z"}],
                "name": "a", "namespace": "n", "uid": "u",
            },
            "spec": {
                "containers": [{"image": "i", "name": "c", "resources": {"requests": {"memory": "1", "cpu": "1"}, "limits": {}},
                    "ports": [{"protocol": "TCP", "containerPort": 80}]}],
                "volumes": [{"emptyDir": {}, "name": "v"}],
            },
            "status": {},
        }),
        concat!(
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","creationTimestamp":null,"#,
            r#""labels":{"a":"2","z":"1"},"annotations":{"a":"2","b":"1"},"managedFields":[{"manager":"m","operation":"Apply","#,
            r#""apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:a":{},"f:z":{}}}]},"#,
            r#""spec":{"volumes":[{"name":"v","emptyDir":{}}],"containers":[{"name":"c","image":"i","#,
            r#""ports":[{"containerPort":80,"protocol":"TCP"}],"#,
            r#""resources":{"limits":{},"requests":{"cpu":"1","memory":"1"}}}]},"status":{}}"#,
        ),
    );
}

#[test]
fn members_without_a_field_are_last_and_sorted() {
    check(
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "z\"": {"b": 1, "a": 2}, "a": 1, "data": {"k": "v"}}),
        r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"k":"v"},"a":1,"z\"":{"a":2,"b":1}}"#,
    );
}

#[test]
fn other_objects_are_sorted() {
    check(
        &json!({"kind": "Network", "apiVersion": "ex.io/v1", "metadata": {"name": "a", "annotations": {}}}),
        r#"{"apiVersion":"ex.io/v1","kind":"Network","metadata":{"annotations":{},"name":"a"}}"#,
    );
    check(&json!([{"b": 1, "a": 2}]), r#"[{"a":2,"b":1}]"#);
}

#[test]
fn empty_lists_that_are_always_written_are_null() {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
        "spec": {"selector": {}, "template": {"spec": {"containers": [], "volumes": []}}},
    });
    // `volumes` is left out when objects are decoded; here it is a member as it stands.
    assert_eq!(
        std::str::from_utf8(&to_bytes(&deployment)).unwrap(),
        r#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{},"spec":{"selector":{},"template":{"spec":{"volumes":[],"containers":null}}}}"#
    );
}

#[test]
fn schemas_in_schemas_are_ordered() {
    let schema =
        r#"{"type":"object","required":["n"],"properties":{"n":{"type":"string","format":"f"}}}"#;
    let text = |items: &str, more: &str| {
        format!(
            concat!(
                r#"{{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{{"#,
                r#""versions":[{{"name":"v1","schema":{{"openAPIV3Schema":{{"items":{},"additionalProperties":{}}}}}}}]}}}}"#
            ),
            items, more
        )
    };
    for text in [text(schema, schema), text(&format!("[{schema},{schema}]"), "true")] {
        let tree: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(std::str::from_utf8(&to_bytes(&tree)).unwrap(), text);
    }
}

#[test]
fn owned_items_are_in_the_order_of_their_keys() {
    let owned = concat!(
        r#"{"f:a":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{},"k:{\"port\":80,\"protocol\":\"UDP\"}":{"f:b":{}},"#,
        r#""k:{\"port\":443,\"protocol\":\"SCTP\"}":{}},"f:set":{"v:9":{},"v:10":{},"v:\"a\"":{},"v:true":{},"i:2":{},"i:10":{}}}"#
    );
    let text = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"managedFields":[{{"fieldsV1":{owned}}}]}}}}"#
    );
    let tree: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(std::str::from_utf8(&to_bytes(&tree)).unwrap(), text);
}
