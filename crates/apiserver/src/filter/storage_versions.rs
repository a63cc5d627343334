//! Holds back writes of built-in resources until the server has registered what it stores of them,
//! as kube-apiserver's `WithStorageVersionPrecondition`. Otherwise a migration could take objects
//! for migrated that this server writes in another version.

use parking_lot::Mutex;
use setpoint_object::{ApiError, Reason};
use setpoint_registry::{Attributes, Requested, Resource, Target, Verb};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

const SYSTEM: &str = "kube-system";

/// Decides which writes wait for StorageVersions; cheap to clone. It is open at first, and holds
/// nothing back.
///
/// While it is closed, writes of a built-in resource that is stored are refused with 503, until
/// what the server stores of it is [registered](Self::registered). These pass always: reads,
/// requests that are not about such a resource, writes of StorageVersions and of the Leases in
/// `kube-system`, and Namespaces that the server itself creates.
#[derive(Debug, Clone)]
pub struct StorageVersionBarrier(Arc<Barrier>);

#[derive(Debug)]
struct Barrier {
    /// The same as the last value of `opened`, without a lock.
    is_closed: AtomicBool,
    opened: watch::Sender<bool>,
    was_closed: AtomicBool,
    /// By prefix of the keys in the store, because resources of several groups may share a place.
    places: Mutex<BTreeMap<Arc<str>, Place>>,
}

/// What is known of a place in the store. Without an entry, nothing is.
#[derive(Debug)]
enum Place {
    Registered,
    /// The last error.
    Failed(Arc<str>),
}

impl Default for StorageVersionBarrier {
    fn default() -> Self {
        Self(Arc::new(Barrier {
            is_closed: AtomicBool::new(false),
            opened: watch::Sender::new(true),
            was_closed: AtomicBool::new(false),
            places: Mutex::default(),
        }))
    }
}

impl StorageVersionBarrier {
    /// Closes it. The server's health checks fail until it is opened. Call it before requests are
    /// served.
    pub fn close(&self) {
        self.0.was_closed.store(true, Ordering::Relaxed);
        self.0.is_closed.store(true, Ordering::Relaxed);
        _ = self.0.opened.send_replace(false);
    }

    /// What is stored below a prefix of keys ([`Resource::storage_prefix`]) is registered: writes
    /// of these resources pass from now on.
    pub fn registered(&self, storage_prefix: Arc<str>) {
        self.0.places.lock().insert(storage_prefix, Place::Registered);
    }

    /// The same could not be registered; refused users read the error. What is registered already
    /// remains so.
    pub fn failed(&self, storage_prefix: Arc<str>, error: &str) {
        let mut places = self.0.places.lock();
        if !matches!(places.get(&storage_prefix), Some(Place::Registered)) {
            places.insert(storage_prefix, Place::Failed(error.into()));
        }
    }

    /// Opens it: everything is registered.
    pub fn open(&self) {
        self.0.is_closed.store(false, Ordering::Relaxed);
        _ = self.0.opened.send_replace(true);
    }

    /// Whether it is open, now and later.
    pub fn opened(&self) -> watch::Receiver<bool> {
        self.0.opened.subscribe()
    }

    /// For the health check of its name: whether it is open; `None` if it never was closed.
    pub(crate) fn health(&self) -> Option<bool> {
        let has_check = self.0.was_closed.load(Ordering::Relaxed);
        has_check.then(|| !self.0.is_closed.load(Ordering::Relaxed))
    }

    /// Checks a request.
    ///
    /// # Errors
    ///
    /// 503 if it is a write that has to wait.
    pub(crate) fn check(&self, request: &Attributes) -> Result<(), ApiError> {
        if !self.0.is_closed.load(Ordering::Relaxed) {
            return Ok(());
        }
        match &request.requested {
            Requested::Resource(target) if !passes(request, target) => {
                self.check_resource(&target.resource)
            }
            _ => Ok(()),
        }
    }

    fn check_resource(&self, resource: &Resource) -> Result<(), ApiError> {
        let last = match self.0.places.lock().get(&resource.storage_prefix) {
            Some(Place::Registered) => return Ok(()),
            Some(Place::Failed(error)) => Some(error.clone()),
            None => None,
        };
        let message = format!(
            "wait for storage version registration to complete for resource: {}, last seen error: {}",
            resource.group_resource(),
            last.as_deref().unwrap_or("<nil>"),
        );
        Err(ApiError::new(503, Reason::ServiceUnavailable, message))
    }
}

/// Whether a request need not wait.
fn passes(request: &Attributes, target: &Target) -> bool {
    let row = &target.resource;
    if request.verb.is_read_only() || !row.is_stored_built_in() {
        return true;
    }
    match (&*row.gvk.group, &*row.resource) {
        ("internal.apiserver.k8s.io", "storageversions") => true,
        // The Leases of servers, without which their entries in StorageVersions are removed.
        ("coordination.k8s.io", "leases") => target.namespace == SYSTEM,
        // That of the Leases.
        ("", "namespaces") => request.verb == Verb::Create && request.identity.is_loopback(),
        _ => false,
    }
}
