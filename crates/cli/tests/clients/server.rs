//! A running `setpoint up` and the clients pointed at it.

use crate::ready_line;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The controllers that run unless a test chooses them: those that create no pods.
const CONTROLLERS: &str =
    "--controllers=*,-deployment,-replicaset,-replicationcontroller,-statefulset,-daemonset";

/// Maximum time that a client waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One server process of one test; killed when dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
    /// The plain endpoint on loopback.
    pub(crate) plain: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts a server on free ports and waits for its ready line.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with additional options.
    pub(crate) fn start_with(options: &[&std::ffi::OsStr]) -> Self {
        Self::start_in(Command::new(env!("CARGO_BIN_EXE_setpoint")), options)
    }

    /// Starts a server with a command that runs the program.
    pub(crate) fn start_in(mut command: Command, options: &[&std::ffi::OsStr]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let are_chosen =
            options.iter().any(|option| option.to_string_lossy().starts_with("--controllers"));
        let controllers = (!are_chosen).then_some(CONTROLLERS);
        let mut process = command
            // One arena, so that resident memory shows what the server uses, not which thread's
            // arena a response was made in.
            .env("MALLOC_ARENA_MAX", "1")
            .args(["up", "--secure-port", "0", "--insecure-port", "0", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(controllers)
            .args(options)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
        let Some((url, Some(plain))) = ready_line::urls(&line) else {
            panic!("the ready line is {line:?}:\n{}", log());
        };
        Self { process, folder, url, plain }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Writes a file into the test's folder.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn kubectl(&self) -> Program<'_> {
        self.program("SETPOINT_TEST_KUBECTL")
    }

    pub(crate) fn kubectl_old(&self) -> Program<'_> {
        self.program("SETPOINT_TEST_KUBECTL_OLD")
    }

    /// An installed part that reads a kubeconfig.
    pub(crate) fn program(&self, variable: &str) -> Program<'_> {
        Program { server: self, config: self.kubeconfig(), binary: part(variable) }
    }

    /// The server's log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Memory that it allocated and that is resident, in KiB (`RssAnon`: pages of the program's
    /// own file, which are read as its code runs for the first time, are not counted).
    pub(crate) fn resident_kib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Number of its open sockets.
    pub(crate) fn n_sockets(&self) -> usize {
        let folder = std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap();
        folder
            .flatten()
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .filter(|link| link.to_string_lossy().starts_with("socket:"))
            .count()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args(["-s", signal, &self.process.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Sends a signal and returns the exit status.
    pub(crate) fn stop(&mut self, signal: &str) -> std::process::ExitStatus {
        self.signal(signal);
        self.process.wait().unwrap()
    }
}

/// Path of an installed part.
pub(crate) fn part(variable: &str) -> PathBuf {
    std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} is not set: run these tests with `cargo xtask test`"))
        .into()
}

/// A program with a command line, whose home is the test's folder: kubectl or Helm.
pub(crate) struct Program<'a> {
    server: &'a Server,
    config: PathBuf,
    binary: PathBuf,
}

impl Program<'_> {
    /// The same program for another server.
    pub(crate) fn with_config(self, config: PathBuf) -> Self {
        Self { config, ..self }
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.server.folder.path()).env("KUBECONFIG", &self.config);
        command.current_dir(self.server.folder.path()).args(words(line));
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a command line that must succeed; returns its standard output.
    #[track_caller]
    pub(crate) fn ok(&self, line: &str) -> String {
        let output = self.output(line);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let (name, log) = (self.name(), self.log());
        assert!(output.status.success(), "{name} {line}\n{out}{err}\nserver log:\n{log}");
        out
    }

    /// Runs a command line that must succeed; returns its output on both streams.
    #[track_caller]
    pub(crate) fn both_outputs(&self, line: &str) -> String {
        let output = self.output(line);
        let both = text(&output.stdout) + &text(&output.stderr);
        let (name, log) = (self.name(), self.log());
        assert!(output.status.success(), "{name} {line}\n{both}\nserver log:\n{log}");
        both
    }

    /// Runs a command line that may fail; returns its output on both streams.
    pub(crate) fn any_output(&self, line: &str) -> String {
        let output = self.output(line);
        text(&output.stdout) + &text(&output.stderr)
    }

    /// Runs a command line that must fail; returns its standard error.
    #[track_caller]
    pub(crate) fn fails(&self, line: &str) -> String {
        let output = self.output(line);
        let err = text(&output.stderr);
        assert!(
            !output.status.success(),
            "{} {line} succeeded:\n{}{err}",
            self.name(),
            text(&output.stdout)
        );
        err
    }

    /// Repeats a command until its output fulfils a condition.
    #[track_caller]
    pub(crate) fn eventually(&self, line: &str, holds: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let output = self.output(line);
            let both = text(&output.stdout) + &text(&output.stderr);
            if holds(&both) {
                return both;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "{} {line} still says:\n{both}\nserver log:\n{}",
                self.name(),
                self.log()
            );
            std::thread::yield_now();
        }
    }

    fn name(&self) -> String {
        self.binary.file_name().unwrap().to_string_lossy().into_owned()
    }

    fn log(&self) -> String {
        let log =
            std::fs::read_to_string(self.server.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Splits a command line at spaces; single quotes keep words together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Lines of a running client, as they arrive.
pub(crate) struct Lines {
    process: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Lines {
    pub(crate) fn of(mut command: Command) -> Self {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let reader = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            reader.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { process, lines }
    }

    /// Whether no line is pending.
    pub(crate) fn is_silent(&self) -> bool {
        self.lines.try_recv().is_err()
    }

    /// A line that has come, if there is one.
    pub(crate) fn pending(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// The next line.
    #[track_caller]
    pub(crate) fn next(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line in time")
    }
}

/// Whether only its owner may read a path.
pub(crate) fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777 == 0o600
}
