//! Terminals: of containers with `tty`, and of commands that `exec -t` runs.

use crate::shared::CommandEnvironment;
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use setpoint_apiserver::TerminalSize;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::Command;

/// The node's side of a terminal: what is written is typed, what is read is shown. Its clones are
/// the same terminal. Reads end when no process has the other side open.
#[derive(Debug, Clone)]
pub(crate) struct Terminal(Arc<AsyncFd<OwnedFd>>);

impl Terminal {
    /// Opens a terminal; returns the other side too, for a process.
    pub(crate) fn open() -> io::Result<(Self, File)> {
        let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&own)?;
        unlockpt(&own)?;
        let name = ptsname(&own, Vec::new())?;
        let name = name.to_str().map_err(io::Error::other)?.to_owned();
        let other = File::options().read(true).write(true).open(name)?;
        rustix::io::ioctl_fionbio(&own, true)?;
        #[expect(deprecated, reason = "the new way is unsafe; an OwnedFd keeps its one descriptor")]
        let own = AsyncFd::new(own)?;
        Ok((Self(Arc::new(own)), other))
    }

    /// Changes the size. The process gets SIGWINCH.
    pub(crate) fn resize(&self, size: TerminalSize) {
        let TerminalSize { width, height } = size;
        let size = Winsize { ws_col: width, ws_row: height, ws_xpixel: 0, ws_ypixel: 0 };
        // The terminal may be closed.
        _ = tcsetwinsize(self.0.get_ref(), size);
    }
}

impl AsyncRead for Terminal {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd, buffer.initialize_unfilled())?));
            match read {
                Ok(Ok(n)) => {
                    buffer.advance(n);
                    return Poll::Ready(Ok(()));
                }
                // No process has the other side open.
                Ok(Err(error)) if Errno::from_io_error(&error) == Some(Errno::IO) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            if let Ok(written) = ready.try_io(|fd| Ok(rustix::io::write(fd, bytes)?)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl CommandEnvironment {
    /// A command in a terminal, in a session of its own. Its process is the session's leader, and
    /// that of a process group.
    ///
    /// # Errors
    ///
    /// The terminal has been closed.
    pub(crate) fn terminal_command(&self, words: &[String], side: File) -> io::Result<Command> {
        // It becomes the command itself, because it does not lead a process group before.
        let setsid = ["setsid", "--ctty"].map(str::to_owned);
        let mut command = self.bare_command(&[&setsid, words].concat());
        if !self.env.iter().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm");
        }
        command.stdin(side.try_clone()?).stdout(side.try_clone()?).stderr(side);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn surroundings() -> CommandEnvironment {
        let path = std::env::var("PATH").unwrap();
        CommandEnvironment {
            env: vec![("PATH".to_owned(), path)],
            folder: "/".into(),
            mounts: crate::paths::Mounts::default(),
            user: None,
            group: None,
        }
    }

    #[tokio::test]
    async fn a_command_reads_its_terminal_and_sees_its_size() {
        let (mut terminal, side) = Terminal::open().unwrap();
        terminal.resize(TerminalSize { width: 90, height: 33 });
        let script = "read line; echo got $line; stty size; exit 3";
        let words = ["sh", "-c", script].map(str::to_owned);
        let mut command = surroundings().terminal_command(&words, side).unwrap();
        let mut child = command.spawn().unwrap();
        drop(command);
        terminal.write_all(b"hello\n").await.unwrap();
        let mut shown = String::new();
        terminal.read_to_string(&mut shown).await.unwrap();
        // The terminal echoes what is typed.
        assert_eq!(shown, "hello\r\ngot hello\r\n33 90\r\n");
        assert_eq!(child.wait().await.unwrap().code(), Some(3));
    }

    #[tokio::test]
    async fn signals_reach_a_command_in_a_terminal() {
        let (mut terminal, side) = Terminal::open().unwrap();
        let script = "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done";
        let words = ["sh", "-c", script].map(str::to_owned);
        let mut command = surroundings().terminal_command(&words, side).unwrap();
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut shown = [0; 4];
        terminal.read_exact(&mut shown).await.unwrap();
        assert_eq!(&shown, b"up\r\n");
        crate::guard::signal_group(child.id().unwrap(), rustix::process::Signal::TERM);
        assert_eq!(child.wait().await.unwrap().code(), Some(5));
    }
}
