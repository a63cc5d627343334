//! Parses the paths of fields.

/// Maximum number of steps of a path: the maximum nesting of values.
const PATH_STEPS_MAX: usize = crate::scan::DEPTH_MAX as usize;

/// The parts of an object's identity.
const IDENTITY: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
];

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A member of an object.
    Member(String),
    /// Every element of an array.
    Each,
}

/// Why a path is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PruneError {
    /// The path is malformed.
    #[error("malformed path {path:?} at byte {at}: {what}")]
    Malformed {
        /// The path.
        path: String,
        /// The position in the path.
        at: usize,
        /// The problem.
        what: &'static str,
    },
    /// The path names a part of an object's identity, which cannot be removed.
    #[error("{path:?} is part of an object's identity")]
    Identity {
        /// The path.
        path: String,
    },
}

/// Parses a path.
pub(super) fn parse(path: &str) -> Result<Vec<Step>, PruneError> {
    let mut rest = path;
    let mut steps = Vec::new();
    let fail = |rest: &str, what| {
        Err(PruneError::Malformed { path: path.to_owned(), at: path.len() - rest.len(), what })
    };
    loop {
        if let Some(inner) = rest.strip_prefix('[') {
            if let Some(behind) = inner.strip_prefix("*]") {
                if steps.is_empty() {
                    return fail(rest, "an object is no array");
                }
                steps.push(Step::Each);
                rest = behind;
            } else {
                let mut names = serde_json::Deserializer::from_str(inner).into_iter::<String>();
                let Some(Ok(name)) = names.next() else {
                    return fail(inner, "a name in quotes or a star was expected");
                };
                let Some(behind) = inner[names.byte_offset()..].strip_prefix(']') else {
                    return fail(&inner[names.byte_offset()..], "a closing bracket was expected");
                };
                steps.push(Step::Member(name));
                rest = behind;
            }
        } else {
            let len = rest.find(|c| !is_plain(c)).unwrap_or(rest.len());
            if len == 0 {
                return fail(rest, "a name was expected");
            }
            steps.push(Step::Member(rest[..len].to_owned()));
            rest = &rest[len..];
        }
        if steps.len() > PATH_STEPS_MAX {
            return fail(rest, "too many steps");
        }
        if rest.is_empty() {
            break;
        }
        if let Some(behind) = rest.strip_prefix('.') {
            if behind.starts_with('[') {
                return fail(behind, "a name was expected");
            }
            rest = behind;
        } else if !rest.starts_with('[') {
            return fail(rest, "a dot or a bracket was expected");
        }
    }
    if steps.last() == Some(&Step::Each) {
        return fail(rest, "a member was expected: elements are not cut");
    }
    if IDENTITY.iter().any(|identity| steps.iter().eq(identity.iter().copied())) {
        return Err(PruneError::Identity { path: path.to_owned() });
    }
    Ok(steps)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/')
}
impl PartialEq<&str> for &Step {
    fn eq(&self, name: &&str) -> bool {
        matches!(self, Step::Member(member) if member == name)
    }
}
