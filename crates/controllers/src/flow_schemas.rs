//! The condition `Dangling` of FlowSchemas: whether their level is missing.
//!
//! # Theory
//!
//! A pass compares one schema's condition with whether its PriorityLevelConfiguration exists, and
//! applies the condition if it differs. Changes of a schema enqueue it; changes of a level enqueue
//! the schemas that name it. The server itself does not read the condition: requests are classified
//! by the objects.

use crate::api::{Api, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use bytes::Bytes;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use kube_core::metadata::PartialObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::Skim;
use setpoint_runtime::{Action, BoxError, Context, Controller, Manager, Request, Watch};
use std::collections::HashSet;

const NAME: &str = "flow-schema-controller";
/// The field manager of the condition, as kube-apiserver's.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const CONDITION: &str = "Dangling";
/// The index of schemas by the names of their levels.
const INDEX: &str = "level";

/// Keeps the condition. Does nothing until a manager runs it.
#[derive(Debug)]
#[must_use]
pub struct FlowSchemas {
    setup: Setup,
}

impl FlowSchemas {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Whether the controller has nothing to do, by all FlowSchemas and PriorityLevelConfigurations
    /// as encoded objects.
    pub fn is_settled(schemas: &[Bytes], levels: &[Bytes]) -> bool {
        let levels: HashSet<String> = levels
            .iter()
            .filter_map(|level| Some(Skim::of(level).ok()?.name.into_owned()))
            .collect();
        schemas.iter().all(|schema| {
            let Ok(schema) = serde_json::from_slice::<Read>(schema) else { return false };
            let level = &schema.spec.priority_level_configuration.name;
            Verdict::of(level, levels.contains(level)).is_reported(&schema.status)
        })
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let pass = Pass { api: self.setup.api_of_server(NAME) };
        let controller = Controller::builder(NAME)
            .for_(
                Watch::<FlowSchema>::new()
                    .index(INDEX, |schema| level(schema).into_iter().collect()),
            )
            .watches(
                Watch::<PriorityLevelConfiguration>::metadata(),
                |event: &Event<PartialObjectMeta<PriorityLevelConfiguration>>| {
                    // The pass of a level's own key looks up its schemas: a name with a slash is
                    // none of a schema.
                    vec![Request::cluster(format!("{LEVEL}{}", event.key().name))]
                },
            )
            .sync_timeout(None)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The start of a key that stands for the schemas of a level.
const LEVEL: &str = "level/";

/// The level that a schema names. Read as JSON: whether members are optional differs between the
/// versions of the types.
fn level(schema: &FlowSchema) -> Option<String> {
    let spec = serde_json::to_value(&schema.spec).ok()?;
    spec["priorityLevelConfiguration"]["name"].as_str().map(str::to_owned)
}

/// What [`FlowSchemas::is_settled`] reads of a schema.
#[derive(Deserialize)]
struct Read {
    spec: ReadSpec,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadSpec {
    priority_level_configuration: LevelName,
}

#[derive(Deserialize)]
struct LevelName {
    name: String,
}

/// The desired condition.
struct Verdict {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn of(level: &str, exists: bool) -> Self {
        let (status, reason, what) = match exists {
            true => ("False", "Found", "and it exists"),
            false => ("True", "NotFound", "but there is no such object"),
        };
        let message = format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {level:?} {what}"
        );
        Self { status, reason, message }
    }

    /// Whether a schema's status has this condition.
    fn is_reported(&self, status: &Value) -> bool {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let reported = conditions.find(|condition| condition["type"] == CONDITION);
        reported.is_some_and(|reported| {
            reported["status"] == self.status && reported["message"] == self.message
        })
    }
}

struct Pass {
    api: Api,
}

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let schemas = context.client().api::<FlowSchema>();
        match request.name.strip_prefix(LEVEL) {
            Some(level) => {
                for schema in schemas.select().index(INDEX, level).all()? {
                    self.mark(&schema, context).await?;
                }
            }
            None => {
                if let Some(schema) = schemas.get(request)? {
                    self.mark(&schema, context).await?;
                }
            }
        }
        Ok(Action::await_change())
    }
}

impl Pass {
    /// Applies the condition, unless it is right.
    async fn mark(&self, schema: &FlowSchema, context: &Context) -> Result<(), BoxError> {
        let (Some(name), Some(level)) = (schema.metadata.name.as_deref(), level(schema)) else {
            return Ok(());
        };
        let levels = context.client().metadata::<PriorityLevelConfiguration>();
        let exists = levels.get(&Request::cluster(level.as_str()))?.is_some();
        let verdict = Verdict::of(&level, exists);
        if verdict.is_reported(&serde_json::to_value(&schema.status)?) {
            return Ok(());
        }
        let Verdict { status, reason, message } = verdict;
        let applied = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": {"name": name, "uid": schema.metadata.uid},
            "status": {"conditions": [{
                "type": CONDITION, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": context.clock().now().rfc3339(),
            }]},
        });
        let path = format!("{SCHEMAS}/{name}/status?fieldManager={MANAGER}&force=true");
        // Deleted: an event follows. A conflict is repeated, because it does not say whether
        // another schema has the name.
        ignore_not_found(self.api.apply(&path, &applied).await)?;
        Ok(())
    }
}
