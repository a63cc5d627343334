//! The Website controller on setpoint.

#[path = "website_setpoint.rs"]
mod website;

use k8s_openapi::api::apps::v1::Deployment;
use setpoint::kube_client::Client;
use setpoint::prelude::*;
use website::Website;

const FINALIZER: &str = "example.dev/dns";

struct WebsiteReconciler {
    dns: Dns,
}

impl Reconciler for WebsiteReconciler {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        let sites = context.client().api::<Website>();
        let Some(site) = sites.get(&request)? else { return Ok(Action::await_change()) };
        let pass = async |finalize| match finalize {
            Finalize::Apply(site) => self.apply(&request, &site, &context).await,
            Finalize::Cleanup(_) => {
                self.dns.remove(&request.name).await?;
                Ok(Action::await_change())
            }
        };
        Ok(finalizer(&sites, FINALIZER, site, pass).await?)
    }
}

impl WebsiteReconciler {
    async fn apply(
        &self,
        request: &Request,
        site: &Website,
        context: &Context,
    ) -> Result<Action, BoxError> {
        self.dns.ensure(&request.name).await?;

        let deployments = context.client().api::<Deployment>();
        let is_new = deployments.get(request)?.is_none();
        let labels = [("website", &*request.name)];
        let desired = Apply::<Deployment>::new(request)
            .controlled_by(site, &())?
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
        let deployment = deployments.apply(&desired).await?;
        if is_new {
            let message = format!("{} is there", request.name);
            context.recorder().normal(&ObjectReference::of(site), "Created", message);
        }

        let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or_default();
        if site.status.as_ref().map(|status| status.ready_replicas) != Some(ready) {
            let applied = Apply::<Website>::new(request)
                .fields(|site| site.status(|status| status.ready_replicas(ready)));
            context.client().api::<Website>().status().apply(&applied).await?;
        }
        Ok(Action::await_change())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::try_default().await?;
    let mut manager = Manager::new(client);
    let controller = Controller::builder("website")
        .for_(Watch::<Website>::new())
        .owns(Watch::<Deployment>::new())
        .build(WebsiteReconciler { dns: Dns })?;
    manager.add(controller)?;
    Ok(manager.run_until_signal().await?)
}

/// The name service outside of the cluster.
struct Dns;

impl Dns {
    async fn ensure(&self, _name: &str) -> std::io::Result<()> {
        Ok(())
    }

    async fn remove(&self, _name: &str) -> std::io::Result<()> {
        Ok(())
    }
}
