//! Creates and deletes pods for their controllers, with events.

use super::pod::Pod;
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::params::{DeleteParams, Preconditions};
use kube_core::{ApiResource, DynamicObject};
use serde_json::{Map, Value, json};
use setpoint_object::error::chain;
use setpoint_object::name::dns1123_subdomain;
use setpoint_runtime::{
    Client, ClientError, Context, EventRecorder, ObjectReference, Request, Timestamp,
};
use std::error::Error;
use std::time::Duration;

/// The condition of a pod that is to leave its node.
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// The most pods that one pass creates or deletes: 500, as in the reference.
pub(crate) const BURST_MAX: usize = 500;

/// How long a key rests for each pod that its pass looked at: 20 µs, which is many times what the
/// look takes.
const REST_PER_POD: Duration = Duration::from_micros(20);
/// Below this many pods a pass costs nothing, and the key does not rest.
const REST_PODS_MIN: usize = 100;
/// The longest rest, of 50,000 pods.
const REST_MAX: Duration = Duration::from_secs(1);

/// How long a key rests after a pass over this many pods. Each of them changes several times while
/// it starts; without a rest there would be a pass per change, and all changes would cost the
/// square of their number.
pub(crate) fn rest(n_pods: usize) -> Duration {
    if n_pods < REST_PODS_MIN {
        return Duration::ZERO;
    }
    REST_PER_POD.saturating_mul(u32::try_from(n_pods).unwrap_or(u32::MAX)).min(REST_MAX)
}

/// Creates and deletes the pods of one owner.
pub(crate) struct PodControl<'a> {
    client: &'a Client,
    recorder: &'a EventRecorder,
    owner: &'a ObjectReference,
}

impl<'a> PodControl<'a> {
    /// For pods of `owner`, on which events are recorded.
    pub(crate) fn new(
        context: &'a Context,
        client: &'a Client,
        owner: &'a ObjectReference,
    ) -> Self {
        Self { client, recorder: context.recorder(), owner }
    }

    /// Creates a pod. A pod of a namespace that is being deleted is not an error.
    pub(crate) async fn create(&self, pod: &DynamicObject) -> Result<(), ClientError> {
        let created = self.client.api_with::<DynamicObject>(pods()).create(pod).await;
        match created {
            Ok(created) => {
                let name = created.metadata.name.unwrap_or_default();
                let note = format!("Created pod: {name}");
                self.recorder.normal(self.owner, "SuccessfulCreate", note);
                Ok(())
            }
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            Err(error) => {
                let note = format!("Error creating: {}", message(&error));
                self.recorder.warning(self.owner, "FailedCreate", note);
                Err(error)
            }
        }
    }

    /// Deletes a pod, unless another one has its name now. A pod that is gone is no error. A
    /// conflict is one: it does not say whether another pod has the name, so the pass is repeated.
    pub(crate) async fn delete(&self, pod: &Pod) -> Result<(), ClientError> {
        let key = Request::new(pod.metadata.namespace.as_deref().unwrap_or_default(), pod.name());
        match self.client.api::<Pod>().delete(&key, &precondition(pod.uid())).await {
            Ok(()) => {
                let note = format!("Deleted pod: {}", pod.name());
                self.recorder.normal(self.owner, "SuccessfulDelete", note);
                Ok(())
            }
            Err(error) if error.is_conflict() => Err(error),
            Err(error) => {
                let note = format!("Error deleting: {}", message(&error));
                self.recorder.warning(self.owner, "FailedDelete", note);
                Err(error)
            }
        }
    }

    /// Deletes pods, all at once. Returns the first error.
    pub(crate) async fn delete_all(&self, pods: &[&Pod]) -> Result<(), ClientError> {
        let deleted = join_all(pods.iter().map(|pod| self.delete(pod))).await;
        deleted.into_iter().collect()
    }
}

