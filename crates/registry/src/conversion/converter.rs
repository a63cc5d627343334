//! Converts the objects of a definition to one served version.
use super::single_flight::{Found, Lookup, Name, SingleFlight};
use super::{
    BATCH_BYTES_MAX, BATCH_OBJECTS_MAX, BATCHES_MAX, CALL_TIMEOUT, CALLS_MAX, Conversion,
    ConversionError, ConversionRequest, check,
};
use crate::catalog::{Resource, too_large};
use crate::convert;
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use setpoint_object::skim::Skim;
use setpoint_object::{ApiError, GroupKind};
use setpoint_schema::default;
use setpoint_schema::encode::to_bytes;
use setpoint_schema::node::TypeSchema;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use tokio::sync::Semaphore;

/// Objects that are looked up before yielding: about a millisecond.
const SLICE_OBJECTS: usize = 512;

/// An object at a revision.
#[derive(Debug, Clone)]
pub(crate) struct ObjectVersion {
    /// Its key in the store.
    pub(crate) key: Bytes,
    pub(crate) revision: u64,
    /// As stored.
    pub(crate) value: Bytes,
}

/// The target of a conversion.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) kind: GroupKind,
    pub(super) api_version: String,
    pub(super) schema: &'a TypeSchema,
}

/// Converts the objects of one definition to one version. See the theory of [`super`].
#[derive(Debug)]
pub(crate) struct Converter {
    conversion: Arc<dyn Conversion>,
    /// Limits concurrent calls.
    calls: Semaphore,
    single_flight: SingleFlight,
}
impl Converter {
    pub(super) fn new(conversion: Arc<dyn Conversion>) -> Self {
        Self {
            conversion,
            calls: Semaphore::new(CALLS_MAX),
            single_flight: SingleFlight::default(),
        }
    }
    /// Adds another cache of converted objects: those in it are not converted again.
    pub(crate) fn look_into(&self, elsewhere: Weak<dyn Lookup>) {
        self.single_flight.look_into(elsewhere);
    }

    /// Stored objects as a row serves them, without resourceVersion, in the same order.
    ///
    /// # Errors
    ///
    /// The `Status` for the request that needs this version.
    ///
    /// If the future is dropped, the next request converts the unfinished objects.
    pub(crate) async fn serve(
        &self,
        row: &Resource,
        objects: &[ObjectVersion],
    ) -> Result<Vec<Bytes>, ApiError> {
        let mut served: Vec<Option<Bytes>> = Vec::with_capacity(objects.len());
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut n_bytes = 0;
        for (idx, object) in objects.iter().enumerate() {
            let converted = match convert::is_version(&object.value, row) {
                true => Some(convert::refreshed(row, &object.value, object.revision)?),
                false => self.single_flight.get(&object.key, object.revision),
            };
            if converted.is_none() {
                n_bytes += object.value.len();
                match batches.last_mut() {
                    Some(batch)
                        if batch.len() < BATCH_OBJECTS_MAX && n_bytes <= BATCH_BYTES_MAX =>
                    {
                        batch.push(idx);
                    }
                    _ => {
                        n_bytes = object.value.len();
                        batches.push(vec![idx]);
                    }
                }
            }
            served.push(converted);
            if idx % SLICE_OBJECTS == SLICE_OBJECTS - 1 {
                tokio::task::yield_now().await;
            }
        }
        let calls = batches.into_iter().map(|batch| async move {
            let answers = self.batch(row, objects, &batch).await?;
            Ok::<_, ApiError>(batch.into_iter().zip(answers))
        });
        let mut answers = futures::stream::iter(calls).buffered(BATCHES_MAX);
        while let Some(answer) = answers.try_next().await? {
            answer.for_each(|(idx, object)| served[idx] = Some(object));
        }
        Ok(served.into_iter().flatten().collect())
    }

    /// The same for one object.
    ///
    /// # Errors
    ///
    /// As [`Converter::serve`].
    pub(crate) async fn serve_one(
        &self,
        row: &Resource,
        object: ObjectVersion,
    ) -> Result<Bytes, ApiError> {
        let served = self.serve(row, &[object]).await?.pop();
        served.ok_or_else(nothing)
    }
    /// An object without a revision, as a row serves it. The result is not cached.
    ///
    /// # Errors
    ///
    /// As [`Converter::serve`].
    pub(crate) async fn show(&self, row: &Resource, object: &Bytes) -> Result<Bytes, ApiError> {
        if convert::is_version(object, row) {
            return Ok(object.clone());
        }
        let api_version = row.group_version().to_string();
        let target = Target { kind: row.group_kind(), api_version, schema: &row.schema };
        let shown = self.call(&target, vec![object.clone()]).await?.pop();
        shown.map(|shown| to_bytes(&shown)).ok_or_else(nothing)
    }

