//! The program as a compiler makes it that knows what it does under load: it is built once to count
//! its branches and calls, gets the requests of a benchmark, and is built again with these counts.
//! Functions that ran stand together in it, those of a program at rest first, so that few pages of
//! its file are in memory.
//!
//! All is below `guided` in the target folder:
//!
//! | name | content |
//! |---|---|
//! | `counting/` | the build that counts |
//! | `counts/` | what it has counted, as it writes it |
//! | `rest.*` | what it has counted at rest, its kubeconfig and its log |
//! | `setpoint.profdata` | all of it, as the compiler reads it |
//! | `order` | the functions that ran, as the linker reads it |
//! | `built/` | the build with the counts |
//! | `setpoint` | its program |
//!
//! Both builds name their target, so that `RUSTFLAGS` are not those of build scripts and macros.

use crate::cargo::{cargo, target_folder};
use crate::program;
use crate::started::Started;
use anyhow::{Context, Result, ensure};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The benchmarks that the program is trained with: all requests of the load table, and all
/// controllers at work, each with fewer Pods.
const LOADS: &[&[&str]] = &[
    &["load", "--rounds", "1", "--pods", "2000", "--dry"],
    &["scale", "--only", "one", "--only", "many", "--pods", "200", "--dry"],
];

/// How long a started program is watched at rest.
const REST: Duration = Duration::from_secs(5);

/// Counts what the program does at rest and under load.
pub(crate) fn train() -> Result<()> {
    let folder = folder()?;
    let counts = folder.join("counts");
    let counting = build_with("-Cprofile-generate=", &counts, &folder.join("counting"), &[])?;
    // The counts of a build before this one are none of its functions'.
    removed(&counts)?;
    rest(&counting, &folder)?;
    for load in LOADS {
        let mut benches = cargo();
        benches.args(["run", "--release", "--locked", "--package", "setpoint-benches", "--"]);
        program::run(benches.args(*load).env("SETPOINT_BENCH_PROGRAM", &counting))?;
    }
    let at_rest = ran(&rest_counts(&folder), &folder.join("rest.profdata"))?;
    let under_load = ran(&counts, &profile(&folder))?;
    let rested: HashSet<&String> = at_rest.iter().collect();
    let more = under_load.iter().filter(|name| !rested.contains(name));
    let ordered: Vec<&str> = at_rest.iter().chain(more).map(String::as_str).collect();
    fs::write(order(&folder), ordered.join("\n") + "\n").context("write the order of functions")?;
    // Cargo knows the profile by its name only.
    removed(&folder.join("built"))
}

/// Counts what the program does from its start until it is at rest.
fn rest(counting: &Path, folder: &Path) -> Result<()> {
    let mut up = Command::new(counting);
    up.args(["up", "--secure-port", "0", "--kubeconfig"]).arg(folder.join("rest.kubeconfig"));
    up.env("LLVM_PROFILE_FILE", rest_counts(folder).join("%m.profraw"));
    let started = Started::up(&mut up, &folder.join("rest.log"))?;
    #[expect(clippy::disallowed_methods, reason = "another process is waited for")]
    std::thread::sleep(REST);
    started.end()
}

/// Merges counts into a profile; returns the functions that ran, those with the highest count
/// first.
fn ran(counts: &Path, profile: &Path) -> Result<Vec<String>> {
    let tool = llvm_profdata()?;
    let mut merge = Command::new(&tool);
    program::run(merge.args(["merge", "--output"]).arg(profile).arg(counts))?;
    let mut show = Command::new(&tool);
    show.args(["show", "--all-functions", "--counts"]).arg(profile);
    let mut shown = show.stdout(Stdio::piped()).spawn().context("start llvm-profdata")?;
    let ran = functions_that_ran(BufReader::new(shown.stdout.take().context("its output")?))?;
    ensure!(shown.wait()?.success(), "{show:?} failed");
    Ok(ran)
}

