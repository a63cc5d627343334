//! How objects enter an informer.
use crate::intake::Intake;
use crate::key::Key;
use crate::object::{AnyValue, Raw, metadata_of};
use crate::policy::CachePolicy;
use crate::pool::{Pool, Training};
use crate::record::{Arrival, RecordError};
use crate::reflector::ObjectError;
use crate::resource_type::ResourceType;
use crate::source::ListItem;
use crate::status::Panics;
use crate::transform::{Transform, TransformError};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_object::skim::SkimError;
use setpoint_object::{Head, Prune};
use std::sync::Arc;

/// A buffer that a large object has made larger than this is given back after it.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Decodes an object as the type that was asked for first; `None` when it does not fit.
pub(super) type Decoder = fn(&[u8]) -> Option<AnyValue>;

/// Gives objects the form in which a cache under a policy holds them, before they are queued. What
/// stays of an object is copied once, out of what was read into an allocation of its size.
pub(super) struct ObjectIntake {
    // Inputs.
    resource_type: ResourceType,
    prune: Option<Prune>,
    transform: Option<Transform>,
    pool: Arc<Pool>,
    /// Makes the value that [`CachePolicy::Decoded`] holds.
    decoder: Decoder,
    panics: Panics,
    // State.
    /// Of the last object that was taken in.
    namespace: Arc<str>,
    training: Training,
    /// The JSON of an object that does not stay JSON.
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
    ) -> Self {
        Self {
            resource_type,
            prune,
            transform,
            pool,
            decoder,
            panics,
            namespace: Arc::from(""),
            training: Training::default(),
            json: Vec::new(),
            packed: Vec::new(),
        }
    }

    /// A list is sorted by namespace: its objects come to share the text of theirs.
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
                    // As it came.
                    let mut copy = Vec::new();
                    arrival.copy(&self.resource_type, self.prune.as_ref(), &mut copy)?;
                    Bytes::from(copy)
                }
            };
            let head = Head::of(&json).map_err(RecordError::from)?;
            // FIFO-25: both are taken before it.
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

    /// The cached form of an object whose JSON does not stay where it is.
    fn make(&mut self, key: Key, json: &[u8], head: &Head) -> Result<Raw, ObjectError> {
        let pool = self.pool.clone();
        let partial;
        let (json, head) = match pool.policy {
            CachePolicy::Metadata => {
                let of_type = (&*self.resource_type.api_version, &*self.resource_type.kind.kind);
                // It was scanned; but a decoder looks at more.
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
        self.take(&Arrival::item(&item.bytes, item.head)?)
    }

    fn event(&mut self, object: &Bytes) -> Result<Raw, ObjectError> {
        self.take(&Arrival::event(object, &self.resource_type)?)
    }

    fn key(&mut self, object: &Bytes) -> Result<Key, ObjectError> {
        let arrival = Arrival::event(object, &self.resource_type)?;
        Ok(ObjectIntake::key(self, &arrival))
    }

    /// Makes the dictionary once there is enough to make it of. What was taken in before is packed
    /// here or, where it is not at hand, when it enters the cache.
    fn settle<'a>(&'a mut self, taken: &'a mut [Raw]) -> BoxFuture<'a, ()> {
        let is_due =
            self.pool.policy.packs() && self.pool.codec().is_none() && self.training.is_due();
        if !is_due {
            return std::future::ready(()).boxed();
        }
        Box::pin(async move {
            let codec = self.training.codec().await;
            self.pool.set_codec(codec);
            self.training = Training::default();
            for object in taken {
                if let Some(packed) = object.repacked() {
                    *object = packed;
                }
            }
        })
    }
}
