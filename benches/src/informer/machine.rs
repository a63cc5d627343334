//! The processes of a measurement.
use super::runs::{Program, Subject};
use crate::client::Findings;
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Names the Go client; `cargo xtask bench informer` builds it.
const CLIENT_GO: &str = "SETPOINT_BENCH_CLIENT_GO";

/// The source as a process; killed when dropped.
pub(crate) struct Source {
    process: Child,
    address: String,
}

impl Drop for Source {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where the Go client is, if there is one.
pub(super) fn client_go() -> Option<std::path::PathBuf> {
    std::env::var_os(CLIENT_GO).map(Into::into)
}

impl Source {
    pub(crate) fn start(n_objects: u64, n_events: u64) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["source", "--objects", &n_objects.to_string()])
            .args(["--events", &n_events.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        BufReader::new(process.stdout.take().context("stdout")?).read_line(&mut address)?;
        let address = address.trim().to_owned();
        let source = Self { process, address };
        ensure!(source.address.starts_with("http://"), "the source said {:?}", source.address);
        Ok(source)
    }

    /// Runs a client to its end; nothing if it is not here.
    pub(crate) fn run(&self, subject: &Subject) -> anyhow::Result<Option<Findings>> {
        let command = match subject.program {
            Program::Own => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("client");
                command
            }
            Program::ClientGo { stream } => {
                let Some(path) = client_go() else { return Ok(None) };
                let mut command = Command::new(path);
                command.env("KUBE_FEATURE_WatchListClient", stream.to_string());
                command
            }
        };
        self.finish(command, subject).map(Some)
    }

    /// The same in the program that counts its allocations, until the sync.
    pub(crate) fn run_counted(&self, subject: &Subject) -> anyhow::Result<Option<Findings>> {
        match subject.program {
            Program::Own => {
                let path = std::env::current_exe()?.with_file_name("setpoint-benches-counted");
                self.finish(Command::new(path), &subject.clone().sync_only()).map(Some)
            }
            // Its runtime always counts.
            Program::ClientGo { .. } => Ok(None),
        }
    }

    fn finish(&self, mut command: Command, subject: &Subject) -> anyhow::Result<Findings> {
        command.args(["--server", &self.address]).args(&subject.arguments).stderr(Stdio::inherit());
        let output = command.output().with_context(|| format!("start {command:?}"))?;
        ensure!(output.status.success(), "{}: {command:?} failed", subject.name);
        serde_json::from_slice(&output.stdout).with_context(|| {
            format!("{} said {}", subject.name, String::from_utf8_lossy(&output.stdout))
        })
    }
}
