//! The informers that a manager's controllers share.

use std::{
    any::{Any, TypeId},
    fmt,
    sync::Arc,
};

use hashbrown::HashMap;
use parking_lot::Mutex;
use setpoint_informer::{
    Cacheable, InformerFactory, ResourceType, SharedInformer,
    factory::{FactoryOptions, FactoryWorker},
};

/// One informer per type, shared by the controllers of a manager. Cheap to clone.
///
/// A type is cached from the first request for its informer; the manager runs it from the start, or at once when it runs already.
/// Reading a type that nobody requested is an error and starts nothing: what a program holds in memory is what its code names.
#[derive(Clone)]
pub struct Cache {
    factory: InformerFactory,
    informers: Arc<Mutex<Informers>>,
}

/// The informers of each type, as `SharedInformer<K>`.
type Informers = HashMap<(TypeId, ResourceType), Box<dyn Any + Send + Sync>>;

impl Cache {
    pub(crate) fn new(
        client: kube_client::Client,
        options: FactoryOptions,
    ) -> (Self, FactoryWorker) {
        let (factory, worker) = InformerFactory::new(client, options);
        (Self { factory, informers: Arc::default() }, worker)
    }

    /// The informer of a type known at compile time.
    pub fn informer<K: Cacheable>(&self) -> SharedInformer<K>
    where
        K::DynamicType: Default,
    {
        self.informer_with(&K::DynamicType::default())
    }

    /// The informer of a type known at run time.
    pub fn informer_with<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> SharedInformer<K> {
        let informer = self.factory.informer_with::<K>(dynamic_type, |builder| builder);
        let id = (TypeId::of::<K>(), ResourceType::of::<K>(dynamic_type));
        self.informers.lock().insert(id, Box::new(informer.clone()));
        self.factory.start();
        informer
    }

    /// The informer of a type if somebody requested it.
    pub fn known<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> Option<SharedInformer<K>> {
        let id = (TypeId::of::<K>(), ResourceType::of::<K>(dynamic_type));
        let informers = self.informers.lock();
        informers.get(&id)?.downcast_ref::<SharedInformer<K>>().cloned()
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("n_informers", &self.informers.lock().len())
            .finish_non_exhaustive()
    }
}
