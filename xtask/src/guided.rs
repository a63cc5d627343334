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
//! | `ran.rest` | the functions that ran at rest |
//! | `ran.load` | those that ran under load only |
//! | `order/` | the same under the names that they have in the program, as the linker reads it |
//! | `built/` | the build with the counts |
//! | `setpoint` | its program |
//!
//! Both builds name their target, so that `RUSTFLAGS` are not those of build scripts and macros.
//! The program is linked twice with the counts: the link gives functions that are local to a part
//! of it other names, which depend on all of that part (`run.llvm.1234`). The file of the order is
//! named after its content, so that another order is another command.

use crate::cargo::{cargo, target_folder};
use crate::program;
use crate::started::Started;
use anyhow::{Context, Result, ensure};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
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
/// How often it is started for that: which tasks meet depends on chance.
const STARTS: usize = 8;
/// Moves blocks that never ran, and those that only a panic runs, out of their functions.
const SPLIT: &str =
    "-Cllvm-args=-enable-split-machine-functions -mfs-psi-cutoff=0 -mfs-split-ehcode";
/// Relocations of pointers to the program itself take a bit each, not 24 bytes: less of its file is
/// in memory from its start on. Needs glibc 2.36.
const PACK: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";
/// The end of the names of such blocks.
const SPLIT_OFF: &str = ".cold";
/// What the link puts between the name of a local function and a number.
const OF_PART: &str = ".llvm.";