    /// One batch of objects of other versions: converts those that are not being converted, and
    /// waits for the others.
    async fn batch(
        &self,
        row: &Resource,
        objects: &[ObjectVersion],
        batch: &[usize],
    ) -> Result<Vec<Bytes>, ApiError> {
        let api_version = row.group_version().to_string();
        let target = Target { kind: row.group_kind(), api_version, schema: &row.schema };
        let mut served: Vec<Option<Bytes>> = vec![None; batch.len()];
        loop {
            let missing: Vec<usize> = (0..batch.len()).filter(|n| served[*n].is_none()).collect();
            if missing.is_empty() {
                return Ok(served.into_iter().flatten().collect());
            }
            let name = |n: usize| -> Name {
                let object = &objects[batch[n]];
                (object.key.clone(), object.revision)
            };
            let (found, claim) = self.single_flight.claim(missing.iter().map(|n| name(*n)));
            let (mut mine, mut flights) = (Vec::new(), Vec::new());
            for (n, found) in missing.into_iter().zip(found) {
                match found {
                    Found::Converted(object) => served[n] = Some(object),
                    Found::Claimed => mine.push(n),
                    Found::InFlight(flight) => flights.push(flight),
                }
            }
            if !mine.is_empty() {
                let sent: Result<Vec<Bytes>, ApiError> = mine
                    .iter()
                    .map(|n| &objects[batch[*n]])
                    .map(|object| convert::refreshed(row, &object.value, object.revision))
                    .collect();
                let answer = match sent {
                    Ok(sent) => self.call(&target, sent).await,
                    Err(error) => Err(error),
                };
                match answer {
                    Ok(trees) => {
                        for (n, tree) in mine.iter().zip(trees) {
                            served[*n] = Some(to_bytes(&tree));
                        }
                        let here = |n: &usize| served[*n].clone().map(|object| (name(*n), object));
                        claim.complete(mine.iter().filter_map(here));
                    }
                    Err(error) => {
                        claim.fail(&error);
                        return Err(error);
                    }
                }
            }
            for flight in flights {
                flight.wait().await?;
            }
        }
    }

    /// A tree in the storage version. The result is not cached.
    ///
    /// # Errors
    ///
    /// As [`Converter::serve`].
    pub(crate) async fn store(&self, row: &Resource, tree: &Value) -> Result<Value, ApiError> {
        let mut version = row.group_version();
        version.version = row.storage_version.clone();
        let schema = row.stored.as_ref().map_or(&row.schema, |stored| &stored.schema);
        let target = Target { kind: row.group_kind(), api_version: version.to_string(), schema };
        let mut answer = self.call(&target, vec![to_bytes(tree)]).await?;
        let mut stored = answer.pop().ok_or_else(nothing)?;
        // Every read of the object shows the defaults of the storage version.
        default::apply(schema, &mut stored).map_err(too_large)?;
        Ok(stored)
    }

    async fn call(&self, target: &Target<'_>, sent: Vec<Bytes>) -> Result<Vec<Value>, ApiError> {
        let failed = |first: Option<&Bytes>, text: String| {
            let skim = first.and_then(|first| Skim::of(first).ok()).unwrap_or_default();
            let (version, kind) = (skim.api_version, &target.kind.kind);
            // As the reference's: without a reason.
            ApiError::unclassified(format!("conversion webhook for {version}, Kind={kind} {text}"))
        };
        let permit = self.calls.acquire().await;
        let objects = sent.clone();
        let (kind, api_version) = (target.kind.clone(), target.api_version.clone());
        let request = ConversionRequest { kind, api_version, objects };
        // Code of the embedder: a panic counts as an error. No state of ours is left half done.
        let conversion = async { self.conversion.convert(request).await };
        let answer = AssertUnwindSafe(conversion).catch_unwind();
        let converted = match tokio::time::timeout(CALL_TIMEOUT, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ConversionError::Refused("the converter panicked".to_owned())),
            Err(_) => Err(ConversionError::Timeout(CALL_TIMEOUT)),
        };
        drop(permit);
        let converted =
            converted.map_err(|error| failed(sent.first(), format!("failed: {error}")))?;
        check::answer(target, &sent, converted).await.map_err(|text| failed(sent.first(), text))
    }
}

/// Cannot happen: [`check`] has compared the number of objects.
fn nothing() -> ApiError {
    ApiError::internal("a conversion without an object")
}
