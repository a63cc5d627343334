//! Stops a program at SIGINT and SIGTERM.

use std::io;

use tokio_util::sync::CancellationToken;

/// Cancels `stop` at the first SIGINT or SIGTERM (elsewhere than on Unix: Ctrl-C), and exits with
/// status 1 at the second.
///
/// Run it beside what it stops, in `main`. A program that only runs a manager can use
/// [`Manager::run_until_signal`](crate::Manager::run_until_signal).
///
/// ```no_run
/// # use setpoint_runtime::{Manager, cancel_on_signal};
/// # async fn example(manager: Manager) -> Result<(), Box<dyn std::error::Error>> {
/// let stop = tokio_util::sync::CancellationToken::new();
/// tokio::select! {
///     ended = manager.run(stop.clone()) => ended?,
///     Err(error) = cancel_on_signal(stop) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
///
/// It can run several times: each instance gets all signals, and the second signal still exits.
///
/// # Errors
///
/// Signal handlers cannot be installed. Otherwise it never returns.
pub async fn cancel_on_signal(stop: CancellationToken) -> io::Result<std::convert::Infallible> {
    let mut signals = Signals::new()?;
    signals.next().await?;
    tracing::info!("stopping on a signal; a second one exits at once");
    stop.cancel();
    signals.next().await?;
    std::process::exit(1)
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> io::Result<()> {
        tokio::select! {
            biased;
            // Cancel safe: a dropped `recv` takes nothing.
            _ = self.interrupt.recv() => {}
            // Cancel safe: as above.
            _ = self.terminate.recv() => {}
        }
        Ok(())
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> io::Result<()> {
        tokio::signal::ctrl_c().await
    }
}
