//! The page `docs/controller-runtime.md`.

use super::{Count, Package, Run};
use crate::machine::{date, hardware};
use anyhow::Result;
use std::fmt::Write as _;

/// The page, below the workspace's folder.
pub(crate) const PATH: &str = "docs/controller-runtime.md";

/// The page of a run.
pub(super) fn page(packages: &[Package], version: &str) -> Result<String> {
    Ok(text(packages, version, &date()?, &hardware()?))
}

fn text(packages: &[Package], version: &str, date: &str, hardware: &str) -> String {
    let has_peer = packages.iter().any(|package| package.peer.is_some());
    let mut page = format!(
        "# controller-runtime's own suites\n\n\
         The tests of controller-runtime {version}, unchanged, with `KUBEBUILDER_ASSETS` from `setpoint envtest install`. Written by\n\
         `cargo xtask controller-runtime --source PATH`, which takes a checkout with the test program of each package in its folder\n\
         (`go test -c`). How the binaries differ from the originals: [as a replacement for envtest](envtest.md).\n\n\
         {date}, {hardware}. The packages run one after another. A start is one of an API server with its etcd; suites that need none have 0.\n\
         A package with a failure runs once more with `SETPOINT_CONTROLLERS=none`, which leaves the controllers of a kube-apiserver alone.\n",
    );
    if has_peer {
        page += "The originals are kube-apiserver 1.36.2 and etcd, in turns with ours, package by package.\n";
    }
    page += "\n| package | specs passed | failed | Go tests passed | failed | starts | seconds |";
    page += if has_peer { " originals: passed | failed | seconds |\n" } else { "\n" };
    page += &"|---".repeat(if has_peer { 10 } else { 7 });
    page += "|\n";
    let (mut ours, mut peer) = (Run::default(), Run::default());
    for package in packages {
        page += &row(&package.name, &package.ours, package.peer.as_ref());
        add(&mut ours, &package.ours);
        package.peer.iter().for_each(|run| add(&mut peer, run));
    }
    page += &row("all", &ours, has_peer.then_some(&peer));
    let skipped = ours.specs.skipped + ours.tests.skipped;
    write!(page, "\n{skipped} specs and tests skip themselves.\n\n## Failures\n\n").ok();
    if ours.failures.is_empty() {
        page += "None.\n";
    } else {
        page += "| package | test | message | without controllers | with the originals | cause |\n|---|---|---|---|---|---|\n";
    }
    for package in packages {
        for (name, message) in &package.ours.failures {
            let cell = |text: &str| text.replace('|', "\\|");
            writeln!(
                page,
                "| {} | {} | `{}` | {} | {} | {} |",
                package.name,
                cell(name),
                cell(message),
                outcome(package.bare.as_ref(), name),
                outcome(package.peer.as_ref(), name),
                cause(&package.name, &format!("{name}: {message}")),
            )
            .ok();
        }
    }
    page
}

/// What a test does in another run of its package.
fn outcome(run: Option<&Run>, name: &str) -> &'static str {
    match run {
        None => "not run",
        Some(run) if run.failures.iter().any(|(failed, _)| failed == name) => "fails, too",
        Some(_) => "passes",
    }
}

/// The known cause of a failure, whose text is a test's name and message.
fn cause(package: &str, text: &str) -> &'static str {
    let lines = include_str!("causes.txt").lines().filter(|line| !line.starts_with('#'));
    let mut lines = lines.filter_map(|line| {
        let mut cells = line.splitn(3, " | ");
        Some((cells.next()?, cells.next()?, cells.next()?))
    });
    let found = lines.find(|(of, part, _)| *of == package && text.contains(part));
    found.map_or("unknown", |(.., cause)| cause)
}

fn row(name: &str, ours: &Run, peer: Option<&Run>) -> String {
    let mut row = format!(
        "| {name} | {} | {} | {} | {} | {} | {:.1} |",
        ours.specs.passed,
        ours.specs.failed,
        ours.tests.passed,
        ours.tests.failed,
        ours.n_starts,
        ours.wall.as_secs_f64()
    );
    if let Some(peer) = peer {
        let mut both = Count::default();
        both.add(peer.specs);
        both.add(peer.tests);
        let wall = peer.wall.as_secs_f64();
        write!(row, " {} | {} | {wall:.1} |", both.passed, both.failed).ok();
    }
    row + "\n"
}

fn add(all: &mut Run, run: &Run) {
    all.specs.add(run.specs);
    all.tests.add(run.tests);
    all.n_starts += run.n_starts;
    all.wall += run.wall;
    all.failures.extend(run.failures.iter().cloned());
}

#[cfg(test)]
mod tests {
    use super::super::{Count, Package, Run};
    use super::text;
    use std::time::Duration;

    #[test]
    fn rows_have_both_and_failures_say_what_the_originals_do() {
        let run = |failed: usize, seconds| Run {
            specs: Count { passed: 7, failed, skipped: 1 },
            tests: Count { passed: 2, failed: 0, skipped: 0 },
            n_starts: 1,
            wall: Duration::from_secs(seconds),
            failures: vec![("a spec".to_owned(), "it | broke".to_owned()); failed],
        };
        let package = |name: &str, peer| Package {
            name: name.into(),
            ours: run(1, 2),
            bare: Some(run(0, 2)),
            peer,
        };
        let page = text(&[package("pkg/a", Some(run(0, 9)))], "v1", "today", "a machine");
        assert!(page.contains("| pkg/a | 7 | 1 | 2 | 0 | 1 | 2.0 | 9 | 0 | 9.0 |\n"), "{page}");
        assert!(page.contains("| all | 7 | 1 | 2 | 0 | 1 | 2.0 | 9 | 0 | 9.0 |\n"), "{page}");
        assert!(
            page.contains("| pkg/a | a spec | `it \\| broke` | passes | passes | unknown |\n"),
            "{page}"
        );
        let page = text(&[package("pkg/a", None)], "v1", "today", "a machine");
        assert!(page.contains("| pkg/a | 7 | 1 | 2 | 0 | 1 | 2.0 |\n"), "{page}");
        assert!(page.contains("| passes | not run | unknown |\n"), "{page}");
    }
}
