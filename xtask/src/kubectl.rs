//! `cargo xtask kubectl`: runs kubectl's own tests, the cases of Kubernetes' `test/cmd`, against
//! the program as kube-apiserver with its own controllers, and writes `docs/kubectl.md`.

use crate::cargo::{root, target_folder};
use crate::laid_over::Source;
use crate::machine::{date, hardware};
use crate::program;
use crate::servers::start_etcd;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The page, below the workspace's folder.
const PATH: &str = "docs/kubectl.md";
/// The programs of the suite that are built from the source.
const CLIENTS: [&str; 2] = ["kubectl", "kubectl-convert"];
/// The release that the clients are built as.
const VERSION: &str = "-ldflags=-X=k8s.io/component-base/version.gitVersion=v1.36.2";
/// A case of the suite itself that has to fail.
const CANARY: &str = "record_command_canary";
/// What is before the name of a case that begins, and of one that failed.
const BEGIN: &str = "Recording: ";
const FAILED: &str = "Error when running ";
/// The longest message in a cell, in characters.
const MESSAGE_CHARS: usize = 200;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// The program `etcd`.
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    /// The built program (default: builds `setpoint` without optimization).
    #[arg(long)]
    program: Option<PathBuf>,
    /// Runs only these cases, separated by spaces, such as `kubectl_apply`; prints the outcome, and
    /// leaves the page alone.
    #[arg(long)]
    cases: Option<String>,
    /// The folder for logs (default: a new one below the system's).
    #[arg(long)]
    work: Option<PathBuf>,
}

/// A case, with its last words if it failed.
#[derive(Debug, PartialEq, Eq)]
struct Case {
    name: String,
    failed: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.canonicalize().context("no such program")?,
        None => program::build("dev")?,
    };
    let own = || std::env::temp_dir().join(format!("setpoint-kubectl-{}", std::process::id()));
    let work = args.work.clone().unwrap_or_else(own);
    fs::create_dir_all(&work).context("make the folder")?;
    let work = work.canonicalize()?;
    let programs = programs(&args.source, &program)?;
    let (_etcd, etcd) = start_etcd(&args.etcd, &work)?;
    let port = etcd.rsplit(':').next().context("the etcd's port")?;
    println!("logs in {}", work.display());

    let log = work.join("suite.log");
    let file = fs::File::create(&log).context("make a log")?;
    let source = args.source.folder()?;
    let mut suite = Command::new("bash");
    suite.arg(root().join("xtask/src/kubectl/suite.sh"));
    suite.env("KUBERNETES", &source).env("PROGRAMS", programs).env("WORK", &work);
    suite.env("OPENAPI", source.join("api/openapi-spec/swagger.json")).env("ETCD_PORT", port);
    suite.env("CASES", args.cases.as_deref().unwrap_or_default());
    suite.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    // It fails if a case does.
    suite.status().context("start bash")?;
    let cases = read(&String::from_utf8_lossy(&fs::read(&log)?));
    ensure!(!cases.is_empty(), "no case ran: see {}", log.display());
    for case in &cases {
        if let Some(said) = &case.failed {
            println!("failed: {}\n    {said}", case.name);
        }
    }
    println!("{} of {} cases passed", n_passed(&cases), cases.len());
    if args.cases.is_none() {
        fs::write(root().join(PATH), page(&cases, &date()?, &hardware()?)).context(PATH)?;
    }
    Ok(())
}

/// A folder with the programs of the suite.
fn programs(source: &Source, program: &Path) -> Result<PathBuf> {
    let folder = target_folder()?.join("kubectl-suite");
    fs::create_dir_all(&folder)?;
    for name in CLIENTS {
        source.build_as(&[VERSION], name, &folder.join(name))?;
    }
    let link = folder.join("kube-apiserver");
    if link.is_symlink() {
        fs::remove_file(&link)?;
    }
    symlink(program, link).context("place the program")?;
    Ok(folder)
}

/// The cases of an output.
fn read(output: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut said = "";
    for line in output.lines() {
        if let Some(name) = line.strip_prefix(BEGIN) {
            cases.push(Case { name: name.to_owned(), failed: None });
        } else if let Some(name) = line.strip_prefix(FAILED) {
            if let Some(case) = cases.last_mut().filter(|case| case.name == name) {
                case.failed = Some(plain(said).trim().to_owned());
            }
        } else if !line.trim().is_empty() && !line.starts_with("+++") && !line.starts_with("!!!") {
            said = line;
        }
    }
    cases.retain(|case| case.name != CANARY);
    cases
}

/// A text without the sequences that colour it on a terminal.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // `[…m`, or `(` and a letter.
        let end = match part.strip_prefix('[') {
            Some(_) => part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1),
            None => part.len().min(2),
        };
        plain += part.get(end..).unwrap_or_default();
    }
    plain
}

fn n_passed(cases: &[Case]) -> usize {
    cases.iter().filter(|case| case.failed.is_none()).count()
}

fn page(cases: &[Case], date: &str, hardware: &str) -> String {
    let mut page = format!(
        "# kubectl's own tests\n\n\
         The cases of `test/cmd` of Kubernetes 1.36: scripts that call kubectl, built from the same source, and look at what it prints. The\n\
         program has the place of kube-apiserver and of kube-controller-manager. Written by\n\
         `cargo xtask kubectl --kubernetes SOURCE --go PATH --etcd PATH`.\n\n\
         {date}, {hardware}. **{} of {} cases pass.**\n\n",
        n_passed(cases),
        cases.len()
    );
    page += "| failed | last words | cause |\n|---|---|---|\n";
    for case in cases {
        let Some(said) = &case.failed else { continue };
        let said: String = said.chars().take(MESSAGE_CHARS).collect();
        let said = said.replace('|', "\\|").replace('`', "'");
        writeln!(page, "| {} | `{said}` | {} |", case.name, cause(&case.name)).ok();
    }
    page += "\nThe cases that pass: ";
    let passed = cases.iter().filter(|case| case.failed.is_none());
    let passed: Vec<String> = passed.map(|case| format!("`{}`", case.name)).collect();
    page + &passed.join(", ") + ".\n"
}

/// The known cause of a case's failure.
fn cause(name: &str) -> &'static str {
    let lines = include_str!("kubectl/causes.txt").lines();
    let mut lines = lines.filter_map(|line| line.split_once(" | "));
    lines.find(|(case, _)| *case == name).map_or("unknown", |(_, cause)| cause)
}

#[cfg(test)]
mod tests {
    use super::{Case, page, read};

    #[test]
    fn cases_fail_with_what_they_said_last() {
        let output = "Recording: record_command_canary\nError when running record_command_canary\n\
                      Recording: run_a\nfine\nRecording: run_b\n\u{1b}(B\u{1b}[merror: no | such thing\n\
                      !!! [1126 22:33:10] Call tree:\n+++ exit code: 1\nError when running run_b\n";
        let cases = read(output);
        let failed = |said: &str| Some(said.to_owned());
        assert_eq!(
            cases,
            [
                Case { name: "run_a".to_owned(), failed: None },
                Case { name: "run_b".to_owned(), failed: failed("error: no | such thing") },
            ]
        );
        let page = page(&cases, "today", "a machine");
        assert!(page.contains("**1 of 2 cases pass.**"), "{page}");
        assert!(page.contains("| run_b | `error: no \\| such thing` | unknown |\n"), "{page}");
        assert!(page.ends_with("The cases that pass: `run_a`.\n"), "{page}");
    }
}
