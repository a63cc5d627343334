//! Webhooks beside a controller: each `Team` gets a ConfigMap with its members.
//!
//! | the server asks | path | answer |
//! |---|---|---|
//! | a mutating webhook | `/mutate-example-dev-v2-team` | members sorted, each once; the first leads |
//! | a validating one | `/validate-example-dev-v2-team` | refuses a lead who is no member |
//! | a conversion | `/convert` | v1, where members are one text, to v2 and back |
//!
//! A program that serves webhooks runs several replicas: the server asks any of them, the leader or
//! another.

pub mod v1;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint::kube_core::crd::merge_crds;
use setpoint::prelude::*;
use setpoint::webhook::server::WebhookServerBuilder;
use setpoint::webhook::{Call, Change, KindConversion, Refusal, Webhooks, path};
use setpoint::{ServedWebhooks, webhook::webhooks::WebhooksBuilder};

/// The spec of a Team.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone)]
#[kube(
    group = "example.dev",
    version = "v2",
    kind = "Team",
    namespaced,
    crates(kube_core = "setpoint::kube_core")
)]
pub struct TeamSpec {
    /// The names of the members.
    pub members: Vec<String>,
    /// The lead, one of the members. Default: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<String>,
}

/// The mutating webhook: sorts the members and sets the lead.
async fn set_defaults(mut team: Team, _call: Call) -> Result<Team, Refusal> {
    let TeamSpec { members, lead } = &mut team.spec;
    if lead.is_none() {
        *lead = members.first().cloned();
    }
    members.sort();
    members.dedup();
    Ok(team)
}

/// The validating webhook. A deletion has no new object.
async fn validate(change: Change<Team>, call: Call) -> Result<(), Refusal> {
    let Some(TeamSpec { members, lead }) = change.after().map(|team| &team.spec) else {
        return Ok(());
    };
    if let Some(lead) = lead.as_ref().filter(|lead| !members.contains(lead)) {
        return Err(Refusal::denied(format!("the lead {lead} is no member")));
    }
    if members.is_empty() {
        call.warn("a team without members does nothing");
    }
    Ok(())
}

/// All webhooks of the program.
///
/// # Errors
///
/// None: these options are valid.
pub fn webhooks() -> Result<WebhooksBuilder, BoxError> {
    let conversion = KindConversion::hub::<Team>().spoke::<v1::Team>().build()?;
    Ok(Webhooks::builder().mutate(set_defaults).validate(validate).convert(conversion))
}

/// The definition with both versions. The server calls the Service `team` to convert.
///
/// # Errors
///
/// None: these options are valid.
pub fn definition() -> Result<CustomResourceDefinition, BoxError> {
    let mut definition = merge_crds(vec![Team::crd(), v1::Team::crd()], "v2")?;
    let service = json!({"namespace": "default", "name": "team", "path": path::CONVERT});
    let webhook = json!({"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]});
    let conversion = json!({"strategy": "Webhook", "webhook": webhook});
    definition.spec.conversion = Some(serde_json::from_value(conversion)?);
    Ok(definition)
}

/// Builds the manager of the program; tests use it too. `server` has the address and the
/// certificate of the webhooks.
///
/// # Errors
///
/// The server refuses the definition, or there is no certificate.
pub async fn manager(
    builder: ManagerBuilder,
    server: impl FnOnce(WebhookServerBuilder) -> WebhookServerBuilder + Send,
) -> Result<(Manager, ServedWebhooks), BoxError> {
    let mut manager = builder.build();
    manager.install_crds([definition()?]).await?;
    let served = manager.webhooks_with(webhooks()?, server).await?;
    let controller = Controller::builder("team")
        .for_(Watch::<Team>::new())
        .owns(Watch::<ConfigMap>::new())
        .build(reconcile)?;
    manager.add(controller)?;
    Ok((manager, served))
}

async fn reconcile(request: Request, context: Context) -> Result<Action, BoxError> {
    let Some(team) = context.client().api::<Team>().get(&request)? else {
        return Ok(Action::await_change());
    };
    let members = Apply::<ConfigMap>::new(&request)
        .controlled_by(&*team, &())?
        .set("/data/members", team.spec.members.join("\n"))
        .force();
    context.client().api::<ConfigMap>().apply(&members).await?;
    Ok(Action::await_change())
}
