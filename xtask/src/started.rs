//! Programs that a chore starts.

use crate::program;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A started program that is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Started(pub(crate) Child);

impl Started {
    /// Starts `setpoint up` and waits for its ready line. What it logs goes to a file.
    pub(crate) fn up(command: &mut Command, log: &Path) -> Result<Self> {
        Self::ready(command, log).map(|(server, _)| server)
    }

    /// The same, with the ready line.
    pub(crate) fn ready(command: &mut Command, log: &Path) -> Result<(Self, String)> {
        let file = std::fs::File::create(log).context("make a log")?;
        let server = command.stdout(Stdio::piped()).stderr(file).spawn();
        let mut server = Self(server.context("start setpoint")?);
        let stdout = server.0.stdout.take().context("its output")?;
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready)?;
        ensure!(ready.starts_with("ready "), "setpoint did not start: see {}", log.display());
        Ok((server, ready))
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(mut self) -> Result<()> {
        program::run(Command::new("kill").arg(self.0.id().to_string()))?;
        let status = self.0.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
