//! The page, and the reasons of known differences.

use super::{Found, Key, Report};
use crate::cargo::root;
use crate::machine::{date, hardware};
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// The page.
const PATH: &str = "docs/validation.md";
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
        "{} cases, {} of them accepted by the original; {} differ, {known} of them for a known \
         reason; {} classes",
        report.cases,
        report.accepted,
        report.differing,
        report.classes.len()
    );
    text
}

/// Writes the page.
pub(super) fn write(report: &Report, cases: usize, seed: u64, version: &str) -> Result<()> {
    // A build without version stamps shows their template.
    let version = if version.contains('$') { "built from source" } else { version };
    let mut page = format!(
        "# Answers to generated objects\n\n\
         The same requests to kube-apiserver and to `setpoint up`. A request is a valid object with \
         one to three small changes: a member is removed, added, doubled or set to an odd value, or \
         gets a value from another object. It is sent as a dry run: as a create, or as an update, a \
         patch or an update of a subresource of an object that was created before. Compared are the \
         code, the reason, the causes in their order, the message, the warnings, and, if it was \
         accepted, the object with its defaults.\n\n\
         Command: `cargo xtask validation --kube-apiserver PATH --etcd PATH --cases {cases} --seed \
         {seed}`. {}, {}. kube-apiserver: {version}, of Kubernetes 1.36. Both without the plugins \
         that call webhooks, evaluate policies, count quotas or mount tokens.\n\n",
        date()?,
        hardware()?,
    );
    let of = |wanted: bool| {
        sorted(report).into_iter().filter(move |(key, _)| reason(key).is_some() == wanted)
    };
    let count = |wanted: bool| of(wanted).map(|(_, found)| found.count).sum::<usize>();
    writeln!(
        page,
        "**{} of {} cases differ** ({:.2} %): {} for a known reason, {} without one. The original \
         accepted {} of the cases. They differ by what comes first: a code, a cause, a warning or a \
         member; a case counts once.\n",
        report.differing,
        report.cases,
        100.0 * ratio(report.differing, report.cases),
        count(true),
        count(false),
        report.accepted,
    )?;
    page.push_str("| kind | cases | differ |\n|---|---|---|\n");
    for (kind, [cases, differing]) in &report.kinds {
        writeln!(page, "| {kind} | {cases} | {differing} |")?;
    }
    page.push_str(
        "\n## Known reasons\n\n| cases | requests | differs | here | original | why |\n\
         |---|---|---|---|---|---|\n",
    );
    for (key, found) in of(true) {
        let why = reason(key).unwrap_or_default();
        row(&mut page, key, found, why)?;
    }
    page.push_str("\n## Not mended\n\n");
    page.push_str(match count(false) {
        0 => "None of these cases.\n",
        _ => {
            "Differences that should not be. A dash is: nothing.\n\n\
             | cases | requests | differs | here | original | for example |\n|---|---|---|---|---|---|\n"
        }
    });
    for (key, found) in of(false).take(ROWS_MAX) {
        row(&mut page, key, found, &found.example)?;
    }
    let rest = of(false).count().saturating_sub(ROWS_MAX);
    if rest > 0 {
        let cases: usize = of(false).skip(ROWS_MAX).map(|(_, found)| found.count).sum();
        writeln!(page, "\nAnd {rest} rarer classes with {cases} cases.")?;
    }
    std::fs::write(root().join(PATH), page).context(PATH)
}

fn row(page: &mut String, (requests, class): &Key, found: &Found, last: &str) -> Result<()> {
    let cell = |text: &str| {
        let short: String = text.chars().take(200).collect();
        short.replace('|', "\\|").replace(['\n', '`'], " ").replace('<', "&lt;")
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
