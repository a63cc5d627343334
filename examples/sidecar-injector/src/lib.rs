//! A sidecar injector: adds containers and volumes to the pods of labelled namespaces.
//!
//! | what | where |
//! |---|---|
//! | which containers and volumes | ConfigMap `sidecar-injector/sidecars`, key `inject.yaml`: a part of a pod's `spec` |
//! | which namespaces | label `sidecar-injection: enabled` (the webhook configuration's selector) |
//! | not this pod | annotation `sidecar-injector.example.dev/inject: "false"` |
//! | what was done | annotation `sidecar-injector.example.dev/status` |
//!
//! The part is merged as a strategic merge patch merges: containers and volumes by name, their
//! environment by name, their mounts by path. So a second call, after another webhook has changed
//! the pod, adds nothing twice. The ConfigMap is read from a cache: a change affects the pods that
//! are created after it.

use k8s_openapi::DeepMerge as _;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Namespace, Pod, PodSpec};
use serde_json::{Value, json};
use setpoint::kube_client::api::{Patch, PatchParams, PostParams};
use setpoint::kube_client::{self, Client as KubeClient};
use setpoint::prelude::*;
use setpoint::runtime::{Api, Client};
use setpoint::webhook::server::WebhookServerBuilder;
use setpoint::webhook::{Call, Refusal, Webhooks};
use setpoint::{ServedWebhooks, WebhookCertificates};
use std::net::SocketAddr;

/// Namespace of the program and its ConfigMap.
pub const NAMESPACE: &str = "sidecar-injector";
/// Name of the ConfigMap.
pub const CONFIG: &str = "sidecars";
/// Key of the part of a pod's `spec` in the ConfigMap.
pub const KEY: &str = "inject.yaml";
/// Annotation of a pod that disables the injection (`"false"`).
pub const INJECT: &str = "sidecar-injector.example.dev/inject";
/// Annotation with what was added.
pub const STATUS: &str = "sidecar-injector.example.dev/status";
/// Name of the MutatingWebhookConfiguration and of the Service.
pub const NAME: &str = "sidecar-injector";
/// Path of the webhook.
pub const PATH: &str = "/mutate--v1-pod";

/// Adds the part in the ConfigMap to a pod.
///
/// # Errors
///
/// The ConfigMap does not exist, or its text is not a part of a pod. The pod is then refused.
pub fn inject(mut pod: Pod, config: Option<&ConfigMap>) -> Result<Pod, Refusal> {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    if annotations.get(INJECT).is_some_and(|wanted| wanted == "false") {
        return Ok(pod);
    }
    let Some(config) = config else {
        return Err(Refusal::denied(format!("there is no ConfigMap {NAMESPACE}/{CONFIG}")));
    };
    let text = config.data.as_ref().and_then(|data| data.get(KEY)).map_or("", String::as_str);
    let part: PodSpec = serde_saphyr::from_str::<Part>(text)
        .map(|part| part.0)
        .map_err(|error| Refusal::denied(format!("{KEY} of {CONFIG}: {error}")))?;
    let names = |containers: &[Container]| {
        containers.iter().map(|container| container.name.clone()).collect::<Vec<_>>()
    };
    let status = json!({
        "containers": names(&part.containers),
        "initContainers": names(part.init_containers.as_deref().unwrap_or_default()),
        "volumes": part.volumes.iter().flatten().map(|volume| &volume.name).collect::<Vec<_>>(),
        "config": config.metadata.resource_version,
    });
    annotations.insert(STATUS.to_owned(), status.to_string());
    pod.spec.get_or_insert_default().merge_from(part);
    Ok(pod)
}

/// A part of a pod's `spec`, in which `containers` may be missing.
#[derive(serde::Deserialize)]
#[serde(try_from = "Value")]
struct Part(PodSpec);

impl TryFrom<Value> for Part {
    type Error = serde_json::Error;

