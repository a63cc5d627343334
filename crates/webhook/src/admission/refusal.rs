//! Errors that deny an admission request.

use setpoint_object::status::{ApiError, Reason, Status};
use std::error::Error;

/// A refusal: the `Status` that the client receives.
///
/// Every error converts to one with `?`. An [`ApiError`] among an error's causes is passed on
/// unchanged, with its code, reason and details. Any other error is a 403 `Forbidden` with the
/// error's message (WHK-6); its causes are not sent.
///
/// ```
/// use setpoint_object::status::ApiError;
/// use setpoint_webhook::Refusal;
///
/// let refusal = Refusal::from(std::io::Error::other("no such tenant"));
/// assert_eq!((refusal.status().code, &*refusal.status().message), (Some(403), "no such tenant"));
///
/// let refusal = Refusal::from(ApiError::too_many_requests("later", 5));
/// assert_eq!(refusal.status().code, Some(429));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal(Box<Status>);

impl Refusal {
    /// Denies the request: 403 `Forbidden`.
    pub fn denied(message: impl Into<String>) -> Self {
        Self(ApiError::new(403, Reason::Forbidden, message).0)
    }

    /// Refuses the request with this status. API servers turn a code below 400 into 400.
    pub fn status_of(status: Status) -> Self {
        Self(Box::new(status))
    }

    /// A refusal for a reason other than the request: this code and no reason.
    pub(crate) fn errored(code: u16, message: impl Into<String>) -> Self {
        Self(ApiError::new(code, Reason::Unknown, message).0)
    }

    /// The status that the client receives.
    pub fn status(&self) -> &Status {
        &self.0
    }

    /// The status that the client receives.
    pub fn into_status(self) -> Box<Status> {
        self.0
    }
}

impl<E: Error + 'static> From<E> for Refusal {
    fn from(error: E) -> Self {
        let first: &(dyn Error + 'static) = &error;
        match api_error(first) {
            Some(carried) => Self(carried.0.clone()),
            None => Self::denied(error.to_string()),
        }
    }
}

/// The [`ApiError`] among an error and its causes.
fn api_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a ApiError> {
    let causes =
        std::iter::successors(Some(error), |&error: &&'a (dyn Error + 'static)| error.source());
    causes.into_iter().find_map(|error| error.downcast_ref::<ApiError>())
}
