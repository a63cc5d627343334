//! Nothing: the feature `otel` is off.

use std::fmt::Display;

use setpoint_object::time::Timestamp;

use crate::{
    client::Note,
    pass::{Began, PassOutcome},
    request::Request,
};

/// There are none.
#[derive(Debug, Clone)]
pub(crate) enum Traces {}

/// There is none.
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

/// The pass as it is.
pub(crate) fn within<F: Future>(_: Option<&Trace>, pass: F) -> F {
    pass
}
