//! The condition `Dangling` of FlowSchemas: whether their level is missing.
//!
//! # Theory
//!
//! A pass compares one schema's condition with whether its PriorityLevelConfiguration exists, and
//! applies the condition if it differs. Changes of a schema enqueue it; changes of a level enqueue
//! the schemas that name it. The server itself does not read the condition: requests are classified
//! by the objects.

use crate::api::Api;
use crate::setup::Setup;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use kube_core::metadata::PartialObjectMeta;
use serde_json::json;
use setpoint_informer::Event;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, Manager, Reconciler, Request, Watch,
};

const NAME: &str = "flow-schema-controller";
/// The field manager of the condition, as kube-apiserver's.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const CONDITION: &str = "Dangling";
/// The index of schemas by the names of their levels.
const INDEX: &str = "level";

/// Keeps the condition. Does nothing until a manager runs it.
#[must_use]
pub struct FlowSchemas {
    setup: Setup,
}

impl FlowSchemas {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
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
            .build(pass)?;
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

struct Pass {
    api: Api,
}

impl Reconciler for Pass {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        // Boxed, so that a worker that waits for work is small.
        Box::pin(self.pass(&request, &context)).await
    }
}

impl Pass {
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

    /// Applies the condition, unless it is right.
    async fn mark(&self, schema: &FlowSchema, context: &Context) -> Result<(), BoxError> {
        let (Some(name), Some(level)) = (schema.metadata.name.as_deref(), level(schema)) else {
            return Ok(());
        };
        let levels = context.client().metadata::<PriorityLevelConfiguration>();
        let (status, reason, what) = match levels.get(&Request::cluster(level.as_str()))? {
            Some(_) => ("False", "Found", "and it exists"),
            None => ("True", "NotFound", "but there is no such object"),
        };
        let held = serde_json::to_value(&schema.status)?;
        let held = held["conditions"].as_array().into_iter().flatten();
        let held = held.into_iter().find(|condition| condition["type"] == CONDITION).cloned();
        let message = format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {level:?} {what}"
        );
        if held.is_some_and(|held| held["status"] == status && held["message"] == message) {
            return Ok(());
        }
        let applied = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": {"name": name, "uid": schema.metadata.uid},
            "status": {"conditions": [{
                "type": CONDITION, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": context.clock().now().rfc3339(),
            }]},
        });
        let path = format!("{SCHEMAS}/{name}/status?fieldManager={MANAGER}&force=true");
        match self.api.apply(&path, &applied).await {
            // Deleted, or deleted and created again: an event follows.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            applied => Ok(applied.map(drop)?),
        }
    }
}
