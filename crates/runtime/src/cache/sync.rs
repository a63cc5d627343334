//! Which cached types have synced.

use futures::future::join_all;

use super::{Cache, CachedType, MemberStatus};

impl Cache {
    /// Waits until all informers requested with [`informer`](Self::informer) so far have synced or
    /// stopped. Cancel safe: has no side effects.
    pub(crate) fn synced(&self) -> impl Future<Output = ()> + Send + 'static {
        let informers = self.informers.clone();
        async move {
            let awaited: Vec<_> = {
                let informers = informers.lock();
                let awaited = informers.by_id.values().filter(|cached| cached.is_awaited);
                awaited.map(|cached| cached.informer.synced()).collect()
            };
            join_all(awaited).await;
        }
    }

    /// The informers that have not synced, each with its last problem. For probes and logs. The
    /// informers of a type that is cached by namespace are listed with their namespaces.
    pub fn unsynced(&self) -> Vec<String> {
        self.unsynced_of(|_| true)
    }

    /// [`unsynced`](Self::unsynced), of those that [`synced`](Self::synced) waits for.
    pub(crate) fn awaited(&self) -> Vec<String> {
        self.unsynced_of(|cached| cached.is_awaited)
    }

    fn unsynced_of(&self, counts: impl Fn(&CachedType) -> bool) -> Vec<String> {
        let mut statuses: Vec<MemberStatus> = {
            let informers = self.informers.lock();
            let cached = informers.by_id.values().filter(|cached| counts(cached));
            cached.flat_map(|cached| cached.informer.statuses()).collect()
        };
        statuses.retain(|member| !member.status.has_synced);
        let mut unsynced: Vec<_> = statuses
            .into_iter()
            .map(|MemberStatus { name, status }| match status.degraded {
                Some(degraded) => format!("{name} has not synced: {degraded}"),
                None => format!("{name} has not synced"),
            })
            .collect();
        unsynced.sort();
        // Several types may share one informer.
        unsynced.dedup();
        unsynced
    }
}
