//! Calls to webhooks: the HTTPS client behind the registry's seam, and the lookup of services among
//! the served objects.

mod own;

use crate::ControlPlaneBuilder;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use serde_json::Value;
use setpoint_object::{GroupVersionResource, Skim};
use setpoint_registry::{
    Objects, Registry, WeakRegistry, WebhookCaller, WebhookClient, WebhookClients, WebhookError,
};
use setpoint_remote::Users;
use setpoint_spans::SpanContext;
use setpoint_webhook_client::{
    Address, CallError, ResolveError, Service, ServiceResolver, Webhook, Webhooks,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use own::OwnServer;

/// What admission webhooks are shown, by the plugin that calls them.
#[derive(Debug, Clone, Default)]
pub struct WebhookCredentials {
    /// Of the plugin `MutatingAdmissionWebhook`.
    pub mutating: Option<Arc<Users>>,
    /// Of the plugin `ValidatingAdmissionWebhook`.
    pub validating: Option<Arc<Users>>,
}

impl ControlPlaneBuilder {
    /// What admission webhooks are shown: client certificates, tokens. Default: nothing but
    /// [`webhook_identity`](Self::webhook_identity).
    pub fn webhook_credentials(mut self, credentials: WebhookCredentials) -> Self {
        self.webhook_credentials = credentials;
        self
    }
}

/// Makes the registry's clients.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) webhooks: Webhooks,
    pub(crate) credentials: WebhookCredentials,
    pub(crate) own: OwnServer,
}

impl WebhookClients for Clients {
    fn client(&self, caller: WebhookCaller, config: &Value) -> Arc<dyn WebhookClient> {
        let users = match caller {
            WebhookCaller::Mutating => &self.credentials.mutating,
            WebhookCaller::Validating => &self.credentials.validating,
            WebhookCaller::Conversion => &None,
        };
        let credential = |server: &str| users.as_ref()?.for_server(server);
        let client: Arc<dyn WebhookClient> =
            Arc::new(Client(self.webhooks.webhook_as(config, credential)));
        match self.own.client(config, &client) {
            Some(own) => Arc::new(own),
            None => client,
        }
    }
}

#[derive(Debug)]
struct Client(Webhook);

impl WebhookClient for Client {
    fn call(
        &self,
        review: Bytes,
        timeout: Duration,
        caller: Option<SpanContext>,
    ) -> BoxFuture<'static, Result<Bytes, WebhookError>> {
        let webhook = self.0.clone();
        async move {
            let parent = caller.map(|context| context.to_string());
            let answer = webhook.call(review, timeout, parent.as_deref()).await;
            answer.map_err(|error| match error {
                CallError::Config(error) => WebhookError::Config(error.to_string()),
                error => WebhookError::Call(error.to_string()),
            })
        }
        .boxed()
    }
}

/// Looks up services among the objects of a control plane.
///
/// | Service | addresses |
/// |---|---|
/// | `ExternalName` | its external name, with the port as it is |
/// | with ready addresses in its EndpointSlices | those, with the port of the slice |
/// | others | the cluster address, which something outside of the control plane must route |
///
/// kube-apiserver's cluster has a proxy that routes cluster addresses. Here the slices come first,
/// because there may be none.
#[derive(Debug, Default)]
pub(crate) struct ServedServices(OnceLock<WeakRegistry>);

impl ServedServices {
    /// Looks into this registry from now on.
    pub(crate) fn follow(&self, registry: &Registry) {
        // Set once, when the control plane is built.
        drop(self.0.set(registry.downgrade()));
    }
}

impl ServiceResolver for ServedServices {
    fn resolve<'a>(
        &'a self,
        service: &'a Service,
    ) -> BoxFuture<'a, Result<Vec<Address>, ResolveError>> {
        let registry = self.0.get().and_then(WeakRegistry::upgrade);
        async move {
            let Some(registry) = registry else {
                return Err(ResolveError("the server has stopped".to_owned()));
            };
            find(registry.objects(), service).await
        }
        .boxed()
    }
}

async fn find(objects: Objects<'_>, wanted: &Service) -> Result<Vec<Address>, ResolveError> {
    let failed = |error: setpoint_object::ApiError| ResolveError(error.to_string());
    let Service { namespace, name, port } = wanted;
    let services = GroupVersionResource::new("", "v1", "services");
    let Some(found) = objects.get(&services, namespace, name).await.map_err(failed)? else {
        return Err(ResolveError(format!("service {name:?} not found")));
    };
    let service = parse(&found.bytes)?;
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        let host = spec["externalName"].as_str().unwrap_or_default().to_owned();
        return Ok(vec![Address { host, port: *port }]);
    }
    let ports = spec["ports"].as_array().into_iter().flatten();
    let Some(known) = ports.into_iter().find(|known| known["port"] == *port) else {
        return Err(ResolveError(format!("no service port {port} found for service {name:?}")));
    };
    let port_name = known["name"].as_str().unwrap_or_default();
    let ready = ready_addresses(objects, namespace, name, port_name).await?;
    if !ready.is_empty() {
        return Ok(ready);
    }
    match spec["clusterIP"].as_str().unwrap_or_default() {
        "" | "None" => Err(ResolveError(r#"cannot route to service with ClusterIP "None""#.into())),
        address => Ok(vec![Address { host: address.to_owned(), port: *port }]),
    }
}

/// The ready addresses of a service's port, in the order of slices and endpoints.
async fn ready_addresses(
    objects: Objects<'_>,
    namespace: &str,
    service: &str,
    port_name: &str,
) -> Result<Vec<Address>, ResolveError> {
    let slices = GroupVersionResource::new("discovery.k8s.io", "v1", "endpointslices");
    let slices = objects.list(&slices, namespace).await;
    let slices = slices.map_err(|error| ResolveError(error.to_string()))?;
    let mut ready = Vec::new();
    for slice in slices {
        let is_of_service = Skim::of(&slice.bytes)
            .is_ok_and(|skim| skim.label("kubernetes.io/service-name") == Some(service));
        if !is_of_service {
            continue;
        }
        let slice = parse(&slice.bytes)?;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let port = list(&slice["ports"]).into_iter().find_map(|port| {
            let name = port["name"].as_str().unwrap_or_default();
            (name == port_name).then(|| port["port"].as_u64().map(u16::try_from))?
        });
        let Some(Ok(port)) = port else { continue };
        for endpoint in list(&slice["endpoints"]) {
            // Absent counts as ready.
            if endpoint["conditions"]["ready"] == false {
                continue;
            }
            let hosts = list(&endpoint["addresses"]);
            let hosts = hosts.iter().filter_map(|host| host.as_str().map(str::to_owned));
            ready.extend(hosts.map(|host| Address { host, port }));
        }
    }
    Ok(ready)
}

fn parse(object: &[u8]) -> Result<Value, ResolveError> {
    serde_json::from_slice(object).map_err(|error| ResolveError(error.to_string()))
}
