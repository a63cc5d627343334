//! The page `docs/integration.md`.

use super::{Outcome, Package};
use crate::machine::{date, hardware};
use anyhow::Result;
use std::fmt::Write as _;

/// The page, below the workspace's folder.
pub(crate) const PATH: &str = "docs/integration.md";

/// The longest message in a cell, in characters.
const MESSAGE_CHARS: usize = 200;

/// The page of a run.
pub(super) fn page(packages: &[Package], left_out: &[&str]) -> Result<String> {
    Ok(text(packages, left_out, &date()?, &hardware()?))
}

fn text(packages: &[Package], left_out: &[&str], date: &str, hardware: &str) -> String {
    let mut page = format!(
        "# Kubernetes' integration tests\n\n\
         The integration tests of Kubernetes 1.36, compiled with files of ours that start `setpoint envtest serve` over an etcd where the tests\n\
         start a kube-apiserver in their own process. A failure shows where the program differs, or what a test needs of the original's inside. Written by\n\
         `cargo xtask integration --kubernetes SOURCE --go PATH --etcd PATH`.\n\n\
         {date}, {hardware}. Each test runs in a process of its own. Tests that start no server are not counted. Parts are the subtests.\n\
         Tests of controllers bring Kubernetes' own controllers, so the program runs without its own.\n\n\
         | package | passed | failed | skip themselves | parts passed | failed | seconds |\n\
         |---|---|---|---|---|---|---|\n"
    );
    let mut sums = [0; 5];
    let mut wall = 0.0;
    for package in packages {
        let row = row(package);
        wall += package.wall.as_secs_f64();
        line(&mut page, &package.name, row, package.wall.as_secs_f64());
        sums.iter_mut().zip(row).for_each(|(sum, n)| *sum += n);
    }
    line(&mut page, "all", sums, wall);
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().map(|name| format!("`{name}`")).collect();
        writeln!(page, "\nNot run, for lack of time: {}.", names.join(", ")).ok();
    }
    page += "\n## Failures\n\n";
    let failures: Vec<_> = packages.iter().flat_map(failures).collect();
    if failures.is_empty() {
        return page + "None.\n";
    }
    page += "| package | test | message | cause |\n|---|---|---|---|\n";
    for (package, test, said) in failures {
        let mut message: String = said.chars().take(MESSAGE_CHARS).collect();
        message = message.replace('|', "\\|").replace('`', "'");
        writeln!(page, "| {package} | {test} | `{message}` | {} |", cause(package, test)).ok();
    }
    page
}

/// Passed, failed and skipped tests, and parts that passed and failed.
fn row(package: &Package) -> [usize; 5] {
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

fn line(page: &mut String, name: &str, row: [usize; 5], seconds: f64) {
    let cells: String = row.iter().map(|n| format!(" {n} |")).collect();
    writeln!(page, "| {name} |{cells} {seconds:.0} |").ok();
}

/// The failures of a package, with what they said.
fn failures(package: &Package) -> impl Iterator<Item = (&str, &str, &str)> {
    package.tests.iter().filter_map(|test| match &test.outcome {
        Outcome::Failed(said) => Some((&*package.name, &*test.name, &**said)),
        _ => None,
    })
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
    use super::text;
    use std::time::Duration;

    #[test]
    fn tests_without_a_server_are_not_counted() {
        let test = |name: &str, outcome| Test {
            name: name.to_owned(),
            outcome,
            n_parts_passed: 2,
            n_parts_failed: 1,
        };
        let failed = Outcome::Failed("a | b".to_owned());
        let packages = [Package {
            name: "test/integration/a".to_owned(),
            tests: vec![
                test("TestA", Outcome::Passed),
                test("TestB", failed),
                test("TestC", Outcome::Alone),
            ],
            wall: Duration::from_secs(3),
        }];
        let page = text(&packages, &["test/integration/b"], "today", "a machine");
        assert!(page.contains("| test/integration/a | 1 | 1 | 0 | 4 | 2 | 3 |\n"), "{page}");
        assert!(page.contains("Not run, for lack of time: `test/integration/b`.\n"), "{page}");
        assert!(page.contains("| TestB | `a \\| b` | unknown |\n"), "{page}");
    }
}
