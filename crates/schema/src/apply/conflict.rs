//! What an apply is refused with when others own what it changes (spec: patch §5.5).

use super::fieldset::FieldSet;
use super::managed::{Entry, Operation};
use super::path::Path;
use setpoint_object::status::{Cause, Details};
use setpoint_object::{ApiError, Reason, field};
use std::fmt::Write as _;

/// The fields of one other manager that an apply would change.
pub(super) struct Conflict<'a> {
    /// Position of the manager's entry.
    pub(super) entry: usize,
    pub(super) fields: FieldSet<'a>,
}

/// 409 `Apply failed with N conflicts: …`, one cause per field and manager.
pub(super) fn error(entries: &[Entry<'_>], conflicts: &[Conflict<'_>]) -> ApiError {
    let mut by_manager: Vec<(String, String, Vec<Path<'_>>)> = conflicts
        .iter()
        .filter_map(|conflict| {
            let entry = entries.get(conflict.entry)?;
            Some((entry.identity(), describe(entry), conflict.fields.paths()))
        })
        .collect();
    by_manager.sort_by(|a, b| a.0.cmp(&b.0));
    let mut causes = Vec::new();
    for (_, manager, paths) in &by_manager {
        causes.extend(paths.iter().map(|path| Cause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {manager}"),
            field: path.to_string(),
        }));
    }
    let message = match causes.as_slice() {
        [only] => format!("Apply failed with 1 conflict: {}: {}", only.message, only.field),
        _ => {
            let mut message = format!("Apply failed with {} conflicts: ", causes.len());
            for (at, (_, manager, paths)) in by_manager.iter().enumerate() {
                let newline = if at > 0 { "\n" } else { "" };
                let _ = write!(message, "{newline}conflicts with {manager}:");
                for path in paths {
                    let _ = write!(message, "\n- {path}");
                }
            }
            message
        }
    };
    ApiError::new(409, Reason::Conflict, message)
        .with_details(Details { causes, ..Details::default() })
}

/// `"name" with subresource "status" using apps/v1`.
fn describe(entry: &Entry<'_>) -> String {
    let mut text = field::quote(&entry.manager);
    if !entry.subresource.is_empty() {
        let _ = write!(text, " with subresource {}", field::quote(&entry.subresource));
    }
    if entry.operation == Operation::Update {
        let _ = write!(text, " using {}", entry.api_version);
    }
    text
}
