//! The watch cache: per resource an ordered index of current bytes and a bounded window of events, fed by the store's change feed.
use crate::registry::Inner;
use setpoint_object::ApiError;
use tokio_util::sync::CancellationToken;

/// The watch caches of every resource, by storage prefix.
#[derive(Debug, Default)]
pub(crate) struct WatchCache {
    _private: (),
}
#[allow(dead_code)]
impl WatchCache {
    /// Fills itself from the store and follows its change feed until `stop`, then ends every watch politely.
    pub(crate) async fn run(
        &self,
        _inner: &Inner,
        _stop: CancellationToken,
    ) -> Result<(), ApiError> {
        todo!()
    }
    /// Waits until everything up to `revision` has been taken in.
    pub(crate) async fn wait_until(&self, _revision: u64) {
        todo!()
    }
    /// Ends every watch of a resource (its CRD changed or went away); clients reconnect.
    pub(crate) fn close_watches(&self, _storage_prefix: &str) {
        todo!()
    }
}
