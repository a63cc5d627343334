//! Bodies in protobuf.
use setpoint_schema::decode::{Format, conform, parse};
use setpoint_schema::{builtin, encode, protobuf};

/// Any bytes are refused or become a tree. One that is an object of a built-in kind is written in
/// protobuf, and that is read as the same object.
pub fn check(input: &[u8]) {
    let Ok(decoded) = parse(input, Format::Protobuf) else { return };
    let mut object = decoded.value;
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let Some(schema) = builtin::type_schema(group, version, &kind) else { return };
    if conform(&schema, &kind, &mut object, &mut Vec::new()).is_err() {
        return;
    }
    let json = encode::to_bytes(&object);
    let Ok(sent) = protobuf::object(&json) else { return };
    let mut again = parse(&sent, Format::Protobuf).unwrap().value;
    conform(&schema, &kind, &mut again, &mut Vec::new()).unwrap();
    assert_eq!(encode::to_bytes(&again), json);
}
