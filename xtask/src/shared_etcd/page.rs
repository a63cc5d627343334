//! The page.

use super::object::Row;
use super::shared::Fact;
use crate::cargo::root;
use crate::machine::{date, hardware};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The page.
const PATH: &str = "docs/shared-etcd.md";

/// Why a difference stays: parts of a title and a problem, and the reason.
fn reason(row: &Row, problem: &str) -> Option<&'static str> {
    let whole = format!("{} {problem}", row.title);
    let lines = include_str!("known.txt").lines().filter(|line| !line.starts_with('#'));
    let mut known = lines.filter_map(|line| line.split_once(" | "));
    known.find(|(parts, _)| parts.split(" & ").all(|part| whole.contains(part))).map(|(_, why)| why)
}

/// Writes the page.
pub(super) fn write(
    rows: &[Row],
    facts: &[Fact],
    missing: &BTreeSet<String>,
    version: &str,
) -> Result<()> {
    // A build without version stamps shows their template.
    let version = if version.contains('$') { "built from source" } else { version };
    let same = rows.iter().filter(|row| row.problems.is_empty()).count();
    let mut page = format!(
        "# One etcd, two kinds of server\n\n\
         kube-apiserver and `setpoint up` on one etcd, with the same prefix. For each object of this \
         page, one server creates it and the other one reads it; both update, patch and apply it in \
         turn, and write its status; one gives it a finalizer and the other one deletes it. Then the \
         same with the servers exchanged. After each step the answers of both are compared byte for \
         byte: in JSON, in protobuf, in other versions, in a list. A watch at each server has to see \
         the same events.\n\n\
         Command: `cargo xtask shared-etcd --kube-apiserver PATH --etcd PATH`. {}, {}. \
         kube-apiserver: {version}, of Kubernetes 1.36. Both without the plugins that call webhooks, \
         evaluate policies, count quotas or mount tokens, and without controllers of workloads.\n\n\
         **{same} of {} objects: no difference.** Both store them in the same versions and encodings.\n\n\
         ## Both allocate and publish\n\n| | |\n|---|---|\n",
        date()?,
        hardware()?,
        rows.len(),
    );
    for Fact { what, problem } in facts {
        writeln!(page, "| {what} | {} |", problem.as_deref().unwrap_or("yes"))?;
    }
    page.push_str(
        "\n## Objects\n\n\
         With the key, the version and the encoding in etcd.\n\n",
    );
    if !missing.is_empty() {
        let missing = missing.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        writeln!(page, "Not compared, since they are off by default: {missing}.\n")?;
    }
    page.push_str("| object | key | version | encoding | differs |\n|---|---|---|---|---|\n");
    for row in rows {
        let [original, _] = &row.stored;
        let problems: Vec<String> = row
            .problems
            .iter()
            .map(|problem| match reason(row, problem) {
                Some(why) => format!("{} ({why})", cell(problem)),
                None => cell(problem),
            })
            .collect();
        let problems = if problems.is_empty() { "no".to_owned() } else { problems.join("<br>") };
        writeln!(
            page,
            "| {} | `{}` | {} | {} | {problems} |",
            row.title, original.key, original.api_version, original.encoding
        )?;
    }
    std::fs::write(root().join(PATH), page).context(PATH)
}

fn cell(text: &str) -> String {
    let short: String = text.chars().take(240).collect();
    short.replace('|', "\\|").replace(['\n', '`'], " ").replace('<', "&lt;")
}
