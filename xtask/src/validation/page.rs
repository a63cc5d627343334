//! The page, and the reasons of known differences.

use super::findings::{Found, Key, Report};
use crate::cargo::root;
use crate::machine::{date, hardware};
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// How many classes without a reason the page shows.
const ROWS_MAX: usize = 300;

/// Why a class stays, as `known.txt` has it.
fn reason((requests, class): &Key) -> Option<&'static str> {
    let whole = format!("{requests} [{}] {} / {}", class.what, class.ours, class.original);
    let lines = include_str!("known.txt").lines().filter(|line| !line.starts_with('#'));
    let mut rows = lines.filter_map(|line| line.split_once(" | "));
    rows.find(|(parts, _)| parts.split(" & ").all(|part| whole.contains(part))).map(|(_, why)| why)
}

/// The classes, the most frequent first.
fn sorted(report: &Report) -> Vec<(&Key, &Found)> {
    let mut classes: Vec<_> = report.classes.iter().collect();
    classes.sort_by_key(|(_, found)| std::cmp::Reverse(found.count));
    classes
}

/// What a terminal shows.
pub(super) fn listing(report: &Report) -> String {
    let mut text = String::new();
    for (key, found) in sorted(report) {
        let (requests, class) = key;
        let known = if reason(key).is_some() { " (known)" } else { "" };
        let _ = write!(
            text,
            "{:6} {requests}: {}{known}\n       ours:     {}\n       original: {}\n       case {}: {}\n",
            found.count, class.what, class.ours, class.original, found.case, found.example
        );
    }
    let known = sorted(report).into_iter().filter(|(key, _)| reason(key).is_some());
    let known: usize = known.map(|(_, found)| found.count).sum();
    let _ = writeln!(
        text,
        "{} requests, {} of them accepted by the original; {} differ, {known} of them for a known \
         reason; {} classes",
        report.cases,
        report.accepted,
        report.differing,
        report.classes.len()
    );
    text
}

/// The plugins that most chores go without.
pub(super) const FEW_PLUGINS: &str = "Both without the plugins that call webhooks, evaluate \
                                      policies, count quotas or mount tokens";

/// A page of differences.
#[derive(Debug)]
pub(super) struct Page<'a> {
    pub(super) path: &'static str,
    pub(super) title: &'static str,
    /// What was sent and compared.
    pub(super) about: &'static str,
    /// What is counted.
    pub(super) unit: &'static str,
    /// Which admission plugins both servers have.
    pub(super) plugins: &'static str,
    /// The chore, with its arguments.
    pub(super) command: &'a str,
}

impl Page<'_> {
    /// Writes it.
    pub(super) fn write(&self, report: &Report, version: &str) -> Result<()> {
        std::fs::write(root().join(self.path), self.text(report, version)?).context(self.path)
    }

    fn text(&self, report: &Report, version: &str) -> Result<String> {
        let Self { title, about, unit, plugins, command, .. } = self;
        // A build without version stamps shows their template.
        let version = if version.contains('$') { "built from source" } else { version };
        let mut page = format!(
            "# {title}\n\n{about}\n\nCommand: `cargo xtask {command}`. {}, {}. kube-apiserver: \
             {version}, of Kubernetes 1.36. {plugins}.\n\n",
            date()?,
            hardware()?,
        );
        let of = |wanted: bool| {
            sorted(report).into_iter().filter(move |(key, _)| reason(key).is_some() == wanted)
        };
        let count = |wanted: bool| of(wanted).map(|(_, found)| found.count).sum::<usize>();
        writeln!(
            page,
            "**{} of {} {unit} differ** ({:.2} %): {} for a known reason, {} without one. The \
             original accepted {} of the {unit}. They differ by what comes first: a code, a cause, a \
             warning or a member; one counts once.\n",
            report.differing,
            report.cases,
            100.0 * ratio(report.differing, report.cases),
            count(true),
            count(false),
            report.accepted,
        )?;
        writeln!(page, "| kind | {unit} | differ |\n|---|---|---|")?;
        for (kind, [cases, differing]) in &report.kinds {
            writeln!(page, "| {kind} | {cases} | {differing} |")?;
        }
        page.push_str(
            "\n## Known reasons\n\n| seen | requests | differs | here | original | why |\n\
         |---|---|---|---|---|---|\n",
        );
        for (key, found) in of(true) {
            let why = reason(key).unwrap_or_default();
            row(&mut page, key, found, why)?;
        }
        page.push_str("\n## Not mended\n\n");
        page.push_str(match count(false) {
        0 => "None.\n",
        _ => {
            "Differences that should not be. A dash is: nothing.\n\n\
             | seen | requests | differs | here | original | for example |\n|---|---|---|---|---|---|\n"
        }
    });
        for (key, found) in of(false).take(ROWS_MAX) {
            row(&mut page, key, found, &found.example)?;
        }
        let rest = of(false).count().saturating_sub(ROWS_MAX);
        if rest > 0 {
            let cases: usize = of(false).skip(ROWS_MAX).map(|(_, found)| found.count).sum();
            writeln!(page, "\nAnd {rest} rarer classes, seen {cases} times.")?;
        }
        Ok(page)
    }
}

fn row(page: &mut String, (requests, class): &Key, found: &Found, last: &str) -> Result<()> {
    let cell = |text: &str| {
        let short: String = text.chars().take(200).collect();
        let plain = short.replace(|c: char| c.is_control() || c == '`', " ");
        plain.replace('|', "\\|").replace('<', "&lt;")
    };
    writeln!(
        page,
        "| {} | {requests} | {} | {} | {} | {} |",
        found.count,
        class.what,
        cell(&class.ours),
        cell(&class.original),
        cell(last)
    )?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}
