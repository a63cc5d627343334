//! Empty stand-ins while the feature `otel` is off.

use std::fmt::Display;

use setpoint_object::time::Timestamp;

use crate::{
    client::Note,
    pass::{Began, PassOutcome},
    request::Request,
};

/// Has no values.
#[derive(Debug, Clone)]
pub(crate) enum Traces {}

/// Has no values.
pub(crate) enum Trace {}

impl Traces {
    pub(crate) fn begin(
        &self,
        _: &str,
        _: &impl Display,
        _: Option<&Request>,
        _: &Began,
        _: Timestamp,
    ) -> Option<Trace> {
        match *self {}
    }
}

impl Trace {
    pub(crate) fn end(&self, _: &PassOutcome, _: &[Note], _: Timestamp) {
        match *self {}
    }
}

/// Returns the pass unchanged.
pub(crate) fn within<F: Future>(_: Option<&Trace>, pass: F) -> F {
    pass
}
