//! The program as a process: time until ready, and idle memory.

use crate::table::{Samples, Table};
use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Path of the measured program, as built by `cargo xtask bench`.
const PROGRAM: &str = "SETPOINT_BENCH_PROGRAM";
/// How long a program may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `setpoint up`; ended when dropped.
pub(crate) struct Program {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub(crate) kubeconfig: PathBuf,
    _folder: tempfile::TempDir,
}

impl Drop for Program {
    fn drop(&mut self) {
        // A build that takes a profile writes it when it ends by itself.
        let mut asked = self.signal(Signal::SIGTERM).is_ok();
        let begun = Instant::now();
        while asked && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
            asked = begun.elapsed() < PATIENCE;
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Program {
    /// Starts it and waits for its ready line.
    pub(crate) fn start() -> anyhow::Result<Self> {
        Self::start_with(&[])
    }

    /// Starts it with further arguments of `setpoint up`.
    pub(crate) fn start_with(args: &[&OsStr]) -> anyhow::Result<Self> {
        let path = std::env::var_os(PROGRAM).context("run `cargo xtask bench`")?;
        Self::start_binary(Path::new(&path), args)
    }

    /// Starts another build.
    pub(crate) fn start_binary(binary: &Path, args: &[&OsStr]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let mut process = Command::new(binary)
            .args(["up", "--secure-port", "0", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("start {}: run `cargo xtask bench`", binary.display()))?;
        let input = process.stdin.take().context("stdin")?;
        let mut output = BufReader::new(process.stdout.take().context("stdout")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line.starts_with("ready "), "setpoint up printed {line:?}");
        Ok(Self { process, input, output, kubeconfig, _folder: folder })
    }

    /// Stops it and waits for its end.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.signal(Signal::SIGTERM)?;
        let status = self.process.wait()?;
        ensure!(status.success(), "setpoint up ended with {status}");
        Ok(())
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(self.process.id().try_into()?), signal)?)
    }

    /// CPU time of all its threads so far, user and system.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        cpu(self.process.id())
    }

    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its allocated bytes. Only `setpoint-benches-served` supports this.
    pub(crate) fn live_bytes(&mut self) -> anyhow::Result<u64> {
        writeln!(self.input)?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().parse()?)
    }

    /// Resident memory, in KiB.
    pub(crate) fn resident_kib(&self) -> anyhow::Result<u64> {
        memory_kib(self.process.id(), "VmRSS")
    }

    /// The part of resident memory that is not pages of files, in KiB. The others are mostly pages
    /// of the program, which its processes share and the system may drop.
    pub(crate) fn own_kib(&self) -> anyhow::Result<u64> {
        memory_kib(self.process.id(), "RssAnon")
    }
}

/// How the measured program was built, by its folder: words for a table's introduction.
pub(crate) fn built() -> anyhow::Result<String> {
    let path = PathBuf::from(std::env::var_os(PROGRAM).context("run `cargo xtask bench`")?);
    let folder = path.parent().and_then(Path::file_name).context("the program's folder")?;
    Ok(match folder.to_string_lossy() {
        guided if guided == "guided" => "The program built by `cargo xtask dist --guided`, whose profile is of requests like those of the load table".to_owned(),
        profile => format!("The program built with `--profile {profile}`"),
    })
}

/// CPU time of all threads of a process so far, user and system.
pub(crate) fn cpu(process: u32) -> anyhow::Result<Duration> {
    /// The kernel's unit of these figures: a hundredth of a second on every architecture
    /// (`USER_HZ`).
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The program's name, which may contain any characters, ends with the last parenthesis.
    let (_, rest) = stat.rsplit_once(')').context("stat")?;
    let ticks = rest.split_ascii_whitespace().skip(11).take(2);
    let ticks = ticks.map(str::parse::<u32>).sum::<Result<u32, _>>()?;
    Ok(TICK * ticks)
}

/// CPU time of the calling thread so far, user and system. More exact than its usage of resources,
/// which the kernel may count in ticks.
pub(crate) fn thread_cpu() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// A figure of a process's memory, in KiB: `VmRSS`, what is resident, or `VmHWM`, the most so far.
pub(crate) fn memory_kib(process: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let figure = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
    let figure = status.lines().find_map(figure).with_context(|| name.to_owned())?;
    Ok(figure.trim().trim_end_matches(" kB").parse()?)
}

/// Results of the program that counts its allocations, with these arguments.
pub(crate) fn counted<T: DeserializeOwned>(args: &[&str]) -> anyhow::Result<T> {
    results_of(&std::env::current_exe()?.with_file_name("setpoint-benches-counted"), args)
}

/// Results of the program that measures operations on larger and larger objects.
pub(crate) fn growth<T: DeserializeOwned>(rounds: usize) -> anyhow::Result<T> {
    let program = std::env::current_exe()?.with_file_name("setpoint-benches-growth");
    results_of(&program, &["--rounds", &rounds.to_string()])
}

/// Results of this program in another process, with these arguments.
pub(crate) fn again<T: DeserializeOwned>(args: &[&str]) -> anyhow::Result<T> {
    results_of(&std::env::current_exe()?, args)
}

fn results_of<T: DeserializeOwned>(program: &Path, args: &[&str]) -> anyhow::Result<T> {
    let mut command = Command::new(program);
    let output = command.args(args).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let mut starts = Samples::default();
    for _ in 0..20 {
        let started = Instant::now();
        let _program = Program::start()?;
        starts.push_since(started);
    }
    table.row("process start to `ready`", starts.summary(), "≤ 50 ms");
    let program = Program::start()?;
    std::thread::sleep(Duration::from_secs(3));
    let mib = |kib: u64| format!("{:.1} MiB", kib as f64 / 1024.0);
    table.row("resident memory, idle for 3 s", mib(program.resident_kib()?), "≤ 20 MiB");
    let own = "of it, memory of its own: the rest is pages of the program's file";
    table.row(own, mib(program.own_kib()?), "–");
    Ok(())
}
