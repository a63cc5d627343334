//! ServiceAccount: gives each pod its account, and the account's credentials to its containers.
//!
//! | a new pod | gets |
//! |---|---|
//! | without an account | the account `default` of its namespace |
//! | without `imagePullSecrets` | those of the account |
//! | with a container that mounts nothing at `/var/run/secrets/kubernetes.io/serviceaccount` | a projected volume with a token, the cluster's CA and the namespace, mounted there; unless the pod or the account sets `automountServiceAccountToken: false` |
//!
//! With the annotation `kubernetes.io/enforce-mountable-secrets` on its account, a pod may use the
//! secrets only that the account names.
//!
//! The account has to exist. The account `default` is created by a controller shortly after its
//! namespace, so a pod waits for it for a second. A mirror pod shows a pod of a node's own files:
//! it is left as it is, and must not refer to an account or to secrets.
mod mountable;

use super::{Admission, Operation, Review};
use crate::kind;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use setpoint_object::{ApiError, GroupResource, GroupVersionResource, Reason};
use std::sync::Arc;
use std::time::Duration;

/// The account of pods that name none.
const DEFAULT: &str = "default";
/// Marks a mirror pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Where containers find the credentials.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The start of the volume's name; five random characters follow.
const VOLUME: &str = "kube-api-access-";
/// The ConfigMap with the cluster's CA.
const ROOT_CA: &str = "kube-root-ca.crt";
/// How long the token is valid: an hour, and seven seconds that mark injected tokens.
const TOKEN_SECONDS: u64 = 3607;
/// How often the account `default` is looked up, as kube-apiserver.
const LOOKUPS_MAX: u32 = 10;
/// The pause after the first lookup. It doubles up to [`PAUSE_MAX`], so that all lookups take some
/// 1.3 seconds, as kube-apiserver's do.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The name of the plugin.
pub(super) const NAME: &str = kind::core::ACCOUNT;

#[derive(Debug)]
pub(super) struct ServiceAccount;

impl Admission for ServiceAccount {
    fn name(&self) -> &str {
        NAME
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        match review.operation {
            Operation::Create => review.is("", "pods"),
            Operation::Update => review.is_part("", "pods", "ephemeralcontainers"),
            Operation::Delete | Operation::Connect => false,
        }
    }
    fn mutates(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            if is_mirror(pod) {
                return check_mirror(review, pod);
            }
            let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
                return Ok(());
            };
            let name = match account_name(spec) {
                "" => DEFAULT.to_owned(),
                name => name.to_owned(),
            };
            // The older name of the member.
            spec.insert("serviceAccount".to_owned(), name.as_str().into());
            spec.insert("serviceAccountName".to_owned(), name.as_str().into());
            let account = find(review, &name).await?;
            if is_automounted(spec, &account) {
                mount(review, spec);
            }
            let own = spec.get("imagePullSecrets").and_then(Value::as_array);
            if own.is_none_or(Vec::is_empty)
                && let Some(secrets) = account.get("imagePullSecrets").and_then(Value::as_array)
                && !secrets.is_empty()
            {
                spec.insert("imagePullSecrets".to_owned(), secrets.clone().into());
            }
            check_secrets(review, &account, pod)
        }
        .boxed()
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let Some(pod) = pod else { return Ok(()) };
            let is_new = review.operation == Operation::Create;
            if is_new && is_mirror(pod) {
                return check_mirror(review, pod);
            }
            // A webhook may have removed or replaced the name.
            match pod.get("spec").and_then(Value::as_object).map(account_name) {
                None | Some("") => Err(review.forbidden(&format!(
                    "no service account specified for pod {}/{}",
                    review.namespace, review.name
                ))),
                Some(name) => check_secrets(review, &*find(review, name).await?, pod),
            }
        }
        .boxed()
    }
}

/// Holds a pod to the secrets of its account, if the account says so.
fn check_secrets(review: &Review<'_>, account: &Value, pod: &Value) -> Result<(), ApiError> {
    if !mountable::is_enforced(account) {
        return Ok(());
    }
    let refusal = match review.operation {
        Operation::Create => mountable::refusal(account, &pod["spec"]),
        _ => mountable::refusal_of_ephemeral(account, &pod["spec"]),
    };
    match refusal {
        None => Ok(()),
        Some(why) if review.operation == Operation::Create => Err(review.forbidden(&why)),
        // The reference does not make a refusal of it.
        Some(why) => Err(ApiError::new(500, Reason::Unknown, why)),
    }
}

