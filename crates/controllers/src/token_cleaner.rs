//! Bootstrap tokens: deletes the Secrets of `kube-system` whose token has expired.
//!
//! The rules are those of kube-controller-manager's `token-cleaner`: a time that cannot be read has
//! passed, and a token without one does not expire. It reads nothing outside the namespace, as its
//! role there demands.

use crate::api::{Api, as_read, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_runtime::cache::{ByType, CacheConfig};
use setpoint_runtime::{Action, BoxError, CacheOptions, Context, Controller, Request, Watch};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The controller's name.
const NAME: &str = "token-cleaner";
/// The namespace and the type of the Secrets.
pub(crate) const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// What the names of the Secrets begin with.
const PREFIX: &str = "bootstrap-token-";
/// Length of the id that follows, in characters.
const ID_CHARS: usize = 6;

/// Deletes expired bootstrap tokens. Does nothing until [`TokenCleaner::run`].
#[derive(Debug)]
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
        let mut manager = self.setup.bare_manager().cache(caches_of_tokens()?).build();
        let pass = Pass { api: self.setup.api(NAME), clock: self.setup.clock().clone() };
        let controller = Controller::builder(NAME)
            .for_(Watch::<Secret>::metadata())
            .sync_timeout(None)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(manager.run(stop).await?)
    }
}

/// Caches that have the tokens, and no other Secrets.
///
/// # Errors
///
/// None in practice: the rules are constants.
pub(crate) fn caches_of_tokens() -> Result<CacheOptions, BoxError> {
    let mut tokens = ByType::default();
    let mut config = CacheConfig::default();
    config.fields = Some(format!("type={TYPE}"));
    tokens.namespaces = Some([(NAMESPACE.to_owned(), config)].into());
    Ok(CacheOptions::new().of::<Secret>(&(), tokens)?)
}

/// The collection of the tokens.
pub(crate) fn list_of_tokens() -> String {
    let selector = format!("type={TYPE}").replace('=', "%3D").replace('/', "%2F");
    format!("/api/v1/namespaces/{NAMESPACE}/secrets?fieldSelector={selector}")
}

struct Pass {
    api: Api,
    clock: Clock,
}

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, _: &Context) -> Result<Action, BoxError> {
        let name = &*request.name;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
        let Some(secret) = self.api.get_opt(&path).await? else {
            return Ok(Action::await_change());
        };
        let Some(expires) = expiration(&secret).filter(|_| secret["type"] == TYPE) else {
            return Ok(Action::await_change());
        };
        let remaining = expires.since(self.clock.now());
        if remaining > Duration::ZERO {
            return Ok(Action::requeue_after(remaining));
        }
        ignore_not_found(self.api.delete(&path, &as_read(&secret)).await)?;
        Ok(Action::await_change())
    }
}

/// A bootstrap token.
pub(crate) struct Token {
    /// Its public part.
    pub(crate) id: String,
    /// Its secret part.
    pub(crate) secret: Vec<u8>,
    /// When it expires; `None`: never. A time that cannot be read has passed.
    pub(crate) expires: Option<Timestamp>,
}

impl Token {
    /// The token of a Secret, whose name has its id; `None`: it has none.
    pub(crate) fn of(secret: &Value) -> Option<Self> {
        let id = secret.name().strip_prefix(PREFIX)?;
        let has_form = id.len() == ID_CHARS
            && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let is_token = secret["type"] == TYPE && text(secret, "token-id").as_deref() == Some(id);
        let own =
            data(secret, "token-secret").filter(|own| has_form && is_token && !own.is_empty());
        Some(Self { id: id.to_owned(), secret: own?, expires: expiration(secret) })
    }
}

/// The content of a key of a Secret; `None`: it has no such key.
fn data(secret: &Value, key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(secret["data"][key].as_str()?).ok()
}

/// The same as a text.
pub(crate) fn text(secret: &Value, key: &str) -> Option<String> {
    String::from_utf8(data(secret, key)?).ok()
}

/// When a token expires; `None`: never.
fn expiration(secret: &Value) -> Option<Timestamp> {
    secret["data"]["expiration"].as_str().filter(|text| !text.is_empty())?;
    let text = text(secret, "expiration");
    Some(text.and_then(|text| Timestamp::parse(&text)).unwrap_or_default())
}
