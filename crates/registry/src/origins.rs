//! Origins of recent revisions: which reconcile caused each.

use setpoint_object::Origin;
use setpoint_object::origin::HEADER_BYTES_MAX;
use setpoint_store::Revision;
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of revisions with an origin; the oldest are dropped. At most 8 MiB, as each
/// stored [`Origin`] has at most 1 KiB.
pub(crate) const ORIGINS_MAX: usize = 8_192;

/// The origins of recent revisions. Revisions without an origin take no space.
#[derive(Debug, Default)]
pub(crate) struct Origins(parking_lot::Mutex<VecDeque<(Revision, Arc<Origin>)>>);

impl Origins {
    /// Stores one, in any order, because answers of the store may overtake each other. Ignores an
    /// origin that is too long for its header; only a client in this process can send one.
    pub(crate) fn note(&self, revision: Revision, origin: Arc<Origin>) {
        if origin.byte_len() > HEADER_BYTES_MAX {
            return;
        }
        let mut origins = self.0.lock();
        let at = origins.partition_point(|(earlier, _)| *earlier < revision);
        // Revisions arrive nearly in order, so few entries move.
        origins.insert(at, (revision, origin));
        if origins.len() > ORIGINS_MAX {
            origins.pop_front();
        }
    }

    /// The origin of a revision; `None` if it has none or it was dropped.
    pub(crate) fn of(&self, revision: Revision) -> Option<Arc<Origin>> {
        let origins = self.0.lock();
        let at = origins.binary_search_by_key(&revision, |(revision, _)| *revision).ok()?;
        Some(origins[at].1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_origins_are_kept_whatever_their_order() {
        let origins = Origins::default();
        let origin = |n: u64| Arc::new(Origin::new("c", n.to_string(), "1"));
        for n in 0..=ORIGINS_MAX as u64 {
            let n = n ^ 1;
            origins.note(Revision(n), origin(n));
        }
        assert_eq!(origins.0.lock().len(), ORIGINS_MAX);
        assert_eq!(origins.of(Revision(0)), None);
        let long = Origin::new("c", "k".repeat(HEADER_BYTES_MAX), "1");
        origins.note(Revision(u64::MAX), Arc::new(long));
        assert_eq!(origins.of(Revision(u64::MAX)), None);
        for n in 2..ORIGINS_MAX as u64 {
            assert_eq!(origins.of(Revision(n)), Some(origin(n)));
        }
    }
}