    fn try_from(mut part: Value) -> Result<Self, Self::Error> {
        if let Some(members) = part.as_object_mut() {
            members.entry("containers").or_insert_with(|| json!([]));
        }
        serde_json::from_value(part).map(Self)
    }
}

/// The address of the webhook, for the server that calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// Behind the Service [`NAME`] of the namespace [`NAMESPACE`].
    Cluster,
    /// At this DNS name or address.
    Host(&'a str),
}

/// The manager of the program: the webhook with certificates that it issues itself, and a cache of
/// the ConfigMap.
///
/// # Errors
///
/// The server refuses the Secret of the certificate, or the address is taken.
pub async fn manager(
    builder: ManagerBuilder,
    place: Place<'_>,
    server: impl FnOnce(WebhookServerBuilder) -> WebhookServerBuilder + Send,
) -> Result<(Manager, ServedWebhooks), BoxError> {
    let mut manager = builder.build();
    let client: Client = manager.client().clone();
    let mutate = move |pod: Pod, _call: Call| {
        let configs: Api<ConfigMap> = client.api();
        async move {
            let key = Request::new(NAMESPACE, CONFIG);
            let config = configs.get(&key).map_err(|error| Refusal::denied(error.to_string()))?;
            inject(pod, config.as_deref())
        }
    };
    let certificates = WebhookCertificates::new(NAMESPACE, "sidecar-injector").mutating(NAME);
    let certificates = match place {
        Place::Cluster => certificates.service(NAME),
        Place::Host(name) => certificates.host(name),
    };
    let webhooks = Webhooks::builder().mutate(mutate);
    let served = manager.webhooks_with_certificates(webhooks, certificates, server).await?;
    // Has the ConfigMap cached: there is nothing to do for it.
    let configs = Controller::builder("sidecars")
        .for_(Watch::<ConfigMap>::new())
        .leader_only(false)
        .build(|_: Request, _: Context| async { Ok::<_, BoxError>(Action::await_change()) })?;
    manager.add(configs)?;
    Ok((manager, served))
}

/// Registers the injector at an address of this machine, with the rules of the manifest, and makes
/// the namespace and an example of the ConfigMap if they are missing.
///
/// # Errors
///
/// The server refuses an object.
pub async fn install(client: &KubeClient, address: SocketAddr) -> Result<(), BoxError> {
    let (namespace, config) = match &documents(include_str!("../manifests/config.yaml"))?[..] {
        [namespace, config] => (namespace.clone(), config.clone()),
        _ => return Err("config.yaml has a Namespace and a ConfigMap".into()),
    };
    let namespace: Namespace = serde_json::from_value(namespace)?;
    let config: ConfigMap = serde_json::from_value(config)?;
    let namespaces = kube_client::Api::<Namespace>::all(client.clone());
    unless_exists(namespaces.create(&PostParams::default(), &namespace).await)?;
    let configs = kube_client::Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    unless_exists(configs.create(&PostParams::default(), &config).await)?;

    let manifests = documents(include_str!("../manifests/injector.yaml"))?;
    let configuration = manifests.into_iter().find(|o| o["kind"] == "MutatingWebhookConfiguration");
    let mut configuration = configuration.ok_or("injector.yaml has a configuration")?;
    let url = format!("https://{address}{PATH}");
    configuration["webhooks"][0]["clientConfig"] = json!({"url": url});
    let configurations = kube_client::Api::<MutatingWebhookConfiguration>::all(client.clone());
    let apply = PatchParams::apply(NAME).force();
    configurations.patch(NAME, &apply, &Patch::Apply(&configuration)).await?;
    Ok(())
}

/// The documents of a YAML file.
fn documents(text: &str) -> Result<Vec<Value>, BoxError> {
    Ok(serde_saphyr::from_multiple(text)?)
}

fn unless_exists<T>(created: Result<T, kube_client::Error>) -> Result<(), kube_client::Error> {
    match created {
        Err(kube_client::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(|_| ()),
    }
}
