//! ResourceQuota: charges the quotas of a namespace for new and growing objects (spec: admission
//! §3).
//!
//! # Theory
//!
//! ```text
//! cached quotas ── none matches ──▶ allowed
//!      │ one matches
//!      ▼
//! turn of the namespace ──▶ quotas in the store ──▶ check ──▶ one commit: the object, `status.used`
//! ```
//!
//! - A quota is changed in the commit that stores the object, and only if it has not changed since
//!   it was read. So what is stored is never more than what was charged, and a write that fails
//!   charges nothing.
//! - Of this server's writers, one at a time charges a namespace, in the order of their requests.
//!   Those of different namespaces do not wait for each other, and nobody waits for longer than a
//!   [turn](crate::turns) may take. If two meet at the commit, as with another server, the later
//!   one decides again.
//! - Limits are those of `status.hard`, which the quota controller fills. The controller also
//!   subtracts what is deleted.
mod demand;
mod limited;
mod quota;

use super::{Admission, Operation, Review};
use crate::kind::Charged;
use crate::stored::store_error;
use crate::subresource::Subresource;
use crate::turns::{Turn, Turns};
use bytes::Bytes;
use demand::{Demand, Refusal};
use futures::FutureExt;
use futures::future::BoxFuture;
use limited::Limited;
use quota::{Known, Quota};
use serde_json::Value;
use setpoint_object::{ApiError, Reason, Scope, keys};
use setpoint_schema::encode::to_bytes;
use setpoint_store::{Compare, Op, RangeRequest, Revision};
use std::ops::Bound;

/// Maximum number of quotas of a namespace that are charged.
const QUOTAS_MAX: usize = 1000;

#[derive(Debug)]
pub(super) struct ResourceQuota {
    limited: Limited,
    /// By namespace.
    turns: Turns,
    known: Known,
}

/// What a write charges, beside its own commit.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    /// The quotas, unchanged, and their new state.
    quotas: Vec<(Compare, Op)>,
    /// The turn of the namespace, until the write has ended.
    turn: Option<Turn>,
}
impl Charges {
    pub(super) fn compares(&self) -> impl Iterator<Item = Compare> {
        self.quotas.iter().map(|(compare, _)| compare.clone())
    }
    pub(super) fn ops(&self) -> Vec<Op> {
        self.quotas.iter().map(|(_, op)| op.clone()).collect()
    }
}

impl ResourceQuota {
    /// With a ResourceQuotaConfiguration.
    pub(super) fn new(config: &Value) -> Result<Self, String> {
        Ok(Self {
            limited: Limited::new(config)?,
            turns: Turns::default(),
            known: Known::default(),
        })
    }
    async fn check(&self, review: &Review<'_>, object: &Value) -> Result<(), ApiError> {
        review.charges.lock().quotas.clear();
        let is_behind = review.preconditions.have_failed;
        let mut known = match is_behind || review.dry_run {
            true => None,
            false => Some(self.cached(review).await?),
        };
        // The usual case, and the cheapest.
        if self.limited.is_empty() && known.as_ref().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        let now = review.inner.clock.now().0.as_secs();
        let row = review.resource;
        let demand =
            Demand::new(&row.gvk.group, &row.resource, object, review.old, now, &self.limited);
        let refused = |refusal: Refusal| match refusal {
            Refusal::Forbidden(why) => review.forbidden(&why),
            Refusal::Uncovered(why) => ApiError::new(500, Reason::Unknown, why),
        };
        // Without a quota that matches, nothing has to be read from the store.
        if let Some(known) = &mut known
            && demand.is_free(known)
            && demand.charge(known).is_ok()
        {
            return Ok(());
        }
        let has_turn = review.charges.lock().turn.is_some();
        if !has_turn && !review.dry_run {
            let namespace = Bytes::copy_from_slice(review.namespace.as_bytes());
            let (turn, _) = self.turns.wait(&namespace).await;
            review.charges.lock().turn = Some(turn);
        }
        let mut quotas = self.live(review).await?;
        let charged = demand.charge(&mut quotas).map_err(refused)?;
        if review.dry_run {
            return Ok(());
        }
        let write = |i: usize| {
            let quota = &quotas[i];
            let compare = Compare::Modified(quota.key.clone(), quota.modified);
            Ok((compare, Op::Put(quota.key.clone(), to_bytes(&quota.object()?))))
        };
        let writes = charged.into_iter().map(write).collect::<Result<_, ApiError>>()?;
        let mut charges = review.charges.lock();
        charges.quotas = writes;
        if charges.quotas.is_empty() {
            charges.turn = None;
        }
        Ok(())
    }
    /// The quotas in the watch cache, which may be behind the store.
    async fn cached(&self, review: &Review<'_>) -> Result<Vec<Quota>, ApiError> {
        let inner = review.inner;
        if !inner.cache.reached().is_filled {
            return self.live(review).await;
        }
        let prefix = prefix(review.namespace);
        let (index, _) =
            inner.cache.resource(&keys::built_in_prefix("", "resourcequotas")).snapshot();
        let items = index.range(Bound::Included(&prefix[..]), Bound::Unbounded);
        let items = items.take_while(|item| item.key.starts_with(&prefix)).take(QUOTAS_MAX);
        let stored =
            items.map(|item| (item.key.clone(), item.value.clone(), Revision(item.revision)));
        self.quotas(review, stored.collect()).await
    }
    /// The quotas in the store.
    async fn live(&self, review: &Review<'_>) -> Result<Vec<Quota>, ApiError> {
        let prefix = prefix(review.namespace);
        let request = RangeRequest { limit: QUOTAS_MAX, ..RangeRequest::prefix(prefix) };
        let entries = review.inner.store.range(request).await.map_err(store_error)?.value.entries;
        let stored = entries.into_iter().map(|kv| (kv.key, kv.value, kv.modified));
        self.quotas(review, stored.collect()).await
    }
    /// Quotas of their keys, stored bytes and revisions.
    async fn quotas(
        &self,
        review: &Review<'_>,
        stored: Vec<(Bytes, Bytes, Revision)>,
    ) -> Result<Vec<Quota>, ApiError> {
        review.thread.leave_if_long(stored.iter().map(|(_, value, _)| value.len()).sum()).await;
        stored.into_iter().map(|stored| self.known.quota(stored)).collect()
    }
}

impl Admission for ResourceQuota {
    fn name(&self) -> &str {
        "ResourceQuota"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        if review.namespace.is_empty() || !review.resource.scope.is_namespaced() {
            return false;
        }
        match (review.operation, review.resource.kind.charged) {
            (_, Charged::Never) => false,
            (Operation::Create, _) => {
                let is_stored = !review.resource.storage_version_hash.is_empty();
                review.subresource.is_none() && is_stored
            }
            (Operation::Update, Charged::Updates { parts, .. }) => parts.contains(&part(review)),
            _ => false,
        }
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            match object {
                Some(object) if is_charged(review, object) => self.check(review, object).await,
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

/// The subresource that is written; empty: the object itself.
fn part<'a>(review: &Review<'a>) -> &'a str {
    review.subresource.map_or("", Subresource::as_str)
}
/// Whether a write may need more.
fn is_charged(review: &Review<'_>, object: &Value) -> bool {
    match (review.old, review.resource.kind.charged) {
        (Some(old), Charged::Updates { may_need, .. }) => may_need(part(review), object, old),
        _ => true,
    }
}
/// The keys of the quotas of a namespace.
fn prefix(namespace: &str) -> Bytes {
    let quotas = keys::built_in_prefix("", "resourcequotas");
    keys::collection(&quotas, Scope::Namespaced, namespace)
}
