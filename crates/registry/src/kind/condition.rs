//! Conditions of the type that kinds share.
use crate::kind::at::At;
use setpoint_object::name;
use std::collections::HashSet;

/// Limits of a condition's texts in bytes.
const REASON_BYTES_MAX: usize = 1024;
const MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// Validates a list of conditions: each type once, and every member but the message.
pub(super) fn conditions(at: &At<'_, '_>) {
    let mut seen = HashSet::new();
    for condition in at.items() {
        let kind = condition.get("type");
        if !seen.insert(kind.text()) {
            kind.duplicate_of(kind.text());
        }
        for fault in name::qualified_name(kind.text()) {
            kind.invalid_as(&kind.text().into(), fault);
        }
        condition.get("status").choice(&["False", "True", "Unknown"]);
        let generation = condition.get("observedGeneration");
        if generation.int().is_some_and(|generation| generation < 0) {
            generation.invalid("must be greater than or equal to zero");
        }
        condition.get("lastTransitionTime").need();
        let reason = condition.get("reason");
        if reason.need() {
            if !is_reason(reason.text()) {
                reason.invalid(
                    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')",
                );
            }
            if reason.text().len() > REASON_BYTES_MAX {
                reason.too_long(REASON_BYTES_MAX);
            }
        }
        if condition.text_of("message").len() > MESSAGE_BYTES_MAX {
            condition.get("message").too_long(MESSAGE_BYTES_MAX);
        }
    }
}

fn is_reason(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':');
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.bytes().all(inner)
}
