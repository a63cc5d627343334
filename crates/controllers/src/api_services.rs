//! APIService objects of custom resources: one for each group version that definitions serve.
//!
//! # Theory
//!
//! | the group version | its APIService | what happens |
//! |---|---|---|
//! | served by a definition | is missing | is created, with the label `kube-aggregator.kubernetes.io/automanaged: "true"` |
//! | served by a definition | has the label, and another spec | gets its spec back |
//! | not served | has the label | is deleted |
//! | any | has no label, or another value | is left alone |
//! | any | has no `spec.service` | gets the condition `Available` |
//!
//! The server creates the objects of its own group versions itself, with the value `onstart`. The
//! rules are those of kube-aggregator's controllers `crdregistration`, `autoregister` and
//! `local_available`.

use crate::api::{Api, RequestError};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use bytes::Bytes;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{
    APIService, APIServiceCondition,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::Skim;
use setpoint_runtime::{Action, BoxError, Context, Controller, Manager, Predicate, Request, Watch};

/// The controller's name in its user agent and in logs.
const NAME: &str = "api-service-registration-controller";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// The label of objects that a server manages, and its value for definitions.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const ALWAYS: &str = "true";
/// The priorities of custom resources, as kube-aggregator: after all built-in groups.
const GROUP_PRIORITY: i32 = 1000;
const VERSION_PRIORITY: i32 = 100;
/// The index of definitions by the names of their APIServices.
const INDEX: &str = "api-services";

/// Keeps the APIService objects of custom resources. Does nothing until a manager runs it.
#[derive(Debug)]
#[must_use]
pub struct ApiServices {
    setup: Setup,
}

impl ApiServices {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Whether the controller has nothing to do, by all definitions and APIServices as encoded
    /// objects. With a definition it always may have.
    pub fn is_settled(definitions: &[Bytes], services: &[Bytes]) -> bool {
        let needs_pass = |object: &Bytes| {
            Skim::of(object).map_or(true, |skim| is_concerned(skim.label(MANAGED), object))
        };
        definitions.is_empty() && !services.iter().any(needs_pass)
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let pass = Pass { api: self.setup.api_of_server(NAME) };
        let controller = Controller::builder(NAME)
            .for_(Watch::<APIService>::new().filter(Predicate::new(needs_pass)))
            .maps(
                Watch::<CustomResourceDefinition>::new().index(INDEX, names),
                |definition: &Object<CustomResourceDefinition>| {
                    let names = definition.get().map(|definition| names(&definition));
                    names.into_iter().flatten().map(Request::cluster).collect()
                },
            )
            .sync_timeout(None)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// Whether a pass may have something to do: not for those that the server itself has created and
/// marked available, which are all that most servers have.
fn needs_pass(event: &Event<APIService>) -> bool {
    let Some(object) = event.object().filter(|_| !matches!(event, Event::Deleted { .. })) else {
        return true;
    };
    // Decoded here, as what the cache decodes for a pass stays in memory.
    is_concerned(object.label(MANAGED).as_deref(), &object.json().unwrap_or_default())
}

/// Whether a pass may have something to do for an object with this label.
fn is_concerned(label: Option<&str>, object: &[u8]) -> bool {
    if label == Some(ALWAYS) {
        return true;
    }
    // Not the whole type: every control plane reads some thirty objects at its start.
    let Ok(service) = serde_json::from_slice::<Read>(object) else { return true };
    service.spec.service.is_none() && !service.status.is_available()
}

/// What [`is_concerned`] reads.
#[derive(Deserialize)]
struct Read {
    #[serde(default)]
    spec: ReadSpec,
    #[serde(default)]
    status: ReadStatus,
}

#[derive(Deserialize, Default)]
struct ReadSpec {
    service: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
struct ReadStatus {
    #[serde(default)]
    conditions: Vec<ReadCondition>,
}

#[derive(Deserialize)]
struct ReadCondition {
    r#type: String,
    status: String,
}

impl ReadStatus {
    fn is_available(&self) -> bool {
        self.conditions.iter().any(|one| one.r#type == "Available" && one.status == "True")
    }
}

/// Whether the server itself serves the group version.
fn is_local(service: &APIService) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.service.is_none())
}

fn is_available(service: &APIService) -> bool {
    let conditions = service.status.as_ref().and_then(|status| status.conditions.as_deref());
    let is_true = |c: &APIServiceCondition| c.type_ == "Available" && c.status == "True";
    conditions.is_some_and(|list| list.iter().any(is_true))
}

/// The names of the APIServices of a definition's served versions.
fn names(definition: &CustomResourceDefinition) -> Vec<String> {
    let group = &definition.spec.group;
    let served = definition.spec.versions.iter().filter(|version| version.served);
    served.map(|version| format!("{}.{group}", version.name)).collect()
}

struct Pass {
    api: Api,
}

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client();
        let definitions = client.api::<CustomResourceDefinition>();
        let serving = definitions.select().index(INDEX, &*request.name).limit(1).objects()?;
        let found = client.api::<APIService>().get(request)?;
        let path = format!("{SERVICES}/{}", request.name);
        let Some(found) = found else {
            if !serving.is_empty() {
                ignore_race(self.api.post(SERVICES, &service(&request.name)).await)?;
            }
            return Ok(Action::await_change());
        };
        let label = found.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED));
        if label.is_some_and(|value| value == ALWAYS) {
            let uid = found.metadata.uid.as_deref().unwrap_or_default();
            if serving.is_empty() {
                let options = json!({"preconditions": {"uid": uid}});
                ignore_race(self.api.delete(&path, &options).await)?;
                return Ok(Action::await_change());
            }
            let mut wanted = service(&request.name);
            if serde_json::to_value(&found.spec)? != wanted["spec"] {
                let version = found.metadata.resource_version.as_deref();
                wanted["metadata"]["uid"] = uid.into();
                wanted["metadata"]["resourceVersion"] = version.unwrap_or_default().into();
                ignore_race(self.api.put(&path, &wanted).await)?;
            }
        }
        if is_local(&found) && !is_available(&found) {
            let now = context.clock().now().rfc3339();
            let condition = json!({
                "type": "Available", "status": "True", "lastTransitionTime": now,
                "reason": "Local", "message": "Local APIServices are always available",
            });
            let patch = json!({
                "metadata": {"uid": found.metadata.uid}, "status": {"conditions": [condition]},
            });
            ignore_race(self.api.merge_patch(&format!("{path}/status"), &patch).await)?;
        }
        Ok(Action::await_change())
    }
}

/// The APIService of a group version by its name, `<version>.<group>`.
fn service(name: &str) -> Value {
    let (version, group) = name.split_once('.').unwrap_or((name, ""));
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": name, "labels": {MANAGED: ALWAYS}},
        "spec": {
            "group": group, "version": version,
            "groupPriorityMinimum": GROUP_PRIORITY, "versionPriority": VERSION_PRIORITY,
        },
    })
}

/// Ignores the answers of a race: another writer was faster, and an event follows. Other conflicts
/// are repeated.
fn ignore_race(answer: Result<Value, RequestError>) -> Result<(), RequestError> {
    match answer {
        Err(error) if error.is_already_exists() || error.is_not_found() => Ok(()),
        answer => answer.map(drop),
    }
}