/// Deletion of the object with this uid only.
pub(crate) fn precondition(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// The condition `DisruptionTarget` of a pod, for a patch: `cause` is its reason and its message.
pub(crate) fn disruption_target(
    pod: &ObjectMeta,
    status: &str,
    cause: Option<(&str, &str)>,
    now: Timestamp,
) -> Value {
    let (reason, message) = cause.unzip();
    json!({
        "type": DISRUPTION_TARGET, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now.rfc3339(), "observedGeneration": pod.generation,
    })
}

/// A strategic merge patch of a status with one condition: it takes the place of the one of its
/// type, or comes after those that are `held`.
pub(crate) fn condition_patch<'a>(
    held: impl IntoIterator<Item = &'a str>,
    condition: Value,
) -> Map<String, Value> {
    let kind = condition["type"].as_str().unwrap_or_default();
    let mut order: Vec<&str> = held.into_iter().collect();
    if !order.contains(&kind) {
        order.push(kind);
    }
    let order = order.into_iter().map(|kind| json!({"type": kind})).collect();
    let mut status = Map::new();
    status.insert("$setElementOrder/conditions".to_owned(), order);
    status.insert("conditions".to_owned(), json!([condition]));
    status
}

/// Runs `n` pieces of work in batches of 1, 2, 4 …, and stops after a batch with an error: what
/// fails once probably fails always. Returns the first error.
pub(crate) async fn slow_start<F: Future<Output = Result<(), E>>, E>(
    n: usize,
    mut work: impl FnMut(usize) -> F,
) -> Result<(), E> {
    let (mut done, mut batch) = (0, 1);
    while done < n {
        let end = n.min(done + batch);
        let results = join_all((done..end).map(&mut work)).await;
        results.into_iter().collect::<Result<Vec<()>, E>>()?;
        (done, batch) = (end, batch * 2);
    }
    Ok(())
}

/// A pod from a template, to be created in `namespace` for the controller `owner`: labels,
/// annotations, finalizers and spec are the template's, and the name is generated from the owner's.
pub(crate) fn pod_from_template(
    template: &Value,
    namespace: &str,
    owner: &OwnerReference,
) -> DynamicObject {
    let mut pod = DynamicObject::new("", &pods()).within(namespace);
    let text = |name: &str| -> Option<std::collections::BTreeMap<String, String>> {
        let members = template["metadata"][name].as_object()?;
        let text =
            |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        Some(members.iter().filter_map(text).collect())
    };
    pod.metadata.name = None;
    pod.metadata.generate_name = Some(name_prefix(&owner.name));
    pod.metadata.labels = text("labels");
    pod.metadata.annotations = text("annotations");
    let finalizers = template["metadata"]["finalizers"].as_array();
    pod.metadata.finalizers =
        finalizers.map(|all| all.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    pod.metadata.owner_references = Some(vec![owner.clone()]);
    pod.data = json!({"spec": template["spec"]});
    pod
}

/// The prefix of generated names: `<owner>-`, or the name itself if that is not valid.
pub(crate) fn name_prefix(owner: &str) -> String {
    let prefix = format!("{owner}-");
    // As a prefix, it may end with a dash.
    if dns1123_subdomain(&format!("{owner}-x")).is_empty() { prefix } else { owner.to_owned() }
}

/// The resource of pods, to create them with fields that this program does not know.
fn pods() -> ApiResource {
    ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&())
}

/// Whether a create failed because the namespace is being deleted.
pub(crate) fn is_namespace_terminating(error: &ClientError) -> bool {
    let details = error.api().and_then(|error| error.0.details.as_ref());
    details.is_some_and(|details| {
        details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
    })
}

/// An error as conditions and events show it: the server's message, or the error with its causes.
pub(crate) fn message(error: &(dyn Error + 'static)) -> String {
    error.downcast_ref::<ClientError>().map_or_else(|| chain(error), ClientError::message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_in_proportion_to_many_pods() {
        assert_eq!(rest(0), Duration::ZERO);
        assert_eq!(rest(99), Duration::ZERO);
        assert_eq!(rest(100), Duration::from_millis(2));
        assert_eq!(rest(10_000), Duration::from_millis(200));
        assert_eq!(rest(usize::MAX), Duration::from_secs(1));
    }
}