/// Counts what the program does at rest and under load.
pub(crate) fn train() -> Result<()> {
    let folder = folder()?;
    let counts = folder.join("counts");
    let counting = build_with("-Cprofile-generate=", &counts, &folder.join("counting"), &[])?;
    // The counts of a build before this one are none of its functions'.
    removed(&counts)?;
    for _ in 0..STARTS {
        rest(&counting, &folder)?;
    }
    for load in LOADS {
        let mut benches = cargo();
        benches.args(["run", "--release", "--locked", "--package", "setpoint-benches", "--"]);
        program::run(benches.args(*load).env("SETPOINT_BENCH_PROGRAM", &counting))?;
    }
    let rest_profile = folder.join("rest.profdata");
    merge(&rest_counts(&folder), &rest_profile)?;
    merge(&counts, &profile(&folder))?;
    let at_rest = ran(functions(&rest_profile)?);
    let rested: HashSet<&String> = at_rest.iter().collect();
    let mut under_load = ran(functions(&profile(&folder))?);
    under_load.retain(|name| !rested.contains(name));
    for (names, file) in [(&at_rest, ran_at_rest(&folder)), (&under_load, ran_under_load(&folder))]
    {
        fs::write(file, lines(names)).context("write the functions that ran")?;
    }
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

/// Merges counts into a profile.
fn merge(counts: &Path, profile: &Path) -> Result<()> {
    let mut merge = Command::new(llvm_tool("llvm-profdata")?);
    program::run(merge.args(["merge", "--output"]).arg(profile).arg(counts))
}

/// The functions of a profile, with the highest count of each.
fn functions(profile: &Path) -> Result<Vec<(u64, String)>> {
    let mut show = Command::new(llvm_tool("llvm-profdata")?);
    show.args(["show", "--all-functions", "--counts"]).arg(profile);
    let mut shown = show.stdout(Stdio::piped()).spawn().context("start llvm-profdata")?;
    let functions = shown_functions(BufReader::new(shown.stdout.take().context("its output")?))?;
    ensure!(shown.wait()?.success(), "{show:?} failed");
    Ok(functions)
}

/// The functions that ran, those with the highest count first.
fn ran(mut functions: Vec<(u64, String)>) -> Vec<String> {
    functions.retain(|(most, _)| *most > 0);
    functions.sort_by(|(a, a_name), (b, b_name)| b.cmp(a).then_with(|| a_name.cmp(b_name)));
    functions.into_iter().map(|(_, name)| name).collect()
}

/// Builds the program with what was counted last, which is counted first if nothing was; returns
/// its path.
pub(crate) fn build() -> Result<PathBuf> {
    let folder = folder()?;
    let profile = profile(&folder);
    if !profile.exists() {
        train()?;
    }
    let built = folder.join("built");
    // The linker that Rust uses by itself is one that takes an order on this platform only.
    let takes_order = cfg!(all(target_arch = "x86_64", target_env = "gnu"));
    let linked = |order: Option<&Path>| {
        let order =
            order.map(|order| format!("-Clink-arg=-Wl,--symbol-ordering-file={}", order.display()));
        // Some of them have become parts of others.
        let link =
            order.iter().flat_map(|order| [order, "-Clink-arg=-Wl,--no-warn-symbol-ordering"]);
        let own = if takes_order { &[SPLIT, PACK][..] } else { &[] };
        let link = own.iter().copied().chain(link);
        build_with("-Cprofile-use=", &profile, &built, &link.collect::<Vec<_>>())
    };
    let last = if takes_order { last_order(&folder)? } else { None };
    let mut program = linked(last.as_deref())?;
    if takes_order && let Some(order) = new_order(&folder, &program, last)? {
        program = linked(Some(&order))?;
    }
    let copy = folder.join("setpoint");
    fs::copy(&program, &copy).with_context(|| format!("copy {}", program.display()))?;
    Ok(copy)
}

/// The order that the program was linked in last.
fn last_order(folder: &Path) -> Result<Option<PathBuf>> {
    let orders = order(folder);
    if !orders.exists() {
        return Ok(None);
    }
    Ok(fs::read_dir(orders)?.next().transpose()?.map(|file| file.path()))
}

/// Writes the order in which a linked program's functions should be, in place of the last one;
/// `None` if it is the same.
fn new_order(folder: &Path, program: &Path, last: Option<PathBuf>) -> Result<Option<PathBuf>> {
    let read = |file: &Path| fs::read_to_string(file).context("read what ran");
    let (rest, load) = (read(&ran_at_rest(folder))?, read(&ran_under_load(folder))?);
    let counted = functions(&profile(folder))?;
    let counted = counted.iter().map(|(_, name)| name.as_str()).collect();
    let ordered = lines(&in_program([&rest, &load], &counted, &names(program)?));
    let mut hasher = DefaultHasher::new();
    ordered.hash(&mut hasher);
    let orders = order(folder);
    let new = orders.join(format!("{:016x}", hasher.finish()));
    if last.as_ref() == Some(&new) {
        return Ok(None);
    }
    removed(&orders)?;
    fs::create_dir_all(&orders).context("make the folder of the order")?;
    fs::write(&new, ordered).context("write the order of functions")?;
    Ok(Some(new))
}

fn lines(names: &[impl AsRef<str>]) -> String {
    names.iter().flat_map(|name| [name.as_ref(), "\n"]).collect()
}

/// The names of a program's functions, in the order of their places.
fn names(program: &Path) -> Result<String> {
    let mut nm = Command::new(llvm_tool("llvm-nm")?);
    let nm = nm.args(["--defined-only", "--numeric-sort", "--format=posix"]).arg(program);
    let output = nm.output().context("start llvm-nm")?;
    ensure!(output.status.success(), "{nm:?} failed");
    let symbols = String::from_utf8(output.stdout)?;
    let functions = symbols.lines().filter_map(|symbol| {
        let (name, rest) = symbol.split_once(' ')?;
        rest.starts_with(['t', 'T', 'w', 'W']).then_some(name)
    });
    Ok(lines(&functions.collect::<Vec<_>>()))
}

/// The functions that ran at rest, those that are not counted, and those that ran under load only,
/// under all the names that a program has for each.
fn in_program<'a>(
    [rest, load]: [&'a str; 2],
    counted: &HashSet<&str>,
    names: &'a str,
) -> Vec<&'a str> {
    let mut of_parts: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut uncounted = Vec::new();
    for name in names.lines() {
        let function = name.split_once(OF_PART).map(|(function, _)| function);
        if let Some(function) = function {
            of_parts.entry(function).or_default().push(name);
        }
        let function = function.unwrap_or(name);
        if !counted.contains(function) && !function.ends_with(SPLIT_OFF) {
            uncounted.push(name);
        }
    }
    let mut ran = |functions: &'a str| -> Vec<&'a str> {
        let all = functions.lines().flat_map(|function| {
            let others = of_parts.remove(function).unwrap_or_default();
            std::iter::once(function).chain(others)
        });
        all.collect()
    };
    [ran(rest), uncounted, ran(load)].concat()
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

fn ran_at_rest(folder: &Path) -> PathBuf {
    folder.join("ran.rest")
}

fn ran_under_load(folder: &Path) -> PathBuf {
    folder.join("ran.load")
}

fn order(folder: &Path) -> PathBuf {
    folder.join("order")
}

/// The functions in what `llvm-profdata show` prints, with the highest count of each.
fn shown_functions(shown: impl BufRead) -> Result<Vec<(u64, String)>> {
    let mut functions: Vec<(u64, String)> = Vec::new();
    let mut function = String::new();
    for line in shown.lines() {
        let line = line.context("read what llvm-profdata shows")?;
        let trimmed = line.trim_start();
        if let Some(counts) = trimmed.strip_prefix("Block counts: [") {
            let counts = counts.trim_end_matches(']').split(", ");
            let most = counts.filter_map(|count| count.parse().ok()).max().unwrap_or(0);
            functions.push((most, std::mem::take(&mut function)));
        } else if line.len() == trimmed.len() + 2 && trimmed.ends_with(':') {
            // A function of one file only is named after it, too.
            let name = trimmed.trim_end_matches(':');
            name.rsplit(';').next().unwrap_or(name).clone_into(&mut function);
        }
    }
    Ok(functions)
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

/// A tool of the compiler's own version; installed if it is not there.
fn llvm_tool(name: &str) -> Result<PathBuf> {
    let folder = rustc(&["--print", "target-libdir"])?;
    let tool = Path::new(folder.trim()).with_file_name("bin").join(name);
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
    fn functions_are_ordered_under_the_names_of_the_program() {
        let names = "memcpy\none\none.cold\nlocal.llvm.12\nlocal.llvm.7\nother.llvm.12\nmain\n\
                     idle\nstd.llvm.3\n";
        let counted = HashSet::from(["one", "local", "other", "main", "idle"]);
        let ordered = in_program(["local\nidle\n", "one\ngone\n"], &counted, names);
        let expected = ["local", "local.llvm.12", "local.llvm.7", "idle", "memcpy", "std.llvm.3"];
        assert_eq!(ordered, [&expected[..], &["one", "gone"]].concat());
    }

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
        let shown = shown_functions(shown.as_bytes()).unwrap();
        assert_eq!(shown.len(), 3);
        let ran = ran(shown);
        assert_eq!(ran, ["_RNvCsa_3one4mine", "_RNvCsa_3one3run"]);
    }
}