fn is_mirror(pod: &Value) -> bool {
    pod.pointer("/metadata/annotations").is_some_and(|all| all.get(MIRROR).is_some())
}

fn check_mirror(review: &Review<'_>, pod: &Value) -> Result<(), ApiError> {
    let refused = |why: &str| Err(review.forbidden(&format!("a mirror pod may not {why}")));
    let Some(spec) = pod.get("spec").and_then(Value::as_object) else { return Ok(()) };
    if !account_name(spec).is_empty() {
        return refused("reference service accounts");
    }
    if kind::core::pod::secrets::refers_to_secrets(spec) {
        return refused("reference secrets");
    }
    let sources = items(spec, "volumes").iter().flat_map(|volume| {
        volume.pointer("/projected/sources").and_then(Value::as_array).into_iter().flatten()
    });
    if sources.into_iter().any(|source| is_set(source.get("serviceAccountToken"))) {
        return refused("use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// The account that a pod names; empty if it names none.
fn account_name(spec: &Map<String, Value>) -> &str {
    let text = |member: &str| spec.get(member).and_then(Value::as_str).unwrap_or_default();
    match text("serviceAccountName") {
        "" => text("serviceAccount"),
        name => name,
    }
}

/// The pod's account. Waits for the account `default`, which may be about to be created.
async fn find(review: &Review<'_>, name: &str) -> Result<Arc<Value>, ApiError> {
    let resource = GroupVersionResource::new("", "v1", "serviceaccounts");
    let lookups = if name == DEFAULT { LOOKUPS_MAX } else { 1 };
    let mut pause = PAUSE;
    for lookup in 1..=lookups {
        if let Some(found) = review.objects().tree(&resource, review.namespace, name).await? {
            return Ok(found);
        }
        if lookup < lookups {
            tokio::time::sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }
    // The words of a missing object, with the resource in the singular.
    let what = GroupResource { group: "".into(), resource: "serviceaccount".into() };
    let missing = ApiError::not_found(&what, name);
    let text = format!("error looking up service account {}/{name}: {missing}", review.namespace);
    Err(review.forbidden(&text))
}

/// The pod's setting takes precedence over the account's.
fn is_automounted(spec: &Map<String, Value>, account: &Value) -> bool {
    let member = "automountServiceAccountToken";
    let own = spec.get(member).and_then(Value::as_bool);
    own.or_else(|| account.get(member)?.as_bool()).unwrap_or(true)
}

/// Mounts the credentials in each container that has nothing at their place. A volume of an earlier
/// call is used again.
fn mount(review: &Review<'_>, spec: &mut Map<String, Value>) {
    let named = items(spec, "volumes").iter().filter_map(|volume| volume.get("name")?.as_str());
    let present = named.into_iter().find(|name| name.starts_with(VOLUME)).map(str::to_owned);
    let is_present = present.is_some();
    let name = present.unwrap_or_else(|| review.inner.generated_name(VOLUME));
    let mut is_needed = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let has_own = items(container, "volumeMounts")
                .iter()
                .any(|mount| mount.get("mountPath").is_some_and(|path| path == MOUNT_PATH));
            if !has_own {
                is_needed = true;
                let mount = json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH});
                push(container, "volumeMounts", mount);
            }
        }
    }
    if is_needed && !is_present {
        push(spec, "volumes", volume(&name));
    }
}

/// The volume with the credentials.
fn volume(name: &str) -> Value {
    let namespace = json!({
        "path": "namespace",
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
    });
    json!({
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
            "defaultMode": 420,
        },
    })
}

fn items<'a>(object: &'a Map<String, Value>, member: &str) -> &'a [Value] {
    object.get(member).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn push(object: &mut Map<String, Value>, member: &str, item: Value) {
    match object.get_mut(member).and_then(Value::as_array_mut) {
        Some(list) => list.push(item),
        None => _ = object.insert(member.to_owned(), Value::Array(vec![item])),
    }
}

fn is_set(value: Option<&Value>) -> bool {
    value.is_some_and(|value| !value.is_null())
}
