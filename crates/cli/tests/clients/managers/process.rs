//! The process of a manager.

use super::child::{self, Role};
use crate::server::{PATIENCE, Server};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A process that runs one manager; killed when dropped.
pub(crate) struct Process {
    process: Child,
    journal: PathBuf,
    log: PathBuf,
}

/// A line of a process's journal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    /// Wall-clock time in µs, which all processes of a machine share.
    pub at: u64,
    pub what: String,
    pub key: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(20)..].join("\n");
            eprintln!("{}:\n{last}", self.log.display());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Process {
    pub(crate) fn start(server: &Server, role: Role) -> Self {
        let folder = server.folder.path();
        let journal = folder.join(format!("{}.journal", role.name));
        let log = folder.join(format!("{}.log", role.name));
        std::fs::write(&journal, "").unwrap();
        let output = std::fs::File::create(&log).unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", child::TEST, "--nocapture"])
            .env(child::ROLE, role.written(&server.kubeconfig(), &journal))
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Self { process, journal, log }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
    }

    /// Waits for its end; returns its exit status unless a signal ended it.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(started.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// The lines that it wrote. Ignores a last line that is incomplete.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(&self.journal).unwrap();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(Line::parse).collect()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.lines().iter().filter(|line| line.what == what).count()
    }

    /// Waits until its journal fulfils a condition.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&[Line]) -> bool) {
        let started = Instant::now();
        while !is_so(&self.lines()) {
            assert!(started.elapsed() < PATIENCE, "waited until {what}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Line {
    fn parse(line: &str) -> Self {
        let mut words = line.split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        Self { at: word().parse().unwrap(), what: word(), key: word() }
    }
}
