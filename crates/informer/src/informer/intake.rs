//! Converts objects into the form in which the cache stores them.
use crate::failure::Panics;
use crate::indexer::Lister;
use crate::intake::{Intake, ObjectError};
use crate::key::Key;
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
    panics: Panics,
    /// The cache that the objects go to.
    cache: Lister<Untyped>,
    // State.
    /// The namespace of the last object, to share its text.
    namespace: Arc<str>,
    training: Training,
    /// The JSON of an object that is stored in another form.
    json: Vec<u8>,
    packed: Vec<u8>,
}

impl ObjectIntake {
    pub(super) fn new(
        resource_type: ResourceType,
        prune: Option<Prune>,
        transform: Option<Transform>,
        (pool, decoder): (Arc<Pool>, Decoder),
        panics: Panics,
        cache: Lister<Untyped>,
    ) -> Self {
        Self {
            resource_type,
            prune,
            transform,
            pool,
            decoder,
            panics,
            cache,
            namespace: Arc::from(""),
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

    /// A list is sorted by namespace, so most objects share the text of theirs.
    fn key(&mut self, arrival: &Arrival<'_>) -> Key {
        let namespace = arrival.head.namespace(arrival.bytes);
        if *namespace != *self.namespace {
            self.namespace = Arc::from(&*namespace);
        }
        Key::new(self.namespace.clone(), &*arrival.head.name(arrival.bytes))
    }
}

impl ObjectIntake {
    fn take(&mut self, arrival: &Arrival<'_>) -> Result<Raw, ObjectError> {
        let key = self.key(arrival);
        if let Some(transform) = &self.transform {
            let mut copy = Vec::new();
            let head = arrival.copy(&self.resource_type, self.prune.as_ref(), &mut copy)?;
            let version = head.resource_version(&copy).into_owned();
            let changed = self.panics.catch("the transform", &key, || transform(Bytes::from(copy)));
            let json = match changed {
                Some(changed) => changed?,
                None => {
                    // The object as it came.
                    let mut copy = Vec::new();
                    arrival.copy(&self.resource_type, self.prune.as_ref(), &mut copy)?;
                    Bytes::from(copy)
                }
            };
            let head = Head::of(&json).map_err(RecordError::from)?;
            // FIFO-25: both were read before the transform.
            if *head.name(&json) != *key.name || *head.resource_version(&json) != version {
                let what = "it changed the object's name or resourceVersion";
                return Err(TransformError(what.to_owned()).into());
            }
            return self.make(key, &json, &head);
        }
        if self.pool.policy == CachePolicy::Compact {
            let mut copy = Vec::new();
            let head = arrival.copy(&self.resource_type, self.prune.as_ref(), &mut copy)?;
            return Ok(Raw::plain(key, Bytes::from(copy), &head, Some(self.pool.clone())));
        }
        let mut json = std::mem::take(&mut self.json);
        let made = arrival
            .copy(&self.resource_type, self.prune.as_ref(), &mut json)
            .map_err(ObjectError::from)
            .and_then(|head| self.make(key, &json, &head));
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
