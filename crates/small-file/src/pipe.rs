//! What is no regular file: pipes, devices, terminals.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

/// Bytes of one read.
const CHUNK_BYTES: usize = 16 << 10;

/// Opens a pipe at once, whether it has a writer or not. Its reads do not wait either.
pub(super) fn without_wait(options: &mut OpenOptions) {
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
}

/// At most so many bytes until the end, or those until then.
///
/// # Errors
///
/// Reading failed, or there was neither the end nor that many bytes within `wait_max`.
pub(super) fn read(mut file: File, limit: usize, wait_max: Duration) -> io::Result<Vec<u8>> {
    let deadline = now().saturating_add(wait_max);
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES.min(limit)]);
    while bytes.len() < limit {
        wait(&file, deadline)?;
        let room = CHUNK_BYTES.min(limit - bytes.len());
        match file.read(&mut chunk[..room]) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Waits until there is something to read, or the end.
fn wait(file: &File, deadline: Duration) -> io::Result<()> {
    loop {
        let left = deadline.checked_sub(now()).filter(|left| !left.is_zero());
        let late = || io::Error::new(io::ErrorKind::TimedOut, "it does not end");
        let left = left.ok_or_else(late)?;
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&left)) {
            // The time is over, or a signal came.
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The time since the start of the machine: that of the system, because a pipe's other end is
/// outside of every simulation.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    const SHORT: Duration = Duration::from_millis(50);

    fn kind(outcome: &io::Result<Vec<u8>>) -> io::ErrorKind {
        outcome.as_ref().unwrap_err().kind()
    }

    #[test]
    fn a_pipe_without_an_end_is_left_in_time() {
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"a part").unwrap();
        let file = || File::from(OwnedFd::from(reader.try_clone().unwrap()));
        assert_eq!(kind(&read(file(), 100, SHORT)), io::ErrorKind::TimedOut);
        io::Write::write_all(&mut writer, b"too long").unwrap();
        assert_eq!(read(file(), 4, SHORT).unwrap(), b"too ");
        drop(writer);
        assert_eq!(read(file(), 100, SHORT).unwrap(), b"long");
    }

    #[test]
    fn a_named_pipe_waits_for_its_writer_and_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        );
        made.unwrap();
        let opened = || super::super::open(&path).unwrap();
        assert_eq!(kind(&read(opened(), 100, SHORT)), io::ErrorKind::TimedOut);
        let target = path.clone();
        let writer = std::thread::spawn(move || std::fs::write(target, "late"));
        assert_eq!(read(opened(), 100, Duration::from_secs(20)).unwrap(), b"late");
        writer.join().unwrap().unwrap();
    }
}
