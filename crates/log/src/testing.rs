//! What one test's thread logs, in a process whose other threads run other tests.
//!
//! `tracing` asks once per place in the code whether anyone wants its events. While a process has
//! had one subscriber only, it asks that of the thread which comes by first; if that thread has
//! none, the place is silent from then on, for the thread with the subscriber as well. So a
//! subscriber of one thread alone loses lines, depending on which test runs first. With a
//! process-wide one beside it, every subscriber is asked.

use std::io;
use std::sync::{Arc, Mutex, Once, PoisonError};
use tracing::Subscriber;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

/// Makes this the subscriber of the current thread until the guard is dropped.
///
/// Takes the place of [`tracing::subscriber::set_default`] in tests. The process gets a subscriber
/// that is silent, unless it has a process-wide one.
pub fn set_default(subscriber: impl Subscriber + Send + Sync + 'static) -> DefaultGuard {
    static SILENT: Once = Once::new();
    SILENT.call_once(|| {
        // Its answer is not remembered, because a dynamic filter is asked each time.
        let silent = tracing_subscriber::registry().with(dynamic_filter_fn(|_, _| false));
        // A process-wide one that was there before does as well.
        drop(tracing::subscriber::set_global_default(silent));
    });
    #[expect(clippy::disallowed_methods, reason = "this is what the rule asks to call instead")]
    tracing::subscriber::set_default(subscriber)
}

/// Log lines, kept in memory. Clones share them. Not bounded.
#[derive(Debug, Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// All lines so far, each with its line feed. Bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say() {
        tracing::info!("said");
    }

    #[test]
    fn line_of_a_place_that_another_thread_reached_first_is_kept() {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(lines.clone())
            .with_target(false)
            .with_ansi(false)
            .without_time()
            .finish();
        let _default = set_default(subscriber);
        std::thread::spawn(say).join().unwrap();
        assert_eq!(lines.text(), "");
        say();
        assert_eq!(lines.text(), " INFO said\n");
    }
}
