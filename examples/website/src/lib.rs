//! An operator: each `Website` gets a Deployment that serves it.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use setpoint::prelude::*;

/// The spec of a Website.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone)]
#[kube(
    group = "example.dev",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus",
    crates(kube_core = "setpoint::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteSpec {
    /// The image that serves it.
    pub image: String,
    /// Number of Pods.
    pub replicas: i32,
}

/// The status of a Website.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteStatus {
    /// Number of ready Pods.
    #[serde(default)]
    pub ready_replicas: i32,
    /// `Ready`: all Pods are ready.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// Builds the manager of the program. Tests use it too.
///
/// # Errors
///
/// The server refuses the definition.
pub async fn manager(builder: ManagerBuilder) -> Result<Manager, BoxError> {
    let mut manager = builder.build();
    manager.install_crds([Website::crd()]).await?;
    let controller = Controller::builder("website")
        .for_(Watch::<Website>::new())
        .owns(Watch::<Deployment>::new())
        .build(reconcile)?;
    manager.add(controller)?;
    Ok(manager)
}

/// One pass: reads the Website from the cache and applies its Deployment. A failed pass is retried.
async fn reconcile(request: Request, context: Context) -> Result<Action, BoxError> {
    let sites = context.client().api::<Website>();
    // Gone: the garbage collector deletes what it owned.
    let Some(site) = sites.get(&request)? else { return Ok(Action::await_change()) };

    let labels = [("website", &*request.name)];
    let desired = Apply::<Deployment>::new(&request)
        .controlled_by(&*site, &())?
        .fields(|deployment| {
            deployment.spec(|spec| {
                spec.replicas(site.spec.replicas)
                    .selector(|selector| selector.match_labels(labels))
                    .template(|template| {
                        template
                            .metadata(|metadata| metadata.labels(labels))
                            .spec(|pod| pod.container("web", |web| web.image(&site.spec.image)))
                    })
            })
        })
        .force();
    let deployment = context.client().api::<Deployment>().apply(&desired).await?;

    let mut status = site.status.clone().unwrap_or_default();
    let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or_default();
    status.ready_replicas = ready;
    let is_ready = ready >= site.spec.replicas;
    set_condition(
        &mut status.conditions,
        "Ready",
        is_ready,
        if is_ready { "Serving" } else { "PodsNotReady" },
        &format!("{ready} of {} Pods are ready", site.spec.replicas),
        site.meta().generation,
        context.clock().now(),
    );
    // An unchanged status is not written: the write would trigger this controller again.
    if site.status.as_ref() != Some(&status) {
        let status = Apply::<Website>::new(&request).status(&status).force();
        sites.status().apply(&status).await?;
    }
    Ok(Action::await_change())
}
