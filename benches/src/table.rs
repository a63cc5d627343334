//! Result tables.

use std::fmt;
use std::time::{Duration, Instant};

/// Rows of figures, in the order of measurement.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<[String; 4]>,
}

impl Table {
    /// A table that shows whether each goal is met.
    pub(crate) fn with_verdicts() -> Self {
        Self::default()
    }

    /// A row whose verdict follows from the texts: `3.7 µs (p99 4.1 µs)` meets `≤ 10 µs`.
    pub(crate) fn row(&mut self, what: &str, figure: String, goal: &str) {
        eprintln!("{what}: {figure}");
        let is_met = meets(&figure, goal);
        self.judged(what, figure, goal, is_met);
    }

    /// Adds a row with its verdict; `None` without a goal.
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
        f.write_str("| measure | figure | goal | verdict |\n|---|---|---|---|")?;
        for [what, figure, goal, verdict] in &self.rows {
            write!(f, "\n| {what} | {figure} | {goal} | {verdict} |")?;
        }
        Ok(())
    }
}

/// Whether a figure meets a goal such as `≤ 5 ms` or `≥ 3×`; `None` where there is no goal. Only
/// the number at the figure's beginning counts.
fn meets(figure: &str, goal: &str) -> Option<bool> {
    let at_most = goal.strip_prefix('≤').or_else(|| goal.strip_prefix('<'));
    let at_least = goal.strip_prefix('≥').or_else(|| goal.strip_prefix('>'));
    let (figure, goal) = (quantity(figure)?, quantity(at_most.or(at_least)?)?);
    Some(if at_most.is_some() { figure <= goal } else { figure >= goal })
}

/// The number that a text begins with, in seconds or bytes where it has such a unit.
fn quantity(text: &str) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && !".-".contains(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit.trim_start().split([' ', ',', ':']).next().unwrap_or_default() {
        "ns" => 1e-9,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => 1.0,
    };
    Some(number.parse::<f64>().ok()? * unit)
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
    pub(crate) fn summary(mut self) -> String {
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

#[cfg(test)]
mod tests {
    use super::meets;

    #[test]
    fn a_verdict_follows_from_figure_and_goal() {
        assert_eq!(meets("1.63 ms", "≤ 5 ms"), Some(true));
        assert_eq!(meets("22.2 µs (p99 44.3 µs)", "≤ 0.05 ms"), Some(true));
        assert_eq!(meets("8.79 ms (p99 17.82 ms)", "≤ 5 ms"), Some(false));
        assert_eq!(meets("1.45 GiB", "≤ 100 MiB"), Some(false));
        assert_eq!(meets("3.1×: 37 ns against 116 ns", "≥ 3×"), Some(true));
        assert_eq!(meets("0.98×", "≥ 0.99×"), Some(false));
        assert_eq!(meets("3.7 µs", "–"), None);
    }
}
