//! `cargo xtask seeds`: plays every controller's scenario with many seeds and writes
//! `docs/seeds.md`.
//!
//! The scenarios are tests that call `testenv::scenario::check`. Each is played with a crash before
//! and after every write, and with as many storms as there are seeds. A failed play does not end
//! the chore: the page has the plans that failed. With `--resume` the plays of several days add up.

mod scenarios;

use crate::cargo::{cargo, root, target_folder};
use anyhow::{Context, Result, bail, ensure};
use scenarios::{PROGRAMS, Program, Scenario, WITHOUT};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The page, below the workspace's folder.
const PATH: &str = "docs/seeds.md";
/// Maximum failed plans that a row shows.
const PLANS_SHOWN: usize = 3;

/// What to play.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of storms of each scenario.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Ends each scenario after this many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Builds without optimization: that is done sooner, and a play takes several times as long.
    #[arg(long)]
    dev: bool,
    /// Goes on where the page ends: plays the storms after those of the page, and the crashes after
    /// those. Rows of another build, and rows with failed plays, begin again.
    #[arg(long)]
    resume: bool,
    /// Plays nothing: takes the outcome of plays elsewhere from the file that `SEEDS_REPORT` named.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Only scenarios whose test has one of these words in its name. The rows of the others stay.
    only: Vec<String>,
}

impl Args {
    fn build(&self) -> &'static str {
        if self.dev { "dev" } else { "release" }
    }
}

/// A line of a report, as `testenv` writes it.
#[derive(Debug, Deserialize)]
struct Report {
    test: String,
    /// The first storm: an earlier report has those before it.
    #[serde(default)]
    from: u64,
    crashes: u64,
    storms: u64,
    seconds: u64,
    failures: Vec<Failure>,
}

#[derive(Debug, Deserialize)]
struct Failure {
    plan: String,
    why: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(path) = &args.report {
        return write(args, &read(path)?);
    }
    let report = target_folder()?.join(format!("seeds-{}.jsonl", std::process::id()));
    let mut n_failed = 0;
    let mut n_scenarios = 0;
    for program in PROGRAMS {
        let is_wanted = |test: &str| {
            args.only.is_empty() || args.only.iter().any(|word| test.contains(word.as_str()))
        };
        let tests: Vec<&str> = program.scenarios.iter().map(|one| one.test).collect();
        let tests: Vec<&str> = tests.into_iter().filter(|test| is_wanted(test)).collect();
        if tests.is_empty() {
            continue;
        }
        n_scenarios += tests.len();
        let reports = play(program, &tests, args, &report)?;
        for one in &reports {
            for failure in &one.failures {
                println!("failed: {} PLAN='{}'\n    {}", one.test, failure.plan, failure.why);
            }
            n_failed += one.failures.len();
        }
        // After each program, so that a chore that is stopped leaves what it has found.
        write(args, &reports)?;
    }
    ensure!(n_scenarios > 0, "no scenario has one of these words in its name: {:?}", args.only);
    match n_failed {
        0 => Ok(()),
        _ => bail!("{n_failed} plays failed"),
    }
}

/// Runs tests of one program.
fn play(program: &Program, tests: &[&str], args: &Args, report: &Path) -> Result<Vec<Report>> {
    // It may not exist.
    _ = std::fs::remove_file(report);
    // With one thread the tests would run on the main thread, which does not have their names.
    let n_threads = std::thread::available_parallelism().map_or(2, |n| n.get().max(2));
    let mut cargo = cargo();
    cargo.args(["test", "--package", program.package, "--test", program.test]);
    if !args.dev {
        cargo.arg("--release");
    }
    cargo.args(["--", "--exact"]).arg(format!("--test-threads={n_threads}")).args(tests);
    cargo.env("SEEDS", args.seeds.to_string()).env("SEEDS_REPORT", report);
    if args.resume {
        let page = std::fs::read_to_string(root().join(PATH)).context(PATH)?;
        cargo.env("SEEDS_FROM", begins(&rows(&page), tests, args));
    }
    if let Some(minutes) = args.minutes {
        cargo.env("SEEDS_TIME", (minutes * 60).to_string());
    }
    // Failed plays make it fail; they are in the report.
    cargo.status().context("cannot start cargo")?;
    // Without a play there is none.
    let reports = if report.exists() { read(report)? } else { Vec::new() };
    _ = std::fs::remove_file(report);
    let missing: Vec<_> =
        tests.iter().filter(|test| reports.iter().all(|one| one.test != **test)).collect();
    ensure!(missing.is_empty(), "{missing:?} of {} played nothing", program.package);
    Ok(reports)
}

