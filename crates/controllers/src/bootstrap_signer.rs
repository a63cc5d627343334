//! Signatures of the ConfigMap `cluster-info`: machines that join know a bootstrap token, and by it
//! whether the kubeconfig in the ConfigMap, which anybody may read, is that of their cluster.
//!
//! # Theory
//!
//! The ConfigMap of `kube-public` has the kubeconfig in `kubeconfig`, and a signature for each
//! token in `jws-kubeconfig-<id of the token>`. A token is a Secret of `kube-system`; it signs if
//! its `usage-bootstrap-signing` is `true` and it has not expired. Any change of a token or of the
//! ConfigMap is one pass, which computes all signatures and removes those of other tokens. The next
//! token that expires is one more.
//!
//! The rules are those of kube-controller-manager's `bootstrap-signer-controller`. It reads and
//! writes nothing outside the two namespaces, as its roles there demand.

use crate::api::{Api, RequestError, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use crate::token_cleaner::{Token, caches_of_tokens, list_of_tokens, text};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Map, Value};
use setpoint_informer::Event;
use setpoint_object::time::Clock;
use setpoint_runtime::cache::{ByType, CacheConfig};
use setpoint_runtime::{Action, BoxError, Client, Context, Controller, Request, Watch};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The controller's name.
const NAME: &str = "bootstrap-signer-controller";
/// Namespace and name of the ConfigMap.
const INFO: (&str, &str) = ("kube-public", "cluster-info");
/// The key of what is signed.
const KUBECONFIG: &str = "kubeconfig";
/// What the keys of signatures begin with.
const SIGNATURE: &str = "jws-kubeconfig-";
/// The key of a Secret that lets its token sign.
const USAGE: &str = "usage-bootstrap-signing";

/// Signs the ConfigMap `cluster-info`. Does nothing until [`BootstrapSigner::run`].
#[derive(Debug)]
#[must_use]
pub struct BootstrapSigner {
    setup: Setup,
}

impl BootstrapSigner {
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
        let (namespace, name) = INFO;
        let mut info = ByType::default();
        let mut config = CacheConfig::default();
        config.fields = Some(format!("metadata.name={name}"));
        info.namespaces = Some([(namespace.to_owned(), config)].into());
        let caches = caches_of_tokens()?.of::<ConfigMap>(&(), info)?;
        let mut manager = self.setup.bare_manager().cache(caches).build();
        let pass = Pass { api: self.setup.api(NAME), clock: self.setup.clock().clone() };
        // There is one key.
        let controller = Controller::builder(NAME)
            .watches_with(Watch::<Secret>::metadata(), |_: &Event<_>, _: &Client| the_info())
            .watches_with(Watch::<ConfigMap>::metadata(), |_: &Event<_>, _: &Client| the_info())
            .sync_timeout(None)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(manager.run(stop).await?)
    }
}

fn the_info() -> Vec<Request> {
    let (namespace, name) = INFO;
    vec![Request::new(namespace, name)]
}

struct Pass {
    api: Api,
    clock: Clock,
}

impl BoxedReconciler for Pass {
    type Error = RequestError;

    async fn pass(&self, _: &Request, _: &Context) -> Result<Action, RequestError> {
        let (namespace, name) = INFO;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        let Some(mut info) = self.api.get_opt(&path).await? else {
            return Ok(Action::await_change());
        };
        let Some(content) = info["data"][KUBECONFIG].as_str().map(str::to_owned) else {
            return Ok(Action::await_change());
        };
        let now = self.clock.now();
        let mut next: Option<Duration> = None;
        let mut tokens = Vec::new();
        let take = |secret: Value| {
            let Some(token) = Token::of(&secret).filter(|_| has_usage(&secret)) else { return };
            let remaining = token.expires.map(|expires| expires.since(now));
            if remaining != Some(Duration::ZERO) {
                next = next.into_iter().chain(remaining).min();
                tokens.push(token);
            }
        };
        self.api.list_pages(&list_of_tokens(), take).await?;
        let mut signatures = Map::new();
        for Token { id, secret, .. } in tokens {
            let signature = setpoint_jwt::sign_detached(content.as_bytes(), &id, &secret);
            signatures.insert(format!("{SIGNATURE}{id}"), signature.into());
            // A signature may take a millisecond: the kubeconfig may have a mebibyte.
            tokio::task::yield_now().await;
        }
        if let Some(data) = info["data"].as_object_mut() {
            let is_signature = |name: &str| name.starts_with(SIGNATURE);
            let n_stored = data.keys().filter(|name| is_signature(name)).count();
            let is_same = n_stored == signatures.len()
                && signatures.iter().all(|(name, value)| data.get(name) == Some(value));
            if !is_same {
                data.retain(|name, _| !is_signature(name));
                data.extend(signatures);
                self.write(&path, &info).await?;
            }
        }
        Ok(next.map_or(Action::await_change(), Action::requeue_after))
    }
}

impl Pass {
    /// Writes the ConfigMap. One that is gone needs no signature.
    async fn write(&self, path: &str, info: &Value) -> Result<(), RequestError> {
        ignore_not_found(self.api.put(path, info).await).map(drop)
    }
}

/// Whether the token of a Secret may sign.
fn has_usage(secret: &Value) -> bool {
    text(secret, USAGE).as_deref() == Some("true")
}
