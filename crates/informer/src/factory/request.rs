//! Requests for informers, and leases of them.
use super::{InformerFactory, Selection};
use crate::informer::{Cacheable, SharedInformer, SharedInformerBuilder};
use std::fmt;
use std::ops::Deref;

/// A request for an informer of one type: its objects, how to build it if it is new, and how long
/// it is needed.
#[must_use = "nothing is requested before `pinned` or `leased`"]
pub struct InformerRequest<'a, K: Cacheable> {
    factory: InformerFactory,
    dynamic_type: &'a K::DynamicType,
    selection: Selection,
    build: Option<Build<'a, K>>,
}

type Build<'a, K> = Box<dyn FnOnce(SharedInformerBuilder<K>) -> SharedInformerBuilder<K> + 'a>;

impl<K: Cacheable> fmt::Debug for InformerRequest<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerRequest")
            .field("selection", &self.selection)
            .finish_non_exhaustive()
    }
}

impl<'a, K: Cacheable> InformerRequest<'a, K> {
    pub(super) fn new(
        factory: InformerFactory,
        dynamic_type: &'a K::DynamicType,
        selection: Selection,
    ) -> Self {
        Self { factory, dynamic_type, selection, build: None }
    }

    /// A selection instead of the factory's. There is one informer per resource and selection.
    pub fn selection(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Sets indexes, policy, resync or transform of the informer, if this is its first request
    /// (FAC-1). The last call counts.
    pub fn build(
        mut self,
        build: impl FnOnce(SharedInformerBuilder<K>) -> SharedInformerBuilder<K> + 'a,
    ) -> Self {
        self.build = Some(Box::new(build));
        self
    }

    /// The informer, for as long as the factory lives.
    pub fn pinned(self) -> SharedInformer<K> {
        let Self { factory, dynamic_type, selection, build } = self;
        let build = build.unwrap_or_else(|| Box::new(|builder| builder));
        factory.find(dynamic_type, selection, true, build).0
    }

    /// The informer, for as long as it has a lease.
    pub fn leased(self) -> InformerLease<K> {
        let Self { factory, dynamic_type, selection, build } = self;
        let build = build.unwrap_or_else(|| Box::new(|builder| builder));
        let (informer, number) = factory.find(dynamic_type, selection, false, build);
        InformerLease::new(informer, factory, number)
    }
}

/// A lease of an informer: when its last lease is dropped and it is not pinned, it is stopped and
/// forgotten. A later request makes a new one with an empty cache, which must be started.
///
/// Derefs to the informer. A clone of the informer keeps its cache readable, but not running.
pub struct InformerLease<K> {
    informer: SharedInformer<K>,
    factory: InformerFactory,
    number: u64,
}

impl<K> InformerLease<K> {
    pub(super) fn new(informer: SharedInformer<K>, factory: InformerFactory, number: u64) -> Self {
        Self { informer, factory, number }
    }
}

impl<K> Deref for InformerLease<K> {
    type Target = SharedInformer<K>;

    fn deref(&self) -> &SharedInformer<K> {
        &self.informer
    }
}

impl<K> fmt::Debug for InformerLease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InformerLease").field(&self.informer).finish()
    }
}

impl<K> Drop for InformerLease<K> {
    fn drop(&mut self) {
        self.factory.release(self.number);
    }
}
