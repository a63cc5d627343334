//! What a policy sees of a request, and where its expressions run.
use crate::admission::Review;
use crate::admission::matching::{self, Matched};
use crate::admission::question::{Questions, ROUNDS_MAX};
use crate::admission::subject::Subject;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupResource, GroupVersionResource};
use std::borrow::Cow;
use std::sync::Arc;

/// The variables of a policy. Absent objects are null.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) request: Value,
    pub(super) object: Value,
    pub(super) old: Value,
    pub(super) namespace: Arc<Value>,
    pub(super) questions: Arc<Questions>,
}
impl Input {
    /// In the version of `matched`.
    ///
    /// # Errors
    ///
    /// Those of the conversion.
    pub(super) async fn new(
        review: &Review<'_>,
        matched: &Matched,
        object: Option<&Value>,
        namespace: Arc<Value>,
        is_mutating: bool,
    ) -> Result<Self, ApiError> {
        let subject = Subject::new(review, matched, object, is_mutating).await?;
        let Subject { request, object, old, revision, .. } = subject;
        let questions = Arc::new(Questions::new(&request));
        let versioned = |tree: Option<Cow<'_, Value>>, revision: u64| {
            let mut tree = tree.map(Cow::into_owned).unwrap_or_default();
            if revision != 0 && tree["metadata"].is_object() {
                tree.set_meta("resourceVersion", revision.to_string().into());
            }
            tree
        };
        let (object, old) = (versioned(object, revision), versioned(old, review.revision));
        Ok(Self { request, object, old, namespace, questions })
    }
}

/// The namespace of a request; null for a cluster-scoped object and for a Namespace itself.
///
/// # Errors
///
/// 404: it is missing. Those of the store.
pub(super) async fn namespace(review: &Review<'_>) -> Result<Arc<Value>, ApiError> {
    if review.namespace.is_empty() || matching::is_namespace(review.resource) {
        return Ok(Arc::new(Value::Null));
    }
    let namespaces = GroupVersionResource::new("", "v1", "namespaces");
    match review.objects().tree(&namespaces, "", review.namespace).await? {
        Some(found) => Ok(found),
        None => {
            let resource = GroupResource { group: "".into(), resource: "namespaces".into() };
            Err(ApiError::not_found(&resource, review.namespace))
        }
    }
}

/// Where an evaluation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On the caller's thread: it must be cheap.
    Here,
    /// On a thread that may be blocked.
    There,
}

/// Runs an evaluation until the authorizer has answered all of its questions. `evaluate` returns
/// `None` if it costs too much here. Returns `None` if it asks too often.
///
/// # Errors
///
/// 500: the thread has panicked.
pub(super) async fn run<T: Send + 'static>(
    review: &Review<'_>,
    questions: &Questions,
    evaluate: impl Fn(Place) -> Option<T> + Clone + Send + 'static,
) -> Result<Option<T>, ApiError> {
    // Several cheap evaluations in a row must not hold the thread either.
    tokio::task::yield_now().await;
    let mut place = Place::Here;
    for _ in 0..ROUNDS_MAX {
        let result = match place {
            Place::Here => evaluate(place),
            Place::There => {
                let evaluate = evaluate.clone();
                review.inner.threads.run(async move { evaluate(place) }).await?
            }
        };
        match result {
            _ if questions.ask(review).await => {}
            Some(result) => return Ok(Some(result)),
            None if place == Place::There => break,
            None => place = Place::There,
        }
    }
    Ok(None)
}

/// The failure of an evaluation with too many rounds of questions for the authorizer.
pub(super) const TOO_MANY_AUTHORIZATIONS: &str = "the expressions ask the authorizer too often";
