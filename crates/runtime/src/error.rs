//! Errors of any type, and their texts.

pub(crate) use setpoint_object::error::chain;
use std::error::Error;

/// An owned error of any type.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An error and its causes.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error: &&'a (dyn Error + 'static)| error.source())
}
