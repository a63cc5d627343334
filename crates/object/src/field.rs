//! Field paths and field errors, the content of `Status.details.causes` (spec: api-server §4).
use serde_json::Value;

mod errors;
mod path;
mod show;

pub use errors::Errors;
pub use path::Path;
pub use show::{go_type, is_printable, quote, show};

/// The kind of a field error. Determines the cause's `reason` and the prefix of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ErrorKind {
    Required,
    Invalid,
    TypeInvalid,
    NotSupported,
    Duplicate,
    NotFound,
    Forbidden,
    TooLong,
    TooShort,
    TooMany,
    TooFew,
    Internal,
}

/// An error of one field. Displays as `spec.x: Invalid value: 3: must be ...`.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The path of the field.
    pub path: Path,
    /// The printed value, for kinds whose text includes one, as the API prints it; `None` if not
    /// shown.
    pub shown: Option<String>,
    /// The explanation; may be empty.
    pub detail: String,
}
impl Error {
    /// `Required value[: detail]`.
    pub fn required(path: Path, detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Required, path, shown: None, detail: detail.into() }
    }
    /// `Invalid value: <value>: detail`.
    pub fn invalid(path: Path, value: &Value, detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Invalid, path, shown: Some(show(value)), detail: detail.into() }
    }
    /// As `invalid`, reason `FieldValueTypeInvalid`.
    pub fn type_invalid(path: Path, value: &Value, detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::TypeInvalid, path, shown: Some(show(value)), detail: detail.into() }
    }
    /// `Unsupported value: <value>: supported values: "A", "B"` (in the order given).
    pub fn not_supported<S: AsRef<str>>(path: Path, value: &Value, supported: &[S]) -> Self {
        Self {
            kind: ErrorKind::NotSupported,
            path,
            shown: Some(show(value)),
            detail: format!(
                "supported values: {}",
                supported.iter().map(|s| quote(s.as_ref())).collect::<Vec<_>>().join(", ")
            ),
        }
    }
    /// `Duplicate value: <value>`.
    pub fn duplicate(path: Path, value: &Value) -> Self {
        Self { kind: ErrorKind::Duplicate, path, shown: Some(show(value)), detail: String::new() }
    }
    /// `Not found: <value>`.
    pub fn not_found(path: Path, value: &Value) -> Self {
        Self { kind: ErrorKind::NotFound, path, shown: Some(show(value)), detail: String::new() }
    }
    /// `Forbidden: detail`.
    pub fn forbidden(path: Path, detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Forbidden, path, shown: None, detail: detail.into() }
    }
    /// `Too long: may not be more than N bytes`.
    pub fn too_long(path: Path, max_bytes: usize) -> Self {
        Self {
            kind: ErrorKind::TooLong,
            path,
            shown: None,
            detail: format!(
                "may not be more than {max_bytes} byte{}",
                if max_bytes == 1 { "" } else { "s" }
            ),
        }
    }
    /// `Too many: N: must have at most M items`.
    pub fn too_many(path: Path, actual: usize, max: usize) -> Self {
        Self {
            kind: ErrorKind::TooMany,
            path,
            shown: Some(actual.to_string()),
            detail: format!("must have at most {max} item{}", if max == 1 { "" } else { "s" }),
        }
    }
    /// `Internal error: detail`.
    pub fn internal(path: Path, detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Internal, path, shown: None, detail: detail.into() }
    }
    /// Length of its path, value and explanation, in bytes.
    pub fn n_bytes(&self) -> usize {
        self.path.n_bytes() + self.detail.len() + self.shown.as_deref().map_or(0, str::len)
    }
    /// The cause's `reason`, such as `FieldValueInvalid`.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            ErrorKind::Required => "FieldValueRequired",
            ErrorKind::Invalid => "FieldValueInvalid",
            ErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            ErrorKind::NotSupported => "FieldValueNotSupported",
            ErrorKind::Duplicate => "FieldValueDuplicate",
            ErrorKind::NotFound => "FieldValueNotFound",
            ErrorKind::Forbidden => "FieldValueForbidden",
            ErrorKind::TooLong => "FieldValueTooLong",
            ErrorKind::TooShort => "FieldValueTooShort",
            ErrorKind::TooMany => "FieldValueTooMany",
            ErrorKind::TooFew => "FieldValueTooFew",
            ErrorKind::Internal => "InternalError",
        }
    }
    /// The cause's `message`: the text without the path.
    pub fn message(&self) -> String {
        let mut text = match self.kind {
            ErrorKind::Required => "Required value",
            ErrorKind::Invalid | ErrorKind::TypeInvalid => "Invalid value",
            ErrorKind::NotSupported => "Unsupported value",
            ErrorKind::Duplicate => "Duplicate value",
            ErrorKind::NotFound => "Not found",
            ErrorKind::Forbidden => "Forbidden",
            ErrorKind::TooLong => "Too long",
            ErrorKind::TooShort => "Too short",
            ErrorKind::TooMany => "Too many",
            ErrorKind::TooFew => "Too few",
            ErrorKind::Internal => "Internal error",
        }
        .to_owned();
        for part in self.shown.as_deref().into_iter().chain([self.detail.as_str()]) {
            if !part.is_empty() {
                text.push_str(": ");
                text.push_str(part);
            }
        }
        text
    }
}
impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message())
    }
}
impl std::error::Error for Error {}

/// Joins field errors into one text: a single error as it is, several as `[a, b]` without
/// duplicates.
pub fn aggregate(errors: &[Error]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    let mut seen = std::collections::HashSet::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        // A body may contain a hundred thousand errors.
        if seen.insert(text.clone()) {
            texts.push(text);
        }
    }
    crate::error::aggregate(&texts)
}

#[cfg(test)]
mod tests;
