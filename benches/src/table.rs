//! The result table.

use std::fmt;
use std::time::{Duration, Instant};

/// Rows of figures, in the order in which they were measured.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<[String; 4]>,
    has_verdicts: bool,
}

impl Table {
    /// A table that says of each goal whether it is met.
    pub(crate) fn with_verdicts() -> Self {
        Self { has_verdicts: true, ..Self::default() }
    }

    pub(crate) fn row(&mut self, what: &str, figure: String, goal: &str) {
        eprintln!("{what}: {figure}");
        self.rows.push([what.to_owned(), figure, goal.to_owned(), String::new()]);
    }

    /// A row with its verdict; none where there is no goal.
    pub(crate) fn judged(&mut self, what: &str, figure: String, goal: &str, is_met: Option<bool>) {
        let verdict = match is_met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "–",
        };
        self.rows.push([what.to_owned(), figure, goal.to_owned(), verdict.to_owned()]);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| measure | figure | goal |")?;
        f.write_str(if self.has_verdicts {
            " verdict |\n|---|---|---|---|"
        } else {
            "\n|---|---|---|"
        })?;
        for [what, figure, goal, verdict] in &self.rows {
            write!(f, "\n| {what} | {figure} | {goal} |")?;
            if self.has_verdicts {
                write!(f, " {verdict} |")?;
            }
        }
        Ok(())
    }
}

/// Durations of many rounds.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    pub(crate) fn push_since(&mut self, started: Instant) {
        self.0.push(started.elapsed());
    }

    /// The median.
    pub(crate) fn median(&self) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// `12.3 µs (p99 20.1 µs)`.
    pub(crate) fn told(mut self) -> String {
        self.0.sort_unstable();
        let at = |share: f64| self.0[((self.0.len() - 1) as f64 * share) as usize];
        format!("{} (p99 {})", short(at(0.5)), short(at(0.99)))
    }
}

/// A duration with three digits.
pub(crate) fn short(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    match micros {
        ..1e3 => format!("{micros:.1} µs"),
        ..1e6 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}
