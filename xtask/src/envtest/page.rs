//! The page of a project's suites.

use super::{Args, Count, Package, Run};
use crate::machine::{date, hardware};
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The page of a run.
pub(super) fn page(packages: &[Package], args: &Args) -> Result<String> {
    Ok(text(packages, args, &date()?, &hardware()?))
}

fn text(packages: &[Package], args: &Args, date: &str, hardware: &str) -> String {
    let Args { project, version, failures_only, in_root, .. } = args;
    let folder = if *in_root { " --in-root" } else { "" };
    let has_peer = !failures_only && packages.iter().any(|package| package.peer.is_some());
    let labels = args.label_filter.as_ref();
    let labels = labels.map_or(String::new(), |query| format!(" Specs with the labels `{query}`."));
    let mut page = format!(
        "# The suites of {project}\n\n\
         The tests of {project} {version}, unchanged, with `KUBEBUILDER_ASSETS` from `setpoint envtest install`. Written by\n\
         `cargo xtask envtest {project} --source PATH{folder}`, which takes a checkout with the test program of each package in its folder\n\
         (`go test -c`). How the binaries differ from the originals: [as a replacement for envtest](../envtest.md).\n\n\
         {date}, {hardware}. The packages run one after another. A start is one of an API server with its etcd; suites that need none have 0.{labels}\n",
    );
    if *failures_only {
        page += "What failed was run with kube-apiserver 1.36.2 and etcd, too.\n";
    }
    if has_peer {
        page += "The originals are kube-apiserver 1.36.2 and etcd, in turns with ours, package by package.\n";
    }
    page += "\n| package | specs passed | specs failed | Go tests passed | tests failed | starts | seconds |";
    page += if has_peer { " originals: passed | failed | seconds |\n" } else { "\n" };
    page += &"|---".repeat(if has_peer { 10 } else { 7 });
    page += "|\n";
    let (mut ours, mut peer) = (Run::default(), Run::default());
    for package in packages {
        page += &row(&package.name, &package.ours, package.peer.as_ref().filter(|_| has_peer));
        add(&mut ours, &package.ours);
        package.peer.iter().for_each(|run| add(&mut peer, run));
    }
    page += &row("all", &ours, has_peer.then_some(&peer));
    let skipped = ours.specs.skipped + ours.tests.skipped;
    write!(page, "\n{skipped} specs and tests skip themselves.\n\n## Failures\n\n").ok();
    if ours.failures.is_empty() {
        page += "None.\n";
    } else {
        page +=
            "| package | test | message | with the originals | cause |\n|---|---|---|---|---|\n";
    }
    for package in packages {
        page += &failures(package, project);
    }
    page
}

/// The rows of a package's failures. Those of one known cause are one row.
fn failures(package: &Package, project: &str) -> String {
    let mut of_causes: BTreeMap<_, Vec<&(String, String)>> = BTreeMap::new();
    for (number, failure) in package.ours.failures.iter().enumerate() {
        let (name, message) = failure;
        let cause = cause(project, &package.name, &format!("{name}: {message}"));
        let peer = outcome(package.peer.as_ref(), name);
        let unknown = cause.is_none().then_some(number);
        of_causes.entry((cause, peer, unknown)).or_default().push(failure);
    }
    let cell = |text: &str| text.replace('|', "\\|");
    let mut rows = String::new();
    for ((cause, peer, _), failures) in of_causes {
        let [(name, message), others @ ..] = &*failures else { continue };
        let others = match others.len() {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        writeln!(
            rows,
            "| {} | {}{others} | `{}` | {peer} | {} |",
            package.name,
            cell(name),
            cell(message),
            cause.unwrap_or("unknown"),
        )
        .ok();
    }
    rows
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
fn cause(project: &str, package: &str, text: &str) -> Option<&'static str> {
    let lines = include_str!("causes.txt").lines().filter(|line| !line.starts_with('#'));
    let mut lines = lines.filter_map(|line| {
        let mut cells = line.splitn(4, " | ");
        Some((cells.next()?, cells.next()?, cells.next()?, cells.next()?))
    });
    let is_it = |of: &str, it: &str| of == it || of == "*";
    let found = lines.find(|(of, its, part, _)| {
        is_it(of, project) && is_it(its, package) && text.contains(part)
    });
    found.map(|(.., cause)| cause)
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
    use super::super::{Args, Count, Package, Run};
    use super::text;
    use clap::Parser as _;
    use std::time::Duration;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn run(failures: &[(&str, &str)], seconds: u64) -> Run {
        Run {
            specs: Count { passed: 7, failed: failures.len(), skipped: 1 },
            tests: Count { passed: 2, failed: 0, skipped: 0 },
            n_starts: 1,
            wall: Duration::from_secs(seconds),
            failures: failures.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
        }
    }

    fn page(ours: Run, peer: Option<Run>, more: &[&str]) -> String {
        let name = "pkg/client/apiutil".to_owned();
        let package = Package { name, ours, peer };
        let words = ["x", "controller-runtime", "--source", "a", "--version", "v1"];
        let Cli { args } = Cli::parse_from(words.iter().chain(more));
        text(&[package], &args, "today", "a machine")
    }

    #[test]
    fn rows_have_both_and_failures_say_what_the_originals_do() {
        let broken = [("a spec", "it | broke"), ("another", "it | broke")];
        let both = page(run(&broken, 2), Some(run(&broken[1..], 9)), &[]);
        let row = "| pkg/client/apiutil | 7 | 2 | 2 | 0 | 1 | 2.0 | 9 | 1 | 9.0 |\n";
        assert!(both.contains(row), "{both}");
        assert!(both.contains("| all | 7 | 2 | 2 | 0 | 1 | 2.0 | 9 | 1 | 9.0 |\n"), "{both}");
        let row = "| a spec | `it \\| broke` | passes | unknown |\n";
        assert!(both.contains(row), "{both}");
        let row = "| another | `it \\| broke` | fails, too | unknown |\n";
        assert!(both.contains(row), "{both}");
        let alone = page(run(&broken, 2), None, &[]);
        assert!(alone.contains("| pkg/client/apiutil | 7 | 2 | 2 | 0 | 1 | 2.0 |\n"), "{alone}");
        assert!(alone.contains("| not run | unknown |\n"), "{alone}");
        let peer = ["--peer", "b", "--failures-only"];
        let failures = page(run(&broken, 2), Some(run(&broken[1..], 9)), &peer);
        assert!(
            failures.contains("| pkg/client/apiutil | 7 | 2 | 2 | 0 | 1 | 2.0 |\n"),
            "{failures}"
        );
        assert!(failures.contains("| fails, too | unknown |\n"), "{failures}");
    }

    #[test]
    fn failures_of_one_cause_are_one_row() {
        let broken = [("TestA", "see its log"), ("TestB", "see its log"), ("c", "other")];
        let page = page(run(&broken, 2), None, &[]);
        assert!(page.contains("| TestA and 1 more | `see its log` | not run | half of"), "{page}");
        assert!(page.contains("| c | `other` | not run | unknown |\n"), "{page}");
    }
}
