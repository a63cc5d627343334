//! Applied configurations.
use crate::types;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::time::Timestamp;
use setpoint_schema::apply::{self, Manager, Typing};
use setpoint_schema::decode::{Format, parse};
use std::collections::BTreeSet;

/// The first line of the input is a stored object, the rest a configuration in YAML. It is refused,
/// or applied; then it can be applied again, and that changes nothing unless the input has entries.
pub fn check(input: &[u8]) {
    let at = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let Ok(live) = parse(&input[..at], Format::Json) else { return };
    let Ok(config) = parse(input.get(at + 1..).unwrap_or_default(), Format::Yaml) else { return };
    if !live.value.is_object() || !config.value.is_object() {
        return;
    }
    let Ok(once) = applied(Some(&live.value), &config.value) else { return };
    let twice = applied(Some(&once), &config.value).unwrap();
    // Entries of the input may claim what the object lacks. What is owned by nobody has none; the
    // second apply finds out who was there before.
    let entries = |object: &Value| object.pointer("/metadata/managedFields").is_some();
    if !entries(&live.value) && entries(&once) {
        assert_eq!(twice, once);
    }
    let _ = applied(None, &config.value);
}

fn applied(live: Option<&Value>, config: &Value) -> Result<Value, ApiError> {
    let schema = types::custom();
    let reset = BTreeSet::from(["status"]);
    let typing = Typing {
        schema: &schema,
        kind: "Foo",
        reset: &reset,
        custom: true,
        versions: &[],
        others: None,
    };
    let now = Timestamp::from_secs(1);
    let manager = Manager { name: "m", api_version: "ex.io/v1", subresource: "", now };
    apply::apply(&typing, live, config, &manager, true)
}
