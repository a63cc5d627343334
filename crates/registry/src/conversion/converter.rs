//! Converts the objects of a definition to one served version.
use super::check::{self, Wrong};
use super::single_flight::{Found, Lookup, Name, SingleFlight};
use super::{
    BATCH_BYTES_MAX, BATCH_OBJECTS_MAX, BATCHES_MAX, CALL_TIMEOUT, CALLS_MAX, Conversion,
    ConversionError, ConversionRequest,
};
use crate::catalog::{Resource, Schema, too_large};
use crate::convert;
use crate::threads::Threads;
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use setpoint_object::skim::Skim;
use setpoint_object::{ApiError, GroupKind, bounded};
use setpoint_schema::default;
use setpoint_schema::encode::to_bytes;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use tokio::sync::Semaphore;

/// Objects, and bytes of those that are brought up to date, that are looked up before yielding:
/// about a millisecond.
const SLICE_OBJECTS: usize = 512;
const SLICE_BYTES: usize = 64 << 10;

/// Maximum bytes of the text of a failure; a longer one is cut.
const TEXT_BYTES_MAX: usize = 64 << 10;

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
pub(super) struct Target {
    pub(super) kind: GroupKind,
    pub(super) api_version: String,
    pub(super) schema: Schema,
}
impl Target {
    /// The version that a row serves.
    fn served(row: &Resource) -> Arc<Self> {
        let api_version = row.group_version().to_string();
        Arc::new(Self { kind: row.group_kind(), api_version, schema: row.schema.clone() })
    }
}

/// Converts the objects of one definition to one version. See the theory of [`super`].
#[derive(Debug)]
pub(crate) struct Converter {
    conversion: Arc<dyn Conversion>,
    /// Limits concurrent calls.
    calls: Semaphore,
    /// For long objects.
    threads: Threads,
    single_flight: SingleFlight,
}
impl Converter {
    pub(super) fn new(conversion: Arc<dyn Conversion>, threads: Threads) -> Self {
        Self {
            conversion,
            calls: Semaphore::new(CALLS_MAX),
            threads,
            single_flight: SingleFlight::default(),
        }
    }
    /// The threads for work on long objects.
    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
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
        row: &Arc<Resource>,
        objects: &[ObjectVersion],
    ) -> Result<Vec<Bytes>, ApiError> {
        let mut served: Vec<Option<Bytes>> = Vec::with_capacity(objects.len());
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let (mut n_bytes, mut n_refreshed) = (0, 0);
        for (idx, object) in objects.iter().enumerate() {
            let converted = match convert::is_version(&object.value, row) {
                true => Some(self.refreshed(row, object, &mut n_refreshed).await?),
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
        row: &Arc<Resource>,
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
        self.show_all(row, vec![object.clone()]).await?.pop().ok_or_else(nothing)
    }
    /// The same for the few objects of a request, all of other versions, with one call.
    ///
    /// # Errors
    ///
    /// As [`Converter::serve`].
    pub(crate) async fn show_all(
        &self,
        row: &Resource,
        objects: Vec<Bytes>,
    ) -> Result<Vec<Bytes>, ApiError> {
        self.call(&Target::served(row), objects, encoded).await
    }

    /// [`convert::refreshed`] in slices: `n_bytes` counts. A long object is brought up to date on
    /// another thread.
    async fn refreshed(
        &self,
        row: &Arc<Resource>,
        object: &ObjectVersion,
        n_bytes: &mut usize,
    ) -> Result<Bytes, ApiError> {
        if convert::is_up_to_date(row, object.revision) {
            return Ok(object.value.clone());
        }
        let refresh = {
            let (row, object) = (row.clone(), object.clone());
            async move { convert::refreshed(&row, &object.value, object.revision) }
        };
        let refreshed = self.threads.run_if(object.value.len() > SLICE_BYTES, refresh).await??;
        *n_bytes += object.value.len();
        if *n_bytes > SLICE_BYTES {
            *n_bytes = 0;
            tokio::task::yield_now().await;
        }
        Ok(refreshed)
    }

    /// One batch of objects of other versions: converts those that are not being converted, and
    /// waits for the others.
    async fn batch(
        &self,
        row: &Arc<Resource>,
        objects: &[ObjectVersion],
        batch: &[usize],
    ) -> Result<Vec<Bytes>, ApiError> {
        let target = Target::served(row);
        let mut n_refreshed = 0;
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
                let answer = async {
                    let mut sent = Vec::with_capacity(mine.len());
                    for n in &mine {
                        let object = &objects[batch[*n]];
                        sent.push(self.refreshed(row, object, &mut n_refreshed).await?);
                    }
                    self.call(&target, sent, encoded).await
                };
                match answer.await {
                    Ok(answers) => {
                        for (n, answer) in mine.iter().zip(answers) {
                            served[*n] = Some(answer);
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
        let schema = row.stored.as_ref().map_or(&row.schema, |stored| &stored.schema).clone();
        let (kind, api_version) = (row.group_kind(), version.to_string());
        let target = Arc::new(Target { kind, api_version, schema: schema.clone() });
        // Every read of the object shows the defaults of the storage version.
        let filled = move |mut stored: Value| match default::apply(&schema, &mut stored) {
            Ok(()) => Ok(stored),
            Err(error) => Err(too_large(error)),
        };
        let mut answer = self.call(&target, vec![to_bytes(tree)], filled).await?;
        answer.pop().ok_or_else(nothing)?
    }

    /// Converts objects. Returns what `finish` makes of them, in the same order.
    async fn call<T: Send + 'static>(
        &self,
        target: &Arc<Target>,
        sent: Vec<Bytes>,
        finish: impl Fn(Value) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, ApiError> {
        let failed = |first: Option<&Bytes>, text: String| {
            let skim = first.and_then(|first| Skim::of(first).ok()).unwrap_or_default();
            let (version, kind) = (skim.api_version, &target.kind.kind);
            // What an answer has, or is, may be in the text.
            let text = bounded::text(text, TEXT_BYTES_MAX);
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
        let checked = check::answer(target, &self.threads, &sent, converted, finish).await;
        checked.map_err(|wrong| match wrong {
            Wrong::Answer(text) => failed(sent.first(), text),
            Wrong::Undecodable(text) => ApiError::unclassified(bounded::text(text, TEXT_BYTES_MAX)),
        })
    }
}

fn encoded(tree: Value) -> Bytes {
    to_bytes(&tree)
}

/// Cannot happen: [`check`] has compared the number of objects.
fn nothing() -> ApiError {
    ApiError::internal("a conversion without an object")
}
