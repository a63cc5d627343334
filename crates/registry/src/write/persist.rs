//! Commits encoded objects to the store: keys, compare-and-commit, size limits, and the API errors
//! for the store's errors.
use super::Write;
use crate::allocate::Claims;
use crate::catalog::Fence;
use crate::latency::Layer;
use crate::request::Object;
use crate::routed::Target;
use crate::stored::store_error;
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, encode};
use setpoint_schema::encode::to_bytes;
use setpoint_store::{Committed, Compare, KeyValue, Op, Revision, StoreError, Txn};
use tokio::time::Instant;

/// The refusal of a write whose definition has changed in the meantime. [`super::retry`] retries
/// it; if that takes too long, clients retry it.
fn superseded() -> ApiError {
    let text = "the definition of the resource has changed while it was written, please try again";
    ApiError::too_many_requests(text, 1)
}

/// The outcome of a commit.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Committed at this revision.
    Done(Revision),
    /// The key or a claim has changed: the key's present state.
    Lost(Option<KeyValue>),
}

/// The outcome of the commit of a new object.
#[derive(Debug)]
pub(super) enum Created {
    /// Committed at this revision.
    Done(Revision),
    /// The key has an object.
    Exists(KeyValue),
    /// A claim has changed.
    Claimed,
    /// A precondition failed: the caller must decide again from the present state.
    Moved,
}

/// An answer made from stored bytes.
pub(super) fn served(stored: &[u8], revision: Revision) -> Object {
    Object { bytes: encode::with_resource_version(stored, revision.0) }
}

