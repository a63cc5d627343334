//! Converts objects into the form in which the cache stores them.
use crate::failure::Failures;
use crate::indexer::Lister;
use crate::intake::{Intake, ObjectError};
use crate::key::{Key, Namespaces};
use crate::object::{AnyValue, Pool, Raw, Training, Untyped, metadata_of};
use crate::policy::CachePolicy;
use crate::record::{Arrival, RecordError};
use crate::resource_type::ResourceType;
use crate::source::ListItem;
use crate::transform::{Transform, TransformError};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_object::skim::SkimError;
use setpoint_object::{Head, Prune};
use std::sync::Arc;

/// A buffer that has grown beyond this is freed.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Decodes an object as the informer's first type; `None` if it does not fit.
pub(super) type Decoder = fn(&[u8]) -> Option<AnyValue>;

/// Converts objects before they are queued. Copies the stored part of an object once, from the read
/// buffer into an allocation of its size. An object of a list that the cache holds in the same
/// version is not copied at all.
pub(super) struct ObjectIntake {
    // Inputs.
    resource_type: ResourceType,
    prune: Option<Prune>,
    transform: Option<Transform>,
    pool: Arc<Pool>,
    /// Makes the values of [`CachePolicy::Decoded`].
    decoder: Decoder,
    failures: Failures,
    /// The cache that the objects go to.
    cache: Lister<Untyped>,
    // State.
    namespaces: Namespaces,
    training: Training,
    /// The JSON of an object that is stored in another form, or pruned.
    json: Vec<u8>,
    packed: Vec<u8>,
}

impl ObjectIntake {
    pub(super) fn new(
        resource_type: ResourceType,
        prune: Option<Prune>,
        transform: Option<Transform>,
        (pool, decoder): (Arc<Pool>, Decoder),
        failures: Failures,
        cache: Lister<Untyped>,
    ) -> Self {
        Self {
            resource_type,
            prune,
            transform,
            pool,
            decoder,
            failures,
            cache,
            namespaces: Namespaces::default(),
            training: Training::default(),
            json: Vec::new(),
            packed: Vec::new(),
        }
    }

    /// The cached object, if it is this version.
    fn cached(&self, arrival: &Arrival<'_>) -> Option<Raw> {
        let Arrival { bytes, head } = arrival;
        let version = (&*head.uid(bytes), &*head.resource_version(bytes));
        self.cache.version(&head.namespace(bytes), &head.name(bytes), version)
    }

    fn key(&mut self, arrival: &Arrival<'_>) -> Key {
        let namespace = self.namespaces.share(&arrival.head.namespace(arrival.bytes));
        Key::new(namespace, &*arrival.head.name(arrival.bytes))
    }
}

impl ObjectIntake {
    fn take(&mut self, arrival: &Arrival<'_>) -> Result<Raw, ObjectError> {
        let key = self.key(arrival);
        if let Some(transform) = self.transform.clone() {
            let (copy, head) = self.copy(arrival)?;
            let version = head.resource_version(&copy).into_owned();
            let before = copy.clone();
            let changed = self.failures.catch("the transform", &key, || transform(copy));
            // After a panic the object as it came.
            let json = changed.unwrap_or(Ok(before))?;
            let head = Head::of(&json).map_err(RecordError::from)?;
            // FIFO-25: both were read before the transform.
            if *head.name(&json) != *key.name || *head.resource_version(&json) != version {
                let what = "it changed the object's name or resourceVersion";
                return Err(TransformError(what.to_owned()).into());
            }
            return self.make(key, &json, &head);
        }
        if self.pool.policy == CachePolicy::Compact {
            let (copy, head) = self.copy(arrival)?;
            return Ok(Raw::plain(key, copy, &head, Some(self.pool.clone())));
        }
        self.with_json(arrival, |intake, json, head| intake.make(key, json, head))
    }

