//! Conditions of the type that kinds share.
use crate::kind::at::At;
use crate::kind::text;
use serde_json::{Value, json};
use setpoint_object::{field, name};
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

/// Whether the first condition of a type is true.
pub(super) fn is_true(conditions: &Value, kind: &str) -> bool {
    let mut conditions = conditions.as_array().into_iter().flatten();
    let found = conditions.find(|condition| text(condition, "type") == kind);
    found.is_some_and(|condition| text(condition, "status") == "True")
}

/// Reports a list of conditions, which is shown with its members in the order of the API.
pub(super) fn shown(at: &At<'_, '_>, detail: &str) {
    const ORDER: [&str; 6] =
        ["type", "status", "observedGeneration", "lastTransitionTime", "reason", "message"];
    let shown = |condition: &Value| {
        let member = |name: &&str| {
            let member = field::show(&json!({*name: condition.get(*name)?}));
            Some(member.get(1..member.len() - 1)?.to_owned())
        };
        format!("{{{}}}", ORDER.iter().filter_map(member).collect::<Vec<_>>().join(","))
    };
    let shown = match at.value.as_array() {
        Some(list) => format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(",")),
        None => "null".to_owned(),
    };
    at.report(|path| field::Error {
        kind: field::ErrorKind::Invalid,
        path,
        shown: Some(shown),
        detail: detail.to_owned(),
    });
}

fn is_reason(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':');
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.bytes().all(inner)
}
