//! Conflicts: the errors of an apply that changes fields of other managers.

use super::fieldset::FieldSet;
use super::managed::{Entry, Operation};
use setpoint_object::status::{Cause, Details};
use setpoint_object::{ApiError, Reason, field};
use std::fmt::Write as _;
use std::ops::ControlFlow;

/// The fields of one other manager that an apply would change.
pub(super) struct Conflict<'a> {
    /// Position of the manager's entry.
    pub(super) entry: usize,
    pub(super) fields: FieldSet<'a>,
}

/// The most bytes of field paths that a refusal shows: 256 KiB. A path repeats the names on its
/// way, which may be as long as the object.
const PATHS_BYTES_MAX: usize = 256 << 10;

/// 409 `Apply failed with N conflicts: …`, one cause per field and manager. Of more than
/// [`PATHS_BYTES_MAX`] the first are shown.
pub(super) fn error(entries: &[Entry<'_>], conflicts: &[Conflict<'_>]) -> ApiError {
    let mut by_manager: Vec<(String, String, &FieldSet<'_>)> = conflicts
        .iter()
        .filter_map(|conflict| {
            let entry = entries.get(conflict.entry)?;
            Some((entry.identity(), describe(entry), &conflict.fields))
        })
        .collect();
    by_manager.sort_by(|a, b| a.0.cmp(&b.0));
    let n_conflicts: usize = by_manager.iter().map(|(_, _, fields)| fields.len()).sum();
    let mut causes = Vec::new();
    let mut message = String::new();
    let mut bytes = 0;
    for (_, manager, fields) in &by_manager {
        if bytes > PATHS_BYTES_MAX {
            break;
        }
        let newline = if message.is_empty() { "" } else { "\n" };
        let _ = write!(message, "{newline}conflicts with {manager}:");
        let _ = fields.visit(&mut Vec::new(), &mut |path| {
            let field: String = path.iter().map(|element| element.to_string()).collect();
            bytes += field.len() + manager.len();
            let _ = write!(message, "\n- {field}");
            let message = format!("conflict with {manager}");
            causes.push(Cause { reason: "FieldManagerConflict".to_owned(), message, field });
            if bytes > PATHS_BYTES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
    let message = match causes.as_slice() {
        [only] if n_conflicts == 1 => {
            format!("Apply failed with 1 conflict: {}: {}", only.message, only.field)
        }
        _ => {
            if causes.len() < n_conflicts {
                let _ = write!(message, "\n- and {} more", n_conflicts - causes.len());
            }
            format!("Apply failed with {n_conflicts} conflicts: {message}")
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
