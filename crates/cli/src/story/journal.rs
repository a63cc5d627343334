//! The controller's log lines, stored for the story.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Maximum number of stored lines; older ones are dropped.
const LINES_MAX: usize = 1000;

/// Log targets that are recorded: the controller, its runtime, its informers.
const TARGETS: &[&str] = &["network", "setpoint_informer", "setpoint_runtime"];

/// A `tracing` layer that records the controller's log lines from level INFO up. Clones share the
/// lines.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Journal {
    /// Creates an empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes and returns the lines written since the last call.
    pub fn drain(&self) -> Vec<String> {
        self.lines.lock().drain(..).collect()
    }

    /// Returns `text` if a line contains it.
    pub fn find(&self, text: &str) -> Option<String> {
        self.lines.lock().iter().any(|line| line.contains(text)).then(|| text.to_owned())
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let source = metadata.target().split("::").next().unwrap_or_default();
        if *metadata.level() > Level::INFO || !TARGETS.contains(&source) {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        let mut lines = self.lines.lock();
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(format!("{:<5} {}{}", metadata.level(), line.message, line.fields));
    }
}

/// A log line under construction.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.fields, " {}={value}", field.name());
    }
}
