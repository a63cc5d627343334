//! The same request to both servers.

use super::answer::{Class, Outcome};
use super::text;
use crate::http::{Answer, Connection};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::time::Duration;

/// How often something is read that a server shows in its own time.
const READS_MAX: usize = 400;
/// The time between two reads.
const READ_AGAIN: Duration = Duration::from_millis(50);

/// Both servers: ours, and the original.
pub(super) type Sides = [Connection; 2];

/// What a request has shown.
pub(super) struct Shown {
    pub(super) outcomes: [Outcome; 2],
    pub(super) answers: [Answer; 2],
}

impl Shown {
    /// `asked`: all else in an answer is the server's. `stored`: the object that is updated, as
    /// each has it.
    pub(super) fn of(answers: [Answer; 2], asked: &Value, stored: Option<&[Value; 2]>) -> Self {
        let of = |at: usize| Outcome::whole(&answers[at], asked, stored.map(|stored| &stored[at]));
        Self { outcomes: [of(0), of(1)], answers }
    }

    pub(super) fn differs(&self) -> Option<Class> {
        self.outcomes[0].differs(&self.outcomes[1])
    }

    pub(super) fn are_accepted(&self) -> [bool; 2] {
        [self.outcomes[0].is_accepted(), self.outcomes[1].is_accepted()]
    }
}

/// Asks both, ours first; each is given its position.
pub(super) fn both(
    sides: &mut Sides,
    mut send: impl FnMut(&mut Connection, usize) -> Result<Answer>,
) -> Result<[Answer; 2]> {
    let [ours, original] = sides;
    Ok([send(ours, 0)?, send(original, 1)?])
}

/// Reads a path until the answer is right.
pub(super) fn wait(
    side: &mut Connection,
    path: &str,
    is_right: impl Fn(&Answer) -> bool,
) -> Result<Answer> {
    let mut last = Answer::default();
    for _ in 0..READS_MAX {
        last = side.send("GET", path, b"")?;
        if is_right(&last) {
            return Ok(last);
        }
        pause();
    }
    ensure!(is_right(&last), "{path}: {}", text(&last));
    Ok(last)
}

/// Lets a server work.
#[expect(clippy::disallowed_methods, reason = "another process is waited for")]
pub(super) fn pause() {
    std::thread::sleep(READ_AGAIN);
}
