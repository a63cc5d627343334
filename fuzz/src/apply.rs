//! Applied configurations.
use crate::types;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::time::Timestamp;
use setpoint_schema::apply::{self, Manager, Owners, Typing};
use setpoint_schema::decode::{Format, parse};
use setpoint_schema::encode::to_bytes;
use std::collections::BTreeSet;

/// The first line of the input is a stored object, the rest a configuration in YAML. It is refused,
/// or applied; then it can be applied again, and that changes nothing unless the input has entries.
/// An update to the configuration, with managedFields beside the objects, leaves entries that can
/// be read.
pub fn check(input: &[u8]) {
    let at = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let Ok(live) = parse(&input[..at], Format::Json) else { return };
    let Ok(config) = parse(input.get(at + 1..).unwrap_or_default(), Format::Yaml) else { return };
    if !live.value.is_object() || !config.value.is_object() {
        return;
    }
    check_update(&live.value, &config.value);
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

fn check_update(live: &Value, new: &Value) {
    let stored = to_bytes(live);
    let stored = std::str::from_utf8(&stored).unwrap();
    let Some((old, owners)) = Owners::split(stored) else { return };
    let mut new = new.clone();
    new.as_object_mut().unwrap().remove("metadata");
    let before = Some((&old, owners.as_ref()));
    let update = |typing: &Typing<'_>, manager: &Manager<'_>| {
        apply::update_apart(typing, before, &new, manager)
    };
    if let Some(owners) = with_manager(update) {
        owners.join(&mut new);
        assert_eq!(apply::check_entries(&new), Ok(()));
    }
}

fn applied(live: Option<&Value>, config: &Value) -> Result<Value, ApiError> {
    with_manager(|typing, manager| apply::apply(typing, live, config, manager, true))
        .map(|merged| merged.object)
}

fn with_manager<T>(act: impl FnOnce(&Typing<'_>, &Manager<'_>) -> T) -> T {
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
    act(&typing, &Manager { name: "m", api_version: "ex.io/v1", subresource: "", now })
}
