//! The page `docs/integration.md`.

use super::{Outcome, Package};
use crate::machine::{date, hardware};
use crate::pages::rows;
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// The page, below the workspace's folder.
pub(crate) const PATH: &str = "docs/integration.md";

/// The heading of the second table.
const FAILURES: &str = "Failures";
/// What [`rows`] calls the part before the first heading.
const PACKAGES: &str = "Packages";
/// The longest message in a cell, in characters.
const MESSAGE_CHARS: usize = 200;

/// What the page says: the last run of each package.
#[derive(Debug, Default)]
pub(super) struct Page {
    packages: Vec<Row>,
    failures: Vec<Failure>,
}

/// A package's row.
#[derive(Debug)]
struct Row {
    package: String,
    /// Passed, failed and skipped tests, and parts that passed and failed.
    counts: [usize; 5],
    seconds: u64,
    date: String,
}

/// A failure's row, without its cause: that is always the one known now.
#[derive(Debug)]
struct Failure {
    package: String,
    test: String,
    /// As it stands in its cell.
    message: String,
}

impl Page {
    /// Reads the page in the workspace; empty if there is none.
    pub(super) fn load() -> Result<Self> {
        let path = crate::cargo::root().join(PATH);
        if !path.exists() {
            return Ok(Self::default());
        }
        Self::read(&std::fs::read_to_string(path).context(PATH)?)
    }

    fn read(text: &str) -> Result<Self> {
        let mut page = Self::default();
        for row in rows(text, PACKAGES) {
            let cell = |at: usize| row.cells.get(at).map_or("", String::as_str);
            let number = |at: usize| -> Result<usize> {
                cell(at).parse().with_context(|| format!("{PATH}: column {at} of {}", cell(0)))
            };
            match &*row.section {
                FAILURES => page.failures.push(Failure {
                    package: cell(0).to_owned(),
                    test: cell(1).to_owned(),
                    message: cell(2).trim_matches('`').to_owned(),
                }),
                PACKAGES if cell(0) != "all" => page.packages.push(Row {
                    package: cell(0).to_owned(),
                    counts: [number(1)?, number(2)?, number(3)?, number(4)?, number(5)?],
                    seconds: number(6)? as u64,
                    date: cell(7).to_owned(),
                }),
                _ => {}
            }
        }
        Ok(page)
    }

    /// Whether a package has a row.
    pub(super) fn has(&self, package: &str) -> bool {
        self.packages.iter().any(|row| row.package == package)
    }

    /// Puts a run of today in the place of the package's earlier one.
    pub(super) fn put(&mut self, package: &Package) -> Result<()> {
        self.put_on(package, date()?);
        Ok(())
    }

    fn put_on(&mut self, package: &Package, date: String) {
        self.packages.retain(|row| row.package != package.name);
        self.failures.retain(|row| row.package != package.name);
        self.packages.push(Row {
            package: package.name.clone(),
            counts: counts(package),
            seconds: package.wall.as_secs_f64().round() as u64,
            date,
        });
        self.failures.extend(package.tests.iter().filter_map(|test| {
            let Outcome::Failed(said) = &test.outcome else { return None };
            let message: String = said.chars().take(MESSAGE_CHARS).collect();
            Some(Failure {
                package: package.name.clone(),
                test: test.name.clone(),
                message: message.replace('|', "\\|").replace('`', "'"),
            })
        }));
    }

    /// Writes the page. `all` are the packages that have a place in it, in their order.
    pub(super) fn store(&self, all: &[&str]) -> Result<()> {
        let text = self.text(all, &hardware()?);
        std::fs::write(crate::cargo::root().join(PATH), text).context(PATH)
    }

    fn text(&self, all: &[&str], hardware: &str) -> String {
        let mut page = format!(
            "# Kubernetes' integration tests\n\n\
             The integration tests of Kubernetes 1.36, compiled with files of ours that start `setpoint envtest serve` over an etcd where the tests\n\
             start a kube-apiserver in their own process. A failure shows where the program differs, or what a test needs of the original's inside. Written by\n\
             `cargo xtask integration --kubernetes SOURCE --go PATH --etcd PATH`, which renews the rows of the packages that it runs.\n\n\
             On {hardware}. Each test runs in a process of its own. Tests that start no server are not counted. Parts are the subtests.\n\
             Tests of controllers bring Kubernetes' own controllers, so the program runs without its own.\n\n\
             | package | passed | failed | skip themselves | parts passed | failed | seconds | date |\n\
             |---|---|---|---|---|---|---|---|\n"
        );
        let (mut sums, mut seconds) = ([0; 5], 0);
        let mut failures = String::new();
        for package in all {
            let Some(row) = self.packages.iter().find(|row| row.package == *package) else {
                continue;
            };
            line(&mut page, package, row.counts, row.seconds, &row.date);
            sums.iter_mut().zip(row.counts).for_each(|(sum, n)| *sum += n);
            seconds += row.seconds;
            for Failure { test, message, .. } in
                self.failures.iter().filter(|failure| failure.package == *package)
            {
                let cause = cause(package, test);
                writeln!(failures, "| {package} | {test} | `{message}` | {cause} |").ok();
            }
        }
        line(&mut page, "all", sums, seconds, "");
        let left_out = all.iter().filter(|name| !self.has(name));
        let left_out: Vec<String> = left_out.map(|name| format!("`{name}`")).collect();
        if !left_out.is_empty() {
            writeln!(page, "\nNot run, for lack of time: {}.", left_out.join(", ")).ok();
        }
        write!(page, "\n## {FAILURES}\n\n").ok();
        if failures.is_empty() {
            return page + "None.\n";
        }
        page + "| package | test | message | cause |\n|---|---|---|---|\n" + &failures
    }
}

