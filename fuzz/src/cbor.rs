//! Bodies in CBOR.
use serde_json::Value;
use setpoint_object::encode::to_bytes;
use setpoint_schema::decode::{cbor as decode, conform};
use setpoint_schema::{builtin, cbor};

/// Any bytes are refused or become a tree. A tree has JSON, whose CBOR has the same JSON: a whole
/// float is written as an integer, and is one then, as in Go. What is no malformed body has a
/// diagnostic notation. A Secret or a definition that is decoded by its type is made canonical or
/// refused, and has the same notation after another round.
pub fn check(input: &[u8]) {
    let free = decode::object(input);
    if let Ok(tree) = &free {
        let text = to_bytes(tree);
        let again = decode::object(&cbor::object(&text).unwrap()).unwrap();
        assert_eq!(to_bytes(&again), text);
        assert!(!decode::diagnose(input).is_empty());
    }
    let _ = decode::head(input);
    for (group, kind) in [("", "Secret"), ("apiextensions.k8s.io", "CustomResourceDefinition")] {
        let schema = builtin::type_schema(group, "v1", kind).unwrap();
        let Ok(decoded) = decode::typed(input, &schema) else { continue };
        let (mut value, mut problems) = (decoded.value, Vec::new());
        if conform(&schema, kind, &mut value, &mut problems).is_err() {
            continue;
        }
        let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        value["apiVersion"] = Value::from(api_version);
        value["kind"] = Value::from(kind);
        let json = setpoint_schema::encode::to_bytes(&value);
        let sent = cbor::object(&json).unwrap();
        let mut again = decode::typed(&sent, &schema).unwrap();
        assert_eq!(again.unknown, None);
        conform(&schema, kind, &mut again.value, &mut problems).unwrap();
        assert_eq!(setpoint_schema::encode::to_bytes(&again.value), json);
    }
}
