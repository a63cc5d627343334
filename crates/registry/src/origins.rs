//! Which reconcile a revision comes from, of the newest that come from any.

use setpoint_object::Origin;
use setpoint_object::origin::HEADER_BYTES_MAX;
use setpoint_store::Revision;
use std::collections::VecDeque;
use std::sync::Arc;

/// Of how many revisions this is kept, the newest: at most 8 MiB, as an [`Origin`] that is kept has
/// at most 1 KiB.
pub(crate) const ORIGINS_MAX: usize = 8_192;

/// The origins of recent revisions. A change that comes from no reconcile takes no place.
#[derive(Debug, Default)]
pub(crate) struct Origins(parking_lot::Mutex<VecDeque<(Revision, Arc<Origin>)>>);

impl Origins {
    /// Takes note of one; in any order, for answers of the store overtake each other. One that is
    /// too long for its header, which only a client in this process can send, is not kept.
    pub(crate) fn note(&self, revision: Revision, origin: Arc<Origin>) {
        if origin.byte_len() > HEADER_BYTES_MAX {
            return;
        }
        let mut kept = self.0.lock();
        let at = kept.partition_point(|(earlier, _)| *earlier < revision);
        // Revisions come nearly in order: little is moved.
        kept.insert(at, (revision, origin));
        if kept.len() > ORIGINS_MAX {
            kept.pop_front();
        }
    }

    /// That of a revision, while it is known.
    pub(crate) fn of(&self, revision: Revision) -> Option<Arc<Origin>> {
        let kept = self.0.lock();
        let at = kept.binary_search_by_key(&revision, |(revision, _)| *revision).ok()?;
        Some(kept[at].1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_are_kept_whatever_their_order() {
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
