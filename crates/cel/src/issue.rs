//! Errors of an expression, with their positions.

use std::fmt;

use crate::ast::{Position, Source};

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Where it is.
    pub position: Position,
    /// The message.
    pub message: String,
}

/// The faults of an expression, in the order of the source.
///
/// The text is cel-go's: each fault with its line and a caret below its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issues {
    text: String,
    issues: Vec<Issue>,
}

impl std::error::Error for Issues {}

/// How many faults a text shows; more are counted.
///
/// 100, as in cel-go.
const SHOWN_MAX: usize = 100;

/// The longest line that is shown with a fault, in bytes: cel-go's limit.
pub(crate) const SNIPPET_BYTES_MAX: usize = 16_384;

impl Issues {
    /// The faults of `source`. They are put in the order of their places.
    pub fn new(source: &Source, mut issues: Vec<Issue>) -> Issues {
        issues.sort_by_key(|issue| issue.position);
        Issues { text: text(source, &issues), issues }
    }

    /// The faults.
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn text(source: &Source, issues: &[Issue]) -> String {
    let mut text = issues
        .iter()
        .take(SHOWN_MAX)
        .map(|issue| shown(source, issue))
        .collect::<Vec<_>>()
        .join("\n");
    if issues.len() > SHOWN_MAX {
        text.push_str(&format!("\n{} more errors were truncated", issues.len() - SHOWN_MAX));
    }
    text
}

/// An issue, the line it is in and a caret below the place.
///
/// Below characters that are wider than a Latin one stand wide dots and a wide caret.
fn shown(source: &Source, issue: &Issue) -> String {
    let Position { line, column } = issue.position;
    // A text without characters has no columns and no line to show.
    if source.text().is_empty() {
        return format!("ERROR: <input>:1:0: {}", issue.message);
    }
    if issue.position == Position::NOWHERE {
        return format!("ERROR: <input>:-1:0: {}", issue.message);
    }
    let mut text = format!("ERROR: <input>:{line}:{}: {}", column + 1, issue.message);
    if let Some(snippet) = source.line(line).filter(|line| line.len() <= SNIPPET_BYTES_MAX) {
        let snippet = snippet.replace('\t', " ");
        let wide = |c: char| c.len_utf8() > 1;
        let mut dots = String::new();
        let mut rest = snippet.chars();
        for c in rest.by_ref().take(column as usize) {
            dots.push(if wide(c) { '\u{ff0e}' } else { '.' });
        }
        dots.push(if rest.next().is_some_and(wide) { '\u{ff3e}' } else { '^' });
        text.push_str(&format!("\n | {snippet}\n | {dots}"));
    }
    text
}