    /// A copy of the stored part of an object, in an allocation of its size. (Pruning in place
    /// would leave holes between objects that no later object fits into.)
    fn copy(&mut self, arrival: &Arrival<'_>) -> Result<(Bytes, Head), ObjectError> {
        if self.prune.is_some() {
            return self
                .with_json(arrival, |_, json, head| Ok((Bytes::copy_from_slice(json), *head)));
        }
        let mut copy = Vec::new();
        let head = arrival.copy(&self.resource_type, None, &mut copy)?;
        Ok((Bytes::from(copy), head))
    }

    /// Calls a function with the stored part of an object, in a buffer that is used again.
    fn with_json<T>(
        &mut self,
        arrival: &Arrival<'_>,
        make: impl FnOnce(&mut Self, &[u8], &Head) -> Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        let mut json = std::mem::take(&mut self.json);
        let made = arrival
            .copy(&self.resource_type, self.prune.as_ref(), &mut json)
            .map_err(ObjectError::from)
            .and_then(|head| make(self, &json, &head));
        if json.capacity() <= SCRATCH_BYTES_MAX {
            self.json = json;
        }
        made
    }

    /// The stored form of an object.
    fn make(&mut self, key: Key, json: &[u8], head: &Head) -> Result<Raw, ObjectError> {
        let pool = self.pool.clone();
        let partial;
        let (json, head) = match pool.policy {
            CachePolicy::Metadata => {
                let of_type = (&*self.resource_type.api_version, &*self.resource_type.kind.kind);
                // The scan has passed, but a decoder checks more.
                let broken = SkimError { at: 0, what: "text that is not JSON" };
                partial = metadata_of(json, of_type).ok_or(RecordError::Malformed(broken))?;
                (&partial.0[..], &partial.1)
            }
            _ => (json, head),
        };
        if pool.policy.packs()
            && let Some(codec) = self.pool.codec()
        {
            let object = Raw::packed(key, json, head, pool, codec, &mut self.packed);
            if self.packed.capacity() > SCRATCH_BYTES_MAX {
                self.packed = Vec::new();
            }
            return Ok(object);
        }
        if pool.policy == CachePolicy::Decoded
            && let Some(value) = (self.decoder)(json)
        {
            let ids = (&*head.uid(json), &*head.resource_version(json));
            return Ok(Raw::decoded(key, value, ids, pool));
        }
        let json = Bytes::copy_from_slice(json);
        if pool.policy.packs() {
            self.training.add(&json);
        }
        Ok(Raw::plain(key, json, head, Some(pool)))
    }
}

impl Intake<Raw> for ObjectIntake {
    fn item(&mut self, item: &ListItem) -> Result<Raw, ObjectError> {
        let arrival = Arrival::item(&item.bytes, item.head)?;
        self.cached(&arrival).map_or_else(|| self.take(&arrival), Ok)
    }

    fn initial_event(&mut self, object: &Bytes) -> Result<Raw, ObjectError> {
        let arrival = Arrival::event(object, &self.resource_type)?;
        self.cached(&arrival).map_or_else(|| self.take(&arrival), Ok)
    }

    fn event(&mut self, object: &Bytes) -> Result<Raw, ObjectError> {
        self.take(&Arrival::event(object, &self.resource_type)?)
    }

    fn key(&mut self, object: &Bytes) -> Result<Key, ObjectError> {
        let arrival = Arrival::event(object, &self.resource_type)?;
        Ok(ObjectIntake::key(self, &arrival))
    }

    /// Trains the dictionary once there are enough samples. Objects that were converted before are
    /// packed when they are stored.
    fn settle(&mut self) -> BoxFuture<'_, ()> {
        let is_due =
            self.pool.policy.packs() && self.pool.codec().is_none() && self.training.is_due();
        if !is_due {
            return std::future::ready(()).boxed();
        }
        Box::pin(async move {
            let codec = self.training.codec().await;
            self.pool.set_codec(codec);
            self.training = Training::default();
        })
    }
}
