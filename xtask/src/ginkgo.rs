//! Reports of Ginkgo, the test framework of Kubernetes' and controller-runtime's suites.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::Path;

/// One spec of a report.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Report {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    leaf_node_type: String,
    pub(crate) leaf_node_location: Location,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) failure: Option<Failure>,
}

/// Where a spec is written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Location {
    #[serde(default)]
    pub(crate) file_name: String,
}

/// Why a spec failed or was skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Failure {
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    spec_reports: Option<Vec<Report>>,
}

impl Report {
    /// Its whole name, which a focus matches.
    pub(crate) fn name(&self) -> String {
        let mut name = self.container_hierarchy_texts.clone().unwrap_or_default().join(" ");
        name.push(' ');
        name + &self.leaf_node_text
    }

    /// Whether it is a spec; otherwise a step around them, such as `BeforeSuite`.
    pub(crate) fn is_spec(&self) -> bool {
        self.leaf_node_type == "It"
    }

    /// Whether the focus left it out.
    fn is_left_out(&self) -> bool {
        let failure = self.failure.as_ref();
        self.state == "skipped" && failure.is_none_or(|failure| failure.message.is_empty())
    }
}

/// The specs and steps of a report, except those that its focus left out.
///
/// # Errors
///
/// If the file is missing or is no report.
pub(crate) fn read(report: &Path) -> Result<Vec<Report>> {
    let text = std::fs::read(report).with_context(|| report.display().to_string())?;
    let suites: Vec<Suite> = serde_json::from_slice(&text).context("a report of Ginkgo")?;
    let reports = suites.into_iter().flat_map(|suite| suite.spec_reports.unwrap_or_default());
    Ok(reports.filter(|report| !report.is_left_out()).collect())
}

/// The beginning of a message, in one line and without paths.
pub(crate) fn first_lines(message: &str) -> String {
    let words = message.split_whitespace().filter(|word| !word.starts_with('/'));
    words.collect::<Vec<_>>().join(" ").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::first_lines;

    #[test]
    fn messages_are_shortened() {
        assert_eq!(first_lines("expected a\n  at /some/where b"), "expected a at b");
    }
}
