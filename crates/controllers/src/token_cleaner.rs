//! Bootstrap tokens: deletes the Secrets of `kube-system` whose token has expired.
//!
//! The rules are those of kube-controller-manager's `token-cleaner`: a time that cannot be read has
//! passed, and a token without one does not expire.

use crate::api::Api;
use crate::setup::Setup;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_runtime::cache::ByType;
use setpoint_runtime::{
    Action, BoxError, CacheOptions, Context, Controller, Reconciler, Request, Watch,
};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The controller's name.
const NAME: &str = "token-cleaner";
/// The namespace and the type of the Secrets.
const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";

/// Deletes expired bootstrap tokens. Does nothing until [`TokenCleaner::run`].
#[must_use]
pub struct TokenCleaner {
    setup: Setup,
}

impl TokenCleaner {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Runs until `stop`, then lets a running pass finish. Dropping it stops everything at once.
    ///
    /// # Errors
    ///
    /// If it fails permanently.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        let mut of_type = ByType::default();
        of_type.config.fields = Some(format!("type={TYPE},metadata.namespace={NAMESPACE}"));
        let mut manager = self
            .setup
            .bare_manager()
            .cache(CacheOptions::new().of::<Secret>(&(), of_type)?)
            .build();
        let pass = Pass { api: self.setup.api(NAME), clock: self.setup.clock().clone() };
        let controller = Controller::builder(NAME)
            .for_(Watch::<Secret>::metadata())
            .sync_timeout(None)
            .build(pass)?;
        manager.add(controller)?;
        Ok(manager.run(stop).await?)
    }
}

struct Pass {
    api: Api,
    clock: Clock,
}

impl Reconciler for Pass {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, _: Context) -> Result<Action, BoxError> {
        // Boxed, so that a worker that waits for work is small.
        Box::pin(self.pass(&request.name)).await
    }
}

impl Pass {
    async fn pass(&self, name: &str) -> Result<Action, BoxError> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
        let secret = match self.api.get(&path).await {
            Err(error) if error.is_not_found() => return Ok(Action::await_change()),
            secret => secret?,
        };
        let Some(expires) = expiration(&secret).filter(|_| secret["type"] == TYPE) else {
            return Ok(Action::await_change());
        };
        let remaining = expires.since(self.clock.now());
        if remaining > Duration::ZERO {
            return Ok(Action::requeue_after(remaining));
        }
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": secret.uid(), "resourceVersion": secret.resource_version()},
        });
        match self.api.delete(&path, &options).await {
            Err(error) if error.is_not_found() => {}
            deleted => _ = deleted?,
        }
        Ok(Action::await_change())
    }
}

/// When a token expires; `None`: never.
fn expiration(secret: &Value) -> Option<Timestamp> {
    let encoded = secret["data"]["expiration"].as_str().filter(|text| !text.is_empty())?;
    let text = STANDARD.decode(encoded).ok().and_then(|text| String::from_utf8(text).ok());
    Some(text.and_then(|text| Timestamp::parse(&text)).unwrap_or_default())
}
