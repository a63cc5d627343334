//! `cargo xtask pages`: copies measured figures from `benches/RESULTS.md` into the pages that state
//! them.
//!
//! A page names the row in a comment, and the figure stands behind it:
//!
//! ```text
//! <!--= Controller runtime | setpoint, 1 worker | CPU per event -->7.8 µs<!--=-->
//! ```
//!
//! The parts are the heading in RESULTS, the row's first cell or how it begins, and the column
//! (`figure` when it is left out). Rows before the first heading belong to `Results`. The cell is
//! copied up to its first comma, colon, semicolon, parenthesis or equals sign. The rows of
//! `docs/conformance.md` can be named, too, and those of `docs/envtest/PROJECT.md`, which belong to
//! `PROJECT`.

use crate::cargo::root;
use anyhow::{Context, Result, bail, ensure};

const BEGIN: &str = "<!--= ";
const END: &str = "<!--=-->";
const RESULTS: &str = "benches/RESULTS.md";
const CONFORMANCE: &str = "docs/conformance.md";
const SUITES: &str = crate::envtest::PAGES;

/// The pages that state figures.
pub(crate) const PAGES: [&str; 2] = ["README.md", "docs/envtest.md"];

/// One row of a table, with the heading that it stands under.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) section: String,
    pub(crate) columns: Vec<String>,
    pub(crate) cells: Vec<String>,
}

impl Row {
    /// The cell of a column.
    pub(crate) fn cell(&self, column: &str) -> Option<&str> {
        let at = self.columns.iter().position(|name| name == column)?;
        self.cells.get(at).map(String::as_str)
    }
}

/// The rows of all pages that figures are copied from.
pub(crate) fn sources() -> Result<Vec<Row>> {
    let mut all = Vec::new();
    for page in [RESULTS, CONFORMANCE] {
        all.extend(rows(&std::fs::read_to_string(root().join(page)).context(page)?, "Results"));
    }
    for entry in std::fs::read_dir(root().join(SUITES)).context(SUITES)? {
        let path = entry?.path();
        let project = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        all.extend(rows(&std::fs::read_to_string(&path).context(SUITES)?, project));
    }
    Ok(all)
}

/// Every row of every table of a page. Those before the first heading belong to `first`.
pub(crate) fn rows(page: &str, first: &str) -> Vec<Row> {
    let cells = |line: &str| {
        let line = line.trim().trim_start_matches('|').trim_end_matches('|');
        line.split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    let (mut rows, mut section, mut columns) = (Vec::new(), first.to_owned(), None);
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut section);
        }
        match (line.starts_with('|'), &columns) {
            (false, _) => columns = None,
            (true, None) => columns = Some(cells(line)),
            (true, Some(_)) if line.starts_with("|---") => {}
            (true, Some(columns)) => rows.push(Row {
                section: section.clone(),
                columns: columns.clone(),
                cells: cells(line),
            }),
        }
    }
    rows
}

/// The page with the figures of the rows that it names.
pub(crate) fn filled(page: &str, rows: &[Row]) -> Result<String> {
    let mut parts = page.split(BEGIN);
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(" -->").context("a comment does not end")?;
        let (_, rest) = rest.split_once(END).with_context(|| format!("{name}: no {END}"))?;
        let figure = figure(name, rows).with_context(|| name.to_owned())?;
        filled += &format!("{BEGIN}{name} -->{figure}{END}{rest}");
    }
    Ok(filled)
}

fn figure<'a>(name: &str, rows: &'a [Row]) -> Result<&'a str> {
    let mut parts = name.split(" | ");
    let (section, measure) = (parts.next().unwrap_or_default(), parts.next().context("no row")?);
    let column = parts.next().unwrap_or("figure");
    let of_section = || rows.iter().filter(|row| row.section == section);
    // A row of exactly this name, else the one that begins so.
    let mut found: Vec<&Row> = of_section().filter(|row| row.cells[0] == measure).collect();
    if found.is_empty() {
        found = of_section().filter(|row| row.cells[0].starts_with(measure)).collect();
    }
    found.retain(|row| row.cell(column).is_some());
    let [row] = found[..] else { bail!("{} rows of {RESULTS} have this name", found.len()) };
    let cell = row.cell(column).unwrap_or_default();
    let end = cell.find([',', ':', ';', '(', '=']).unwrap_or(cell.len());
    let figure = cell[..end].trim();
    ensure!(figure.contains(|c: char| c.is_ascii_digit()), "{cell:?} is no figure");
    Ok(figure)
}

/// Rewrites the pages.
pub(crate) fn run() -> Result<()> {
    let root = root();
    let rows = sources()?;
    for page in PAGES {
        let path = root.join(page);
        let before = std::fs::read_to_string(&path).context(page)?;
        let after = filled(&before, &rows).context(page)?;
        let is_new = before != after;
        if is_new {
            std::fs::write(&path, after)?;
        }
        println!("{page}: {}", if is_new { "figures renewed" } else { "figures as measured" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{filled, rows};

    const RESULTS: &str = "# Results\n\n| measure | figure | goal |\n|---|---|---|\n\
        | start | 3.7 ms (p99 5 ms) | ≤ 5 ms |\n\n## Informer\n\n| client | CPU per object |\n\
        |---|---|\n| a | 8 µs |\n| a, pruned | 7 µs |\n";

    #[test]
    fn figures_are_those_of_their_rows() {
        let page = "Ready in <!--= Results | sta -->?<!--=-->, \
                    <!--= Informer | a | CPU per object --><!--=--> each.";
        assert_eq!(
            filled(page, &rows(RESULTS, "Results")).unwrap(),
            "Ready in <!--= Results | sta -->3.7 ms<!--=-->, \
             <!--= Informer | a | CPU per object -->8 µs<!--=--> each."
        );
    }

    #[test]
    fn a_row_that_is_not_there_is_an_error() {
        let page = "<!--= Informer | b | CPU per object -->8 µs<!--=-->";
        assert!(filled(page, &rows(RESULTS, "Results")).is_err());
    }
}
