//! Requests for informers.
use super::{InformerFactory, InformerLease, Selection};
use crate::informer::{Cacheable, SharedInformer, SharedInformerBuilder};
use std::fmt;

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
