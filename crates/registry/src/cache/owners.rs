//! Who depends on whom: an index from the uid of an owner to the objects that name it.
use super::{ObjectChange, StoredObject};
use bytes::Bytes;
use std::collections::{BTreeSet, HashMap};

/// The dependents of every owner, kept by whoever reads [`ObjectChanges`](crate::ObjectChanges).
///
/// It costs nothing for objects without owners. The server keeps none itself: it is there when
/// somebody makes one.
///
/// ```no_run
/// # async fn run(registry: setpoint_registry::Registry) {
/// let mut changes = registry.object_changes();
/// let mut owners = setpoint_registry::Owners::default();
/// while let Some(change) = changes.next().await {
///     owners.apply(&change);
///     if let setpoint_registry::ObjectChange::Deleted(object) = &change
///         && let Ok(skim) = object.skim()
///     {
///         let left: Vec<_> = owners.dependents(&skim.uid).collect();
///         println!("{} leaves {} dependents", skim.name, left.len());
///     }
/// }
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Owners {
    /// The keys of the dependents, by the owner's uid. None is empty. Nothing depends on the order
    /// of the uids.
    dependents: HashMap<Box<str>, BTreeSet<Bytes>>,
    /// The uids of the owners, by the dependent's key.
    owners: HashMap<Bytes, Vec<Box<str>>>,
}
impl Owners {
    /// Takes a change in. One that cannot be read (an encrypted value without its key) counts as an
    /// object without owners.
    pub fn apply(&mut self, change: &ObjectChange) {
        match change {
            ObjectChange::Resync => *self = Self::default(),
            ObjectChange::Synced(_) => {}
            ObjectChange::Put(object) => {
                self.forget(&object.key);
                self.insert(object);
            }
            ObjectChange::Deleted(object) => self.forget(&object.key),
        }
    }
    /// The keys of the objects that name this uid as an owner, in order.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = &Bytes> {
        self.dependents.get(uid).into_iter().flatten()
    }

    fn insert(&mut self, object: &StoredObject) {
        let Ok(skim) = object.skim() else { return };
        if skim.owner_references.is_empty() {
            return;
        }
        let uids = skim.owner_references.iter().map(|owner| Box::from(&*owner.uid));
        let uids: Vec<Box<str>> = uids.collect();
        for uid in &uids {
            self.dependents.entry(uid.clone()).or_default().insert(object.key.clone());
        }
        self.owners.insert(object.key.clone(), uids);
    }
    fn forget(&mut self, key: &Bytes) {
        for uid in self.owners.remove(key).unwrap_or_default() {
            let Some(dependents) = self.dependents.get_mut(&uid) else { continue };
            dependents.remove(key);
            if dependents.is_empty() {
                self.dependents.remove(&uid);
            }
        }
    }
}