/// Builds the program with what was counted last, which is counted first if nothing was; returns
/// its path.
pub(crate) fn build() -> Result<PathBuf> {
    let folder = folder()?;
    let profile = profile(&folder);
    if !profile.exists() {
        train()?;
    }
    let order = format!("-Clink-arg=-Wl,--symbol-ordering-file={}", order(&folder).display());
    // Some of them have become parts of others.
    let link = [&*order, "-Clink-arg=-Wl,--no-warn-symbol-ordering"];
    // The linker that Rust uses by itself is one that takes an order on this platform only.
    let link = if cfg!(all(target_arch = "x86_64", target_env = "gnu")) { &link[..] } else { &[] };
    let built = build_with("-Cprofile-use=", &profile, &folder.join("built"), link)?;
    let program = folder.join("setpoint");
    fs::copy(&built, &program).with_context(|| format!("copy {}", built.display()))?;
    Ok(program)
}

fn folder() -> Result<PathBuf> {
    Ok(target_folder()?.join("guided"))
}

fn profile(folder: &Path) -> PathBuf {
    folder.join("setpoint.profdata")
}

fn rest_counts(folder: &Path) -> PathBuf {
    folder.join("counts/rest")
}

fn order(folder: &Path) -> PathBuf {
    folder.join("order")
}

/// The functions in what `llvm-profdata show` prints that ran at all, those with the highest count
/// first.
fn functions_that_ran(shown: impl BufRead) -> Result<Vec<String>> {
    let mut ran: Vec<(u64, String)> = Vec::new();
    let mut function = String::new();
    for line in shown.lines() {
        let line = line.context("read what llvm-profdata shows")?;
        let trimmed = line.trim_start();
        if let Some(counts) = trimmed.strip_prefix("Block counts: [") {
            let counts = counts.trim_end_matches(']').split(", ");
            let most = counts.filter_map(|count| count.parse().ok()).max().unwrap_or(0);
            if most > 0 {
                ran.push((most, std::mem::take(&mut function)));
            }
        } else if line.len() == trimmed.len() + 2 && trimmed.ends_with(':') {
            // A function of one file only is named after it, too.
            let name = trimmed.trim_end_matches(':');
            name.rsplit(';').next().unwrap_or(name).clone_into(&mut function);
        }
    }
    ran.sort_by(|(a, a_name), (b, b_name)| b.cmp(a).then_with(|| a_name.cmp(b_name)));
    Ok(ran.into_iter().map(|(_, name)| name).collect())
}

/// Builds the program with an option of the compiler that names a path, and options for its last
/// step; returns the program's path.
fn build_with(option: &str, path: &Path, target: &Path, link: &[&str]) -> Result<PathBuf> {
    let mut flags = OsString::from(option);
    flags.push(path);
    let host = rustc(&["-vV"])?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).context("the host")?;
    let mut cargo = program::command("rustc", "dist");
    cargo.args(["--target", host]).env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", target);
    cargo.arg("--").args(link);
    program::run(&mut cargo)?;
    Ok(target.join(host).join("dist/setpoint"))
}

/// The tool of the compiler's own version that merges counts; installed if it is not there.
fn llvm_profdata() -> Result<PathBuf> {
    let folder = rustc(&["--print", "target-libdir"])?;
    let tool = Path::new(folder.trim()).with_file_name("bin").join("llvm-profdata");
    if !tool.exists() {
        let mut rustup = Command::new("rustup");
        rustup.args(["component", "add", "llvm-tools"]);
        program::run(&mut rustup)?;
    }
    ensure!(tool.exists(), "there is no {}: install the component llvm-tools", tool.display());
    Ok(tool)
}

fn rustc(args: &[&str]) -> Result<String> {
    let output = Command::new("rustc").args(args).output().context("start rustc")?;
    ensure!(output.status.success(), "rustc {args:?} failed");
    Ok(String::from_utf8(output.stdout)?)
}

/// Removes a folder if it is there.
fn removed(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_ran_are_listed_by_their_counts() {
        let shown = "\
Counters:
  _RNvCsa_3one3run:
    Hash: 0x0a4e9a76bd0a48c8
    Counters: 2
    Block counts: [3, 0]
  lib.rs;_RNvCsa_3one4mine:
    Hash: 0x0000000000000018
    Counters: 3
    Block counts: [0, 20, 1]
  _RNvCsa_3one5never:
    Hash: 0x0000000000000018
    Counters: 1
    Block counts: [0]
Instrumentation level: IR  entry_first = 0
Functions shown: 3
";
        let ran = functions_that_ran(shown.as_bytes()).unwrap();
        assert_eq!(ran, ["_RNvCsa_3one4mine", "_RNvCsa_3one3run"]);
    }
}
