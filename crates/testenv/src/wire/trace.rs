//! A log of the traffic, line by line.

use parking_lot::Mutex;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use tokio::time::Instant;

/// Maximum size of a trace in bytes. Later lines are not recorded, and the last line says so.
const TRACE_BYTES_MAX: usize = 16 << 20;

/// A log of all traffic, one line each, with the milliseconds since the trace was made. At most 16
/// MiB. Clones share it.
#[derive(Clone)]
pub struct Trace(Arc<Lines>);

struct Lines {
    started: Instant,
    lines: Mutex<String>,
    is_shown: bool,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("bytes", &self.0.lines.lock().len()).finish()
    }
}

impl Trace {
    /// An empty trace. With `is_shown` each line is also printed to standard error, for replays.
    /// Call it within a tokio runtime.
    pub fn new(is_shown: bool) -> Self {
        Self(Arc::new(Lines { started: Instant::now(), lines: Mutex::default(), is_shown }))
    }

    /// Adds a line.
    pub fn line(&self, line: impl fmt::Display) {
        let Lines { started, lines, is_shown } = &*self.0;
        let line = format!("{:>8} {line}", started.elapsed().as_millis());
        if *is_shown {
            eprintln!("{line}");
        }
        let mut lines = lines.lock();
        if lines.len() >= TRACE_BYTES_MAX {
            return;
        }
        let written = match lines.len() + line.len() < TRACE_BYTES_MAX {
            true => writeln!(lines, "{line}"),
            false => {
                // Nothing fits after this.
                let room = TRACE_BYTES_MAX - lines.len();
                writeln!(lines, "{:<room$}", "… the trace is full")
            }
        };
        debug_assert!(written.is_ok(), "text can be appended to text");
    }

    /// The text so far.
    pub fn text(&self) -> String {
        self.0.lines.lock().clone()
    }
}
