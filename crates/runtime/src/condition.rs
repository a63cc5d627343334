//! Conditions: the status that a controller reports, for people and for other controllers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use setpoint_object::{name::qualified_name, time::Timestamp};

/// The longest message of a condition: 32768 characters, as in the schema of `meta/v1` conditions.
pub const CONDITION_MESSAGE_CHARS_MAX: usize = 32_768;

/// The longest reason of a condition: 1024 characters, from the same schema.
pub const CONDITION_REASON_CHARS_MAX: usize = 1024;

/// The longest type of a condition: 316 characters, from the same schema.
pub const CONDITION_TYPE_CHARS_MAX: usize = 316;

/// The end of a truncated message.
const CUT: &str = "…";

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Unknown.
    Unknown,
}

impl ConditionStatus {
    /// The API's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Sets a condition in an object's list. Returns whether anything changed; if not, there is nothing
/// to write.
///
/// `generation` is the observed `metadata.generation`. The transition time becomes `now` only if
/// the status changes; it is in whole seconds, as in the API. Other conditions keep their order. A
/// new condition is appended, and duplicates of its type are removed.
///
/// `reason` is one word in CamelCase and not empty. `message` is for people, and truncated to
/// [`CONDITION_MESSAGE_CHARS_MAX`]. [`check_condition`] checks whether a server accepts the
/// condition.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: impl Into<ConditionStatus>,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let status = status.into().as_str();
    let message = cut(message);
    let Some(at) = conditions.iter().position(|condition| condition.type_ == type_) else {
        conditions.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: time(now),
        });
        return true;
    };
    let n_before = conditions.len();
    let mut n_of_type = 0;
    conditions.retain(|condition| {
        n_of_type += usize::from(condition.type_ == type_);
        condition.type_ != type_ || n_of_type == 1
    });
    let is_shorter = conditions.len() < n_before;
    let Some(condition) = conditions.get_mut(at) else { return is_shorter };
    let is_transition = condition.status != status;
    let has_changed = is_transition
        || condition.reason != reason
        || condition.message != message
        || condition.observed_generation != generation;
    if is_transition {
        condition.last_transition_time = time(now);
    }
    if has_changed {
        condition.status = status.to_owned();
        condition.reason = reason.to_owned();
        condition.message = message;
        condition.observed_generation = generation;
    }
    has_changed || is_shorter
}

/// Removes a condition; returns whether it existed.
pub fn remove_condition(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let n_before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() < n_before
}

/// Finds the condition of this type.
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of this type exists and is true.
pub fn is_condition_true(conditions: &[Condition], type_: &str) -> bool {
    has_condition(conditions, type_, true)
}

/// Whether there is a condition with this type and status. A missing condition is not `Unknown`.
pub fn has_condition(
    conditions: &[Condition],
    type_: &str,
    status: impl Into<ConditionStatus>,
) -> bool {
    let status = status.into().as_str();
    find_condition(conditions, type_).is_some_and(|condition| condition.status == status)
}

/// Whether a condition is true and was observed at this generation or a later one: to check the
/// conditions of other controllers. A condition without a generation counts.
pub fn is_condition_current(conditions: &[Condition], type_: &str, generation: i64) -> bool {
    find_condition(conditions, type_).is_some_and(|condition| {
        condition.status == "True"
            && condition.observed_generation.is_none_or(|observed| observed >= generation)
    })
}

/// Why a server would refuse a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// The type is not a qualified name (`Ready`, `example.com/Ready`), or too long.
    #[error("{0:?} is not a valid condition type")]
    Type(String),
    /// The status is not `True`, `False` or `Unknown`.
    #[error("{0:?} is not a valid condition status")]
    Status(String),
    /// The reason is empty, not a single word, or too long.
    #[error("{0:?} is not a valid condition reason: it must be one word in CamelCase")]
    Reason(String),
    /// The message is too long.
    #[error(
        "the message of a condition has {n_chars} characters, and at most {CONDITION_MESSAGE_CHARS_MAX} are allowed"
    )]
    Message {
        /// Its length in characters.
        n_chars: usize,
    },
}

/// Checks a condition against the schema of `meta/v1` conditions.
///
/// # Errors
///
/// The first violation.
pub fn check_condition(condition: &Condition) -> Result<(), ConditionError> {
    let Condition { type_, status, reason, message, .. } = condition;
    if type_.chars().count() > CONDITION_TYPE_CHARS_MAX || !qualified_name(type_).is_empty() {
        return Err(ConditionError::Type(type_.clone()));
    }
    if !matches!(&**status, "True" | "False" | "Unknown") {
        return Err(ConditionError::Status(status.clone()));
    }
    // ^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$
    let is_word = reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':'))
        && !reason.ends_with([',', ':']);
    if !is_word || reason.len() > CONDITION_REASON_CHARS_MAX {
        return Err(ConditionError::Reason(reason.clone()));
    }
    let n_chars = message.chars().count();
    if n_chars > CONDITION_MESSAGE_CHARS_MAX {
        return Err(ConditionError::Message { n_chars });
    }
    Ok(())
}

fn cut(message: &str) -> String {
    match message.char_indices().nth(CONDITION_MESSAGE_CHARS_MAX) {
        None => message.to_owned(),
        Some(_) => message.chars().take(CONDITION_MESSAGE_CHARS_MAX - 1).collect::<String>() + CUT,
    }
}

fn time(now: Timestamp) -> Time {
    let seconds = i64::try_from(now.0.as_secs()).unwrap_or(i64::MAX);
    // Out of range: the last valid time.
    Time(jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX))
}

#[cfg(test)]
mod tests;