fn read(report: &Path) -> Result<Vec<Report>> {
    let text = std::fs::read_to_string(report).with_context(|| report.display().to_string())?;
    let reports = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    reports.with_context(|| format!("read {}", report.display()))
}

/// Writes the page: the rows of these reports, and those of other scenarios as they are.
fn write(args: &Args, reports: &[Report]) -> Result<()> {
    let path = root().join(PATH);
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let mut rows = rows(&before);
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?.stdout;
    let date = String::from_utf8(date)?;
    for one in reports {
        let before = rows.get(&one.test).and_then(|row| Before::of(row, args));
        let before = match (one.from, before) {
            (0, _) => Before::default(),
            (from, Some(before)) if before.storms == from => before,
            (from, _) => bail!("{} begins with storm {from}; the page ends elsewhere", one.test),
        };
        rows.insert(one.test.clone(), row(one, &before, date.trim(), args));
    }
    std::fs::write(&path, page(&rows)?).context(PATH)
}

/// The rows of a page by their test.
fn rows(page: &str) -> BTreeMap<String, String> {
    let rows = page.lines().filter_map(|line| {
        let test = line.strip_prefix("| ")?.split(" | ").nth(1)?.strip_prefix('`')?;
        Some((test.strip_suffix('`')?.to_owned(), format!("{line}\n")))
    });
    rows.collect()
}

/// Plays without a failure that a row has, and that a search may go on after.
#[derive(Debug, Default, PartialEq, Eq)]
struct Before {
    crashes: u64,
    storms: u64,
    minutes: u64,
}

impl Before {
    /// `None` for a row of another build, or with failed plays.
    fn of(row: &str, args: &Args) -> Option<Self> {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let &[_, _, _, _, build, crashes, storms, minutes, failed, ..] = &*cells else {
            return None;
        };
        let storms = storms.split(' ').next()?.parse().ok()?;
        let before =
            Self { crashes: crashes.parse().ok()?, storms, minutes: minutes.parse().ok()? };
        Some(before).filter(|_| build == args.build() && failed == "0")
    }
}

/// The storms to begin with, as `SEEDS_FROM` has them.
fn begins(rows: &BTreeMap<String, String>, tests: &[&str], args: &Args) -> String {
    let begins = tests.iter().map(|test| {
        let before = rows.get(*test).and_then(|row| Before::of(row, args));
        format!("{test}={}", before.unwrap_or_default().storms)
    });
    begins.collect::<Vec<_>>().join(",")
}

fn row(report: &Report, before: &Before, date: &str, args: &Args) -> String {
    let Report { test, crashes, storms, seconds, failures, .. } = report;
    let (crashes, storms) = (crashes + before.crashes, storms + before.storms);
    let mut all = PROGRAMS.iter().flat_map(|program| program.scenarios);
    let subject = all.find(|one| one.test == test).map_or("", |one| one.what);
    let storms = match storms < args.seeds {
        true => format!("{storms} of {}", args.seeds),
        false => storms.to_string(),
    };
    let plans = failures.iter().take(PLANS_SHOWN).map(|failure| format!("`{}`", failure.plan));
    let failed = match failures.len() {
        0 => "0".to_owned(),
        n => format!("{n}: {}", plans.collect::<Vec<_>>().join(", ")),
    };
    let minutes = seconds.div_ceil(60) + before.minutes;
    let build = args.build();
    format!(
        "| {subject} | `{test}` | {date} | {build} | {crashes} | {storms} | {minutes} | {failed} |\n"
    )
}

