//! Time as the API writes it, from a clock that is given.
use std::time::Duration;
/// A moment: time since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub Duration);
impl Timestamp {
    /// RFC 3339, seconds, `Z`.
    pub fn rfc3339(&self) -> String {
        todo!()
    }
    /// RFC 3339 with exactly six fractional digits (`MicroTime`).
    pub fn rfc3339_micro(&self) -> String {
        todo!()
    }
    /// Parses RFC 3339, any offset, any fraction.
    pub fn parse(_text: &str) -> Option<Self> {
        todo!()
    }
}
/// A clock: a moment that was given, plus the tokio time that has passed since. Stands still when a test pauses time.
#[derive(Debug, Clone)]
pub struct Clock {
    base: Timestamp,
    started: tokio::time::Instant,
}
impl Clock {
    /// A clock that reads `base` now. Needs no runtime.
    pub fn starting_at(base: Timestamp) -> Self {
        Self { base, started: tokio::time::Instant::now() }
    }
    /// A clock that starts at the wall clock's now: for programs, at their edge.
    pub fn wall() -> Self {
        todo!()
    }
    /// Now.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.base.0 + self.started.elapsed())
    }
}
