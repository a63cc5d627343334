//! Events.
use super::pod::text;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::meta::ObjectExt;

/// Events live in the namespace of what they are about; cluster-scoped things have theirs in `default`.
pub(super) fn validate_event(event: &Value, old: Option<&Value>, errors: &mut Vec<field::Error>) {
    if old.is_some() {
        return;
    }
    let about = text(&event["involvedObject"], "namespace");
    let agrees = if about.is_empty() {
        matches!(event.namespace(), "" | "default")
    } else {
        about == event.namespace()
    };
    if !agrees {
        errors.push(field::Error::invalid(
            field::Path::new("involvedObject.namespace"),
            &about.into(),
            "does not match event.namespace",
        ));
    }
}