impl Write<'_> {
    /// The key of the target with the given name, which may be a generated one.
    pub(super) fn key(&self, name: &str) -> Bytes {
        self.resource.key(&self.target.namespace, name)
    }
    /// Stores `object` if the key is unchanged since `expected` (`None`: absent), and updates
    /// `claims` in the same revision. If only the claims have changed, returns the key's state as
    /// expected. Returns the stored bytes.
    ///
    /// If an object exceeds the store's size limit, retries once without its managedFields
    /// (`spare`), as the API does except for apply. `object` may have them beside it.
    pub(super) async fn put(
        &self,
        key: Bytes,
        expected: Option<Revision>,
        encoded: Bytes,
        object: &mut Value,
        spare: bool,
        claims: &Claims,
    ) -> Result<(Outcome, Bytes), ApiError> {
        let put = self.put_if(key, expected, encoded, object, spare, (claims, &[]));
        put.await.map(|(committed, bytes)| (outcome(committed), bytes))
    }
    /// Stores a new object if its key is absent and the preconditions hold; otherwise as
    /// [`Write::put`].
    pub(super) async fn put_new(
        &self,
        key: Bytes,
        encoded: Bytes,
        object: &mut Value,
        spare: bool,
        claims: &Claims,
        preconditions: &[Compare],
    ) -> Result<(Created, Bytes), ApiError> {
        let put = self.put_if(key, None, encoded, object, spare, (claims, preconditions));
        let (committed, bytes) = put.await?;
        let created = match committed {
            Committed::Done(revision) => Created::Done(revision),
            Committed::Refused { found, .. } => {
                let mut found = found.into_iter();
                match found.next().flatten() {
                    Some(present) => Created::Exists(present),
                    // The store answers in the order of the compares.
                    None if preconditions.iter().zip(found).all(|(c, f)| holds(c, &f)) => {
                        Created::Claimed
                    }
                    None => Created::Moved,
                }
            }
        };
        Ok((created, bytes))
    }
    async fn put_if(
        &self,
        key: Bytes,
        expected: Option<Revision>,
        encoded: Bytes,
        object: &mut Value,
        spare: bool,
        beside: (&Claims, &[Compare]),
    ) -> Result<(Committed, Bytes), ApiError> {
        let committed = match self.commit(key.clone(), expected, encoded.clone(), beside).await {
            Err(StoreError::TooLarge { .. }) if spare => {
                object.set_meta("managedFields", Value::Null);
                let encoded = to_bytes(object);
                let committed = self.commit(key, expected, encoded.clone(), beside).await;
                (committed.map_err(store_error)?, encoded)
            }
            // Whatever is there, its name is taken.
            Err(StoreError::Unreadable { key: present, .. })
                if expected.is_none() && present.as_bytes() == key =>
            {
                let resource = self.resource.group_resource();
                return Err(ApiError::already_exists(&resource, object.name()));
            }
            committed => (committed.map_err(store_error)?, encoded),
        };
        match committed {
            (Some(committed), encoded) => Ok((committed, encoded)),
            (None, _) => Err(superseded()),
        }
    }
    /// `None`: the row that the object was prepared with is no longer served.
    async fn commit(
        &self,
        key: Bytes,
        expected: Option<Revision>,
        value: Bytes,
        (claims, preconditions): (&Claims, &[Compare]),
    ) -> Result<Option<Committed>, StoreError> {
        let mut compares = vec![match expected {
            Some(revision) => Compare::Modified(key.clone(), revision),
            None => Compare::Absent(key.clone()),
        }];
        compares.extend_from_slice(preconditions);
        let fence = self.resource.stored.as_ref().map(|stored| &stored.fence);
        compares.extend(fence.map(Fence::compare));
        let ttl = self.resource.kind.expires.then_some(self.inner.event_ttl);
        let txn = with(claims, Txn { compares, ops: vec![Op::Put(key, value)], ttl });
        let committed = self.commit_txn(txn).await?;
        if let (Some(fence), Committed::Refused { found, .. }) = (fence, &committed) {
            let is_there = |kv: &KeyValue| kv.modified == fence.revision;
            // The store answers in the order of the compares: the key, the preconditions, the
            // fence.
            let found = found.get(1 + preconditions.len()).and_then(Option::as_ref);
            if !found.is_some_and(is_there) {
                self.at_fence.moved(found.map(|kv| kv.modified));
                return Ok(None);
            }
        }
        Ok(Some(committed))
    }
    /// Removes a key that is unchanged since `expected`, and updates `claims`.
    pub(super) async fn remove(
        &self,
        key: Bytes,
        expected: Revision,
        claims: &Claims,
    ) -> Result<Outcome, ApiError> {
        let txn = Txn {
            compares: vec![Compare::Modified(key.clone(), expected)],
            ops: vec![Op::Delete(key)],
            ttl: None,
        };
        let txn = with(claims, txn);
        Ok(outcome(self.commit_txn(txn).await.map_err(store_error)?))
    }
    /// Removes an object in whatever state it is.
    pub(super) async fn remove_unread(&self, key: Bytes) -> Result<(), ApiError> {
        let txn = Txn { ops: vec![Op::Delete(key)], ..Txn::default() };
        self.commit_txn(txn).await.map(|_| ()).map_err(store_error)
    }
    /// Commits, and records the origin of the change.
    async fn commit_txn(&self, txn: Txn) -> Result<Committed, StoreError> {
        self.at_fence.commit();
        let span = self.attributes.span("Commit");
        if let Some(span) = &span {
            span.set_text("group", self.attributes.group());
            span.set_text("resource", self.attributes.resource());
            span.set("size", txn.ops.iter().map(op_bytes).sum::<usize>());
        }
        let begun = Instant::now();
        let committed = self.inner.store.commit(txn).await;
        self.attributes.took(Layer::Store, begun.elapsed());
        if let (Some(span), Err(_)) = (&span, &committed) {
            span.fail();
        }
        drop(span);
        let committed = committed?;
        if let (Committed::Done(revision), Some(origin)) = (&committed, &self.attributes.origin) {
            self.inner.origins.note(*revision, origin.clone());
        }
        Ok(committed)
    }
    /// The 404 of the target.
    pub(super) fn not_found(&self) -> ApiError {
        not_found(self.target)
    }
}
/// The bytes that an operation stores.
fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Put(_, value) => value.len(),
        Op::Delete(_) => 0,
    }
}
/// Checks that a target has a namespace, if its resource has namespaces. A path may lack it.
pub(super) fn check_namespace(target: &Target) -> Result<(), ApiError> {
    match target.resource.scope.is_namespaced() && target.namespace.is_empty() {
        true => Err(ApiError::bad_request("Namespace parameter required.")),
        false => Ok(()),
    }
}
/// The 404 of a target.
pub(super) fn not_found(target: &Target) -> ApiError {
    ApiError::not_found(&target.resource.group_resource(), &target.name)
}
fn with(claims: &Claims, mut txn: Txn) -> Txn {
    txn.compares.extend_from_slice(&claims.compares);
    txn.ops.extend_from_slice(&claims.ops);
    txn
}
/// Whether a compare holds for the returned state.
fn holds(compare: &Compare, found: &Option<KeyValue>) -> bool {
    match (compare, found) {
        (Compare::Absent(_), found) => found.is_none(),
        (Compare::Modified(_, revision), Some(found)) => found.modified == *revision,
        (Compare::Modified(..), None) => false,
    }
}
fn outcome(committed: Committed) -> Outcome {
    match committed {
        Committed::Done(revision) => Outcome::Done(revision),
        Committed::Refused { found, .. } => Outcome::Lost(found.into_iter().next().flatten()),
    }
}
