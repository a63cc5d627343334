//! A clock that also counts the time a machine was suspended.

use std::{fmt, sync::Arc, time::Duration};

/// A second clock for deadlines: the time since some fixed moment, never going back, *including*
/// the time in which the machine was suspended. Cheap to clone.
///
/// Tokio's clock does not count that time on Linux, so a holder of a lease needs this one to notice
/// that it slept.
#[derive(Clone)]
pub struct SuspendClock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl SuspendClock {
    /// A clock read by this function.
    pub fn new(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The machine's: `CLOCK_BOOTTIME` on Linux and Android. `None` elsewhere.
    ///
    /// It is real time, also in a test that pauses tokio's: for programs, at their edge.
    pub fn boot_time() -> Option<Self> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            Some(Self::new(|| {
                let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
                Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
            }))
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        None
    }

    pub(super) fn read(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for SuspendClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SuspendClock").field(&self.read()).finish()
    }
}
