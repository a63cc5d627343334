//! The Website controller on kube-rs.

#[path = "website_kube_rs.rs"]
mod website;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube_client::api::{Patch, PatchParams};
use kube_client::{Api, Client, Resource, ResourceExt};
use kube_runtime::controller::{Action, Controller};
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use kube_runtime::finalizer::{self, finalizer};
use kube_runtime::watcher;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use website::Website;

const FINALIZER: &str = "example.dev/dns";

struct Context {
    client: Client,
    recorder: Recorder,
    dns: Dns,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Kube(#[from] kube_client::Error),
    #[error("dns: {0}")]
    Dns(#[from] std::io::Error),
    #[error("finalizer: {0}")]
    Finalizer(#[source] Box<finalizer::Error<Error>>),
}

async fn reconcile(site: Arc<Website>, context: Arc<Context>) -> Result<Action, Error> {
    let namespace = site.namespace().unwrap_or_default();
    let sites = Api::<Website>::namespaced(context.client.clone(), &namespace);
    let pass = async |event| match event {
        finalizer::Event::Apply(site) => apply(&site, &context).await,
        finalizer::Event::Cleanup(site) => {
            context.dns.remove(&site.name_any()).await?;
            Ok(Action::await_change())
        }
    };
    finalizer(&sites, FINALIZER, site, pass)
        .await
        .map_err(|error| Error::Finalizer(Box::new(error)))
}

async fn apply(site: &Website, context: &Context) -> Result<Action, Error> {
    let (name, namespace) = (site.name_any(), site.namespace().unwrap_or_default());
    context.dns.ensure(&name).await?;

    // A read from the server: a cache of Deployments would be one more reflector to set up and to
    // share.
    let deployments = Api::<Deployment>::namespaced(context.client.clone(), &namespace);
    let is_new = deployments.get_opt(&name).await?.is_none();
    let labels = json!({"website": name});
    let desired = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "ownerReferences": [site.controller_owner_ref(&())]},
        "spec": {
            "replicas": site.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": site.spec.image}]},
            },
        },
    });
    let params = PatchParams::apply("website").force();
    let deployment = deployments.patch(&name, &params, &Patch::Apply(&desired)).await?;
    if is_new {
        let event = Event {
            type_: EventType::Normal,
            reason: "Created".into(),
            note: Some(format!("{name} is there")),
            action: "Create".into(),
            secondary: Some(deployment.object_ref(&())),
        };
        context.recorder.publish(&event, &site.object_ref(&())).await?;
    }

    let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or_default();
    if site.status.as_ref().map(|status| status.ready_replicas) != Some(ready) {
        let sites = Api::<Website>::namespaced(context.client.clone(), &namespace);
        let status = json!({"status": {"readyReplicas": ready}});
        sites.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    }
    Ok(Action::await_change())
}

fn error_policy(_site: Arc<Website>, _error: &Error, _context: Arc<Context>) -> Action {
    // The same pause after each failure: who wants a growing one counts failures per object.
    Action::requeue(Duration::from_secs(5))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::try_default().await?;
    let reporter = Reporter { controller: "website".into(), instance: None };
    let recorder = Recorder::new(client.clone(), reporter);
    let context = Context { client: client.clone(), recorder, dns: Dns };
    Controller::new(Api::<Website>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Deployment>::all(client), watcher::Config::default())
        .shutdown_on_signal()
        .run(reconcile, error_policy, Arc::new(context))
        .for_each(|result| async move {
            if let Err(error) = result {
                eprintln!("reconcile failed: {error}");
            }
        })
        .await;
    Ok(())
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