/// Passed, failed and skipped tests, and parts that passed and failed.
fn counts(package: &Package) -> [usize; 5] {
    let counted = package.tests.iter().filter(|test| test.outcome != Outcome::Alone);
    let parts = counted.fold([0, 0], |[passed, failed], test| {
        [passed + test.n_parts_passed, failed + test.n_parts_failed]
    });
    [
        package.count(|outcome| *outcome == Outcome::Passed),
        package.count(|outcome| matches!(outcome, Outcome::Failed(_))),
        package.count(|outcome| *outcome == Outcome::Skipped),
        parts[0],
        parts[1],
    ]
}

fn line(page: &mut String, name: &str, counts: [usize; 5], seconds: u64, date: &str) {
    let cells: String = counts.iter().map(|n| format!(" {n} |")).collect();
    writeln!(page, "| {name} |{cells} {seconds} | {date} |").ok();
}

/// The known cause of a test's failure.
fn cause(package: &str, test: &str) -> &'static str {
    let lines = include_str!("causes.txt").lines().filter(|line| !line.starts_with('#'));
    let mut lines = lines.filter_map(|line| {
        let mut cells = line.splitn(3, " | ");
        Some((cells.next()?, cells.next()?, cells.next()?))
    });
    let found = lines.find(|(of, name, _)| package.ends_with(of) && *name == test);
    found.map_or("unknown", |(.., cause)| cause)
}

#[cfg(test)]
mod tests {
    use super::super::{Outcome, Package, Test};
    use super::Page;
    use std::time::Duration;

    const A: &str = "test/integration/a";
    const B: &str = "test/integration/b";
    const ALL: [&str; 3] = [A, B, "test/integration/c"];

    fn package(name: &str, tests: &[(&str, Outcome)]) -> Package {
        let tests = tests.iter().map(|(name, outcome)| Test {
            name: (*name).to_owned(),
            outcome: outcome.clone(),
            n_parts_passed: 2,
            n_parts_failed: 1,
        });
        Package { name: name.to_owned(), tests: tests.collect(), wall: Duration::from_secs(3) }
    }

    fn failed(said: &str) -> Outcome {
        Outcome::Failed(said.to_owned())
    }

    #[test]
    fn tests_without_a_server_are_not_counted() {
        let mut page = Page::default();
        let tests =
            [("TestA", Outcome::Passed), ("TestB", failed("a | b")), ("TestC", Outcome::Alone)];
        page.put_on(&package(A, &tests), "today".to_owned());
        let text = page.text(&ALL, "a machine");
        assert!(
            text.contains("| test/integration/a | 1 | 1 | 0 | 4 | 2 | 3 | today |\n"),
            "{text}"
        );
        let left_out = "Not run, for lack of time: `test/integration/b`, `test/integration/c`.\n";
        assert!(text.contains(left_out), "{text}");
        assert!(text.contains("| TestB | `a \\| b` | unknown |\n"), "{text}");
    }

    #[test]
    fn a_page_that_is_read_is_written_as_it_was() {
        let mut page = Page::default();
        page.put_on(&package(B, &[("TestB", failed("`a` | b"))]), "today".to_owned());
        page.put_on(&package(A, &[("TestA", failed(" x"))]), "today".to_owned());
        let text = page.text(&ALL, "a machine");
        assert_eq!(Page::read(&text).unwrap().text(&ALL, "a machine"), text);
        let empty = Page::default().text(&ALL, "a machine");
        assert_eq!(Page::read(&empty).unwrap().text(&ALL, "a machine"), empty);
    }

    #[test]
    fn a_run_of_one_package_keeps_the_rows_of_others() {
        let mut page = Page::default();
        page.put_on(&package(A, &[("TestA", failed("old a"))]), "yesterday".to_owned());
        page.put_on(&package(B, &[("TestB", failed("old b"))]), "yesterday".to_owned());
        let mut page = Page::read(&page.text(&ALL, "a machine")).unwrap();
        assert!(page.has(A) && !page.has("test/integration/c"));
        page.put_on(&package(A, &[("TestA", Outcome::Passed)]), "today".to_owned());
        let text = page.text(&ALL, "a machine");
        assert!(
            text.contains("| test/integration/a | 1 | 0 | 0 | 2 | 1 | 3 | today |\n"),
            "{text}"
        );
        assert!(text.contains("| test/integration/b | 0 | 1 | 0 | 2 | 1 | 3 | yesterday |\n"));
        assert!(text.contains("| all | 1 | 1 | 0 | 4 | 2 | 6 |  |\n"), "{text}");
        assert!(!text.contains("old a") && text.contains("| TestB | `old b` | unknown |\n"));
    }

    #[test]
    fn a_package_that_is_no_longer_run_has_no_row() {
        let mut page = Page::default();
        page.put_on(&package("gone", &[("TestA", failed("x"))]), "today".to_owned());
        assert!(!page.text(&ALL, "a machine").contains("gone"));
    }
}
