//! Conditions: what a controller says about an object, for people and for others to wait on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use setpoint_object::time::Timestamp;

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl ConditionStatus {
    /// As the API spells it.
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

/// Sets one condition among those of an object, and says whether anything changed: if not, there is nothing to write.
///
/// `generation` is the `metadata.generation` that the judgement is about. The transition time moves to `now` only when the status
/// changes, and is whole seconds, as the API keeps it. The order of the others stays; a new condition goes last.
///
/// `reason` is one word in CamelCase, and may not be empty; `message` is for people.
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
    let Some(condition) = conditions.iter_mut().find(|condition| condition.type_ == type_) else {
        conditions.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: generation,
            last_transition_time: time(now),
        });
        return true;
    };
    let is_transition = condition.status != status;
    let is_news = is_transition
        || condition.reason != reason
        || condition.message != message
        || condition.observed_generation != generation;
    if is_transition {
        condition.last_transition_time = time(now);
    }
    if is_news {
        condition.status = status.to_owned();
        condition.reason = reason.to_owned();
        condition.message = message.to_owned();
        condition.observed_generation = generation;
    }
    is_news
}

fn time(now: Timestamp) -> Time {
    let seconds = i64::try_from(now.0.as_secs()).unwrap_or(i64::MAX);
    // A time that cannot be written is the last one that can.
    Time(jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX))
}
