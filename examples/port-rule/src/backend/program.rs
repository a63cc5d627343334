//! Runs the programs of a firewall.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Maximum run time of a program: ten seconds. Listing a table of ten thousand lines takes less
/// than one.
const RUN_MAX: Duration = Duration::from_secs(10);
/// Maximum size of a program's output. A table of ten thousand lines is 4 MiB of JSON.
const OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of its standard error in an error message.
const COMPLAINT_BYTES_MAX: u64 = 4096;

/// A program on this machine.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
}

/// Why a program failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// It did not start, or its pipes broke.
    #[error("run {program}")]
    Io {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It ended with an error.
    #[error("{program} ended with {status}: {complaint}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it printed on standard error, cut after 4 KiB.
        complaint: String,
    },
    /// It did not end in time, and was killed.
    #[error("{program} did not end within {} s", RUN_MAX.as_secs())]
    TimedOut {
        /// The program.
        program: String,
    },
    /// It printed more than is read, and was killed.
    #[error("{program} printed more than {OUTPUT_BYTES_MAX} bytes")]
    TooMuch {
        /// The program.
        program: String,
    },
}

impl Program {
    /// A program by its path, or by its name in `PATH`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub(crate) fn io(&self, source: std::io::Error) -> ProgramError {
        ProgramError::Io { program: self.name(), source }
    }

    /// A command that is killed when it is dropped. Its messages are in English.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args).env("LC_ALL", "C").kill_on_drop(true);
        command
    }

    /// Runs it to its end and returns what it prints.
    pub(crate) async fn run(&self, args: &[&str], input: &[u8]) -> Result<Vec<u8>, ProgramError> {
        let ran = tokio::time::timeout(RUN_MAX, self.run_to_its_end(args, input)).await;
        ran.unwrap_or_else(|_| Err(ProgramError::TimedOut { program: self.name() }))
    }

    async fn run_to_its_end(&self, args: &[&str], input: &[u8]) -> Result<Vec<u8>, ProgramError> {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|source| self.io(source))?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut output, mut complaint) = (Vec::new(), Vec::new());
        let write = async {
            let Some(mut stdin) = stdin else { return Ok(()) };
            match stdin.write_all(input).await {
                // It ended without reading everything: its status says why.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                written => written.map_err(|source| self.io(source)),
            }
        };
        let read = async {
            let Some(stdout) = stdout else { return Ok(()) };
            let read = stdout.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut output).await;
            match read.map_err(|source| self.io(source))? as u64 {
                0..=OUTPUT_BYTES_MAX => Ok(()),
                _ => Err(ProgramError::TooMuch { program: self.name() }),
            }
        };
        let listen = async {
            let Some(mut stderr) = stderr else { return Ok(()) };
            let kept = (&mut stderr).take(COMPLAINT_BYTES_MAX).read_to_end(&mut complaint).await;
            kept.map_err(|source| self.io(source))?;
            // The rest is read, so that the program does not wait.
            let rest = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
            rest.map(drop).map_err(|source| self.io(source))
        };
        tokio::try_join!(write, read, listen)?;
        let status = child.wait().await.map_err(|source| self.io(source))?;
        if status.success() {
            return Ok(output);
        }
        let complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
        Err(ProgramError::Failed { program: self.name(), status, complaint })
    }
}