fn page(rows: &BTreeMap<String, String>) -> Result<String> {
    let mut page = "# Seeds\n\n\
        Scenarios of controllers, played in virtual time with crashes, lost and late answers, conflicts, stale caches,\n\
        relists, clocks that differ, and a store that fails; [testing](testing.md#crashes-and-faults) says how.\n\
        Written by `cargo xtask seeds`; tests play fewer plans of the same scenarios.\n\n\
        | column | |\n|---|---|\n\
        | date | of the last plays: a search may go on where an earlier one has ended |\n\
        | build | `dev` is not optimized, so that fewer plays fit into the time |\n\
        | crashes | plays in which the process dies at one of its writes: before and after each of them |\n\
        | storms | plays with faults by their seed, from seed 0 on |\n\
        | failed | plays whose final state differs from that without faults, that broke a rule of the scenario on the way, or did not end; \
        `PLAN='…' cargo test --release -p PACKAGE TEST -- --exact --nocapture` repeats one |\n\n\
        | controllers | test | date | build | crashes | storms | minutes | failed |\n|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for program in PROGRAMS {
        for Scenario { what, test, .. } in program.scenarios {
            match rows.get(*test) {
                Some(row) => page += row,
                None => writeln!(page, "| {what} | `{test}` | not yet | | | | | |")?,
            }
        }
    }
    page += "\n## Without a scenario\n\n| controller | why |\n|---|---|\n";
    for (controller, why) in WITHOUT {
        writeln!(page, "| `{controller}` | {why} |")?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_other_scenarios_stay() {
        let test = "workloads::replica_set::replica_set_keeps_its_number_with_every_plan";
        let failure = |seed: u32| Failure { plan: format!("seed={seed}"), why: String::new() };
        let one = Report {
            test: test.to_owned(),
            from: 0,
            crashes: 40,
            storms: 7,
            seconds: 61,
            failures: vec![failure(3), failure(4)],
        };
        let args = dev();
        let row = row(&one, &Before::default(), "2026-01-01", &args);
        assert_eq!(
            row,
            format!(
                "| replicaset | `{test}` | 2026-01-01 | dev | 40 | 7 of 1000 | 2 | 2: `seed=3`, `seed=4` |\n"
            )
        );
        let first = page(&BTreeMap::from([(test.to_owned(), row)])).unwrap();
        assert_eq!(page(&rows(&first)).unwrap(), first);
    }

    fn dev() -> Args {
        Args {
            seeds: 1000,
            minutes: None,
            dev: true,
            resume: false,
            report: None,
            only: Vec::new(),
        }
    }

    #[test]
    fn search_goes_on_after_rows_without_failures() {
        let test = "jobs::job_has_no_pod_too_many_and_counts_each_once_with_every_plan";
        let of = |from, storms, failures| Report {
            test: test.to_owned(),
            from,
            crashes: 3,
            storms,
            seconds: 61,
            failures,
        };
        let args = dev();
        let first = row(&of(0, 7, Vec::new()), &Before::default(), "2026-01-01", &args);
        let before = Before::of(&first, &args).unwrap();
        assert_eq!(before, Before { crashes: 3, storms: 7, minutes: 2 });
        let second = row(&of(7, 993, Vec::new()), &before, "2026-01-02", &args);
        assert_eq!(second, format!("| job | `{test}` | 2026-01-02 | dev | 6 | 1000 | 4 | 0 |\n"));
        let rows = BTreeMap::from([(test.to_owned(), first.clone())]);
        assert_eq!(begins(&rows, &[test, "other"], &args), format!("{test}=7,other=0"));
        assert_eq!(Before::of(&first, &Args { dev: false, ..dev() }), None);
        let failed = Failure { plan: "seed=3".to_owned(), why: String::new() };
        let failed = row(&of(0, 7, vec![failed]), &Before::default(), "2026-01-01", &args);
        assert_eq!(Before::of(&failed, &args), None);
        assert_eq!(Before::of(&format!("| job | `{test}` | not yet | | | | | |\n"), &args), None);
    }

    /// Files that play scenarios for another reason than to test a controller.
    const OTHERS: &[&str] = &["crates/testenv/tests/it/scenario.rs"];

    #[test]
    fn every_scenario_is_played() {
        let known: Vec<&str> = PROGRAMS
            .iter()
            .flat_map(|program| program.scenarios)
            .filter_map(|one| one.test.rsplit("::").next())
            .collect();
        let mut found = Vec::new();
        let mut folders = vec![root().join("crates"), root().join("examples")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs")
                    && path.components().any(|part| part.as_os_str() == "tests")
                    && !OTHERS.iter().any(|other| path.ends_with(other))
                {
                    found.extend(played(&std::fs::read_to_string(&path).unwrap()));
                }
            }
        }
        found.sort();
        let mut known: Vec<String> = known.into_iter().map(str::to_owned).collect();
        known.sort();
        assert_eq!(found, known, "PROGRAMS in xtask/src/seeds/scenarios.rs");
    }

    #[test]
    fn every_controller_has_a_scenario_or_a_reason() {
        let mut found = Vec::new();
        let crates = ["controllers", "nodes", "scheduler"];
        let mut folders: Vec<PathBuf> =
            crates.iter().map(|name| root().join("crates").join(name).join("src")).collect();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => found.extend(controllers(&std::fs::read_to_string(&path).unwrap())),
                }
            }
        }
        found.sort();
        found.dedup();
        // They only start others.
        found.retain(|name| !["Setup", "WorkloadControllers"].contains(&name.as_str()));
        let scenarios = PROGRAMS.iter().flat_map(|program| program.scenarios);
        let mut known: Vec<&str> = scenarios.flat_map(|one| one.controllers).copied().collect();
        known.extend(WITHOUT.iter().map(|(name, _)| name));
        known.sort_unstable();
        known.dedup();
        assert_eq!(
            found, known,
            "controllers of scenarios, and WITHOUT, in xtask/src/seeds/scenarios.rs"
        );
        for (name, _) in WITHOUT {
            let all = PROGRAMS.iter().flat_map(|program| program.scenarios);
            let has_one = all.flat_map(|one| one.controllers).any(|known| known == name);
            assert!(!has_one, "{name} has a scenario");
        }
    }

    #[test]
    fn page_is_of_these_scenarios() {
        let held = std::fs::read_to_string(root().join(PATH)).unwrap();
        assert_eq!(page(&rows(&held)).unwrap(), held, "cargo xtask seeds writes {PATH}");
    }

    /// The types of a file that are controllers: those with a public `add_to` or `run`.
    fn controllers(text: &str) -> Vec<String> {
        let mut name = String::new();
        let mut found = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("impl ") {
                rest.split([' ', '<']).next().unwrap_or_default().clone_into(&mut name);
            }
            let starts = ["pub fn add_to(", "pub fn run(", "pub async fn run("];
            if starts.iter().any(|start| line.trim_start().starts_with(start)) {
                found.push(name.clone());
            }
        }
        found
    }

    /// The tests of a file that play scenarios.
    fn played(text: &str) -> Vec<String> {
        let is_scenario = |line: &str| line.contains("scenario::check");
        if !text.lines().any(is_scenario) {
            return Vec::new();
        }
        let mut name = String::new();
        let mut found = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("fn ") {
                rest.split('(').next().unwrap_or_default().clone_into(&mut name);
            }
            let call = line.trim_start().trim_start_matches("let n = ");
            if call.starts_with("check(&") {
                found.push(name.clone());
            }
        }
        found
    }
}
