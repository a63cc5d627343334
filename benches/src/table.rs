//! The result table.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Rows of figures, in the order in which they were measured.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<[String; 3]>,
}

impl Table {
    pub(crate) fn row(&mut self, what: &str, figure: String, goal: &str) {
        eprintln!("{what}: {figure}");
        self.rows.push([what.to_owned(), figure, goal.to_owned()]);
    }

    /// The document that is committed.
    pub(crate) fn document(&self) -> anyhow::Result<String> {
        let date = said("date", &["-u", "+%Y-%m-%d"])?;
        let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
        let cpu = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .unwrap_or("")
            .trim_start_matches(['\t', ':', ' '])
            .to_owned();
        let n_cpus = std::thread::available_parallelism()?;
        Ok(format!(
            "# Results\n\n{date}, {n_cpus} cores of {cpu}, shared with other work. Command: `cargo xtask bench`. Release build; client and server on the \
             same cores. Medians unless said otherwise. Objects are kept in memory: nothing here waits for a disk.\n\n{self}\n\nThe goals are this project's own. Figures of kube-apiserver 1.36 with etcd 3.5, measured \
             on a machine of this kind, not in this run: ready after 2.3 s, 320 MiB resident when idle, 820 and 2,192 ConfigMap creates a second over HTTPS \
             at 1 and 16 connections, each durable before it is acknowledged.\n"
        ))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| measure | figure | goal |\n|---|---|---|")?;
        self.rows
            .iter()
            .try_for_each(|[what, figure, goal]| write!(f, "\n| {what} | {figure} | {goal} |"))
    }
}

fn said(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    Ok(String::from_utf8(Command::new(program).args(arguments).output()?.stdout)?.trim().to_owned())
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
