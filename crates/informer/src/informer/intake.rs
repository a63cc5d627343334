//! How objects enter an informer.
use super::Cacheable;
use crate::intake::{Intake, RecordIntake};
use crate::key::Key;
use crate::object::Object;
use crate::policy::CachePolicy;
use crate::reflector::ObjectError;
use crate::source::ListItem;
use bytes::Bytes;
use std::marker::PhantomData;

/// Gives objects the form in which a cache under a policy holds them, before they are queued.
pub(super) struct ObjectIntake<K> {
    records: RecordIntake,
    policy: CachePolicy,
    object: PhantomData<fn() -> K>,
}

impl<K> ObjectIntake<K> {
    pub(super) fn new(records: RecordIntake, policy: CachePolicy) -> Self {
        Self { records, policy, object: PhantomData }
    }
}

impl<K: Cacheable> Intake<Object<K>> for ObjectIntake<K> {
    fn item(&mut self, item: &ListItem) -> Result<Object<K>, ObjectError> {
        Ok(Object::new(self.records.item(item)?, self.policy))
    }

    fn event(&mut self, object: &Bytes) -> Result<Object<K>, ObjectError> {
        Ok(Object::new(self.records.event(object)?, self.policy))
    }

    fn key(&mut self, object: &Bytes) -> Result<Key, ObjectError> {
        self.records.key(object)
    }
}
