//! Tokens in Secrets: a Secret of type `kubernetes.io/service-account-token` gets a token of the
//! service account that it names, and is deleted with the account.
//!
//! # Theory
//!
//! A pass compares one Secret with its account, as the server has them:
//!
//! | the account | the Secret |
//! |---|---|
//! | does not exist, or has another uid than the Secret's annotation | is deleted |
//! | exists | gets what is missing: `token`, `ca.crt`, `namespace`, the annotation with the uid |
//!
//! The deletion of an account enqueues its namespace, whose Secrets are then listed. The deletion
//! of a Secret enqueues its account, which then no longer lists it. Writes carry the uid and the
//! version of the object that was read. Such tokens do not expire: they end with their Secret. The
//! rules are those of kube-controller-manager's `tokens-controller`.

use crate::api::{Api, RequestError, as_read, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::first_error::FirstError;
use crate::setup::Setup;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube_core::metadata::PartialObjectMeta;
use serde_json::{Map, Value, json};
use setpoint_informer::Event;
use setpoint_jwt::KeyRing;
use setpoint_object::meta::ObjectExt;
use setpoint_object::name::dns1123_subdomain;
use setpoint_object::users;
use setpoint_runtime::cache::ByType;
use setpoint_runtime::{
    Action, BoxError, CacheOptions, Client, Context, Controller, Request, Watch,
};
use std::fmt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The controller's name.
const NAME: &str = "tokens-controller";
/// The type of the Secrets.
const TYPE: &str = "kubernetes.io/service-account-token";
/// The annotations that name the account.
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// The issuer of these tokens, which is the same in every cluster.
const ISSUER: &str = "kubernetes/serviceaccount";
/// Number of Secrets that are processed at the same time.
const WORKERS: usize = 5;

/// Fills and deletes the Secrets of service account tokens. Does nothing until
/// [`TokenSecrets::run`].
#[must_use]
pub struct TokenSecrets {
    setup: Setup,
    keys: KeyRing,
    root_ca: Option<Arc<str>>,
}

impl fmt::Debug for TokenSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSecrets").finish_non_exhaustive()
    }
}

impl TokenSecrets {
    /// Creates a controller that starts from `setup` and signs with `keys`.
    pub fn new(setup: Setup, keys: KeyRing) -> Self {
        Self { setup, keys, root_ca: None }
    }

    /// The certificates (PEM) that clients inside the cluster verify the server with, for `ca.crt`.
    /// Default: none, and the Secrets get none.
    pub fn root_ca(mut self, pem: Option<Arc<str>>) -> Self {
        self.root_ca = pem;
        self
    }

    /// Runs until `stop`, then lets running passes finish. Dropping it stops everything at once.
    ///
    /// # Errors
    ///
    /// If it fails permanently.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        let mut of_type = ByType::default();
        of_type.config.fields = Some(format!("type={TYPE}"));
        let mut manager = self
            .setup
            .bare_manager()
            .cache(CacheOptions::new().of::<Secret>(&(), of_type)?)
            .build();
        let pass = Pass {
            api: self.setup.api(NAME),
            keys: self.keys,
            root_ca: self.root_ca,
            in_place: self.setup.works_in_place(),
        };
        let controller = Controller::builder(NAME)
            .concurrency(WORKERS)
            .for_(Watch::<Secret>::metadata())
            .watches(
                Watch::<ServiceAccount>::metadata(),
                |event: &Event<PartialObjectMeta<ServiceAccount>>| {
                    let is_deleted = matches!(event, Event::Deleted { .. });
                    let namespace = || Request::cluster(event.key().namespace.clone());
                    is_deleted.then(namespace).into_iter().collect()
                },
            )
            .watches(Watch::<Secret>::metadata(), of_deleted)
            .sync_timeout(None)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(manager.run(stop).await?)
    }
}

/// The key of a deleted Secret with the account that lists it: `account:secret`, which is no name.
fn of_deleted(event: &Event<PartialObjectMeta<Secret>>) -> Vec<Request> {
    let Event::Deleted { tombstone } = event else { return Vec::new() };
    let secret = tombstone.object().and_then(|secret| secret.get().ok());
    let annotations = secret.as_ref().and_then(|secret| secret.metadata.annotations.as_ref());
    let account = annotations.and_then(|all| all.get(ACCOUNT_NAME));
    let key = event.key();
    let named = account.filter(|account| dns1123_subdomain(account).is_empty());
    let of_account =
        |account| Request::new(key.namespace.clone(), format!("{account}:{}", key.name));
    named.map(of_account).into_iter().collect()
}

struct Pass {
    api: Api,
    keys: KeyRing,
    root_ca: Option<Arc<str>>,
    /// Signs on the thread of its task.
    in_place: bool,
}

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client();
        let is_watched = match &*request.namespace {
            "" => self.namespace(&request.name, client).await?,
            namespace => {
                if let Some((account, secret)) = request.name.split_once(':') {
                    self.forget(namespace, account, secret).await?;
                    return Ok(Action::await_change());
                }
                let path = format!("/api/v1/namespaces/{namespace}/secrets/{}", request.name);
                match self.api.get_opt(&path).await? {
                    None => true,
                    Some(secret) => self.secret(secret, client).await?,
                }
            }
        };
        Ok(match is_watched {
            true => Action::await_change(),
            false => Action::requeue(),
        })
    }
}

impl Pass {
    /// All Secrets with tokens in a namespace, after an account was deleted. Returns as
    /// [`secret`](Self::secret).
    async fn namespace(&self, namespace: &str, client: &Client) -> Result<bool, BoxError> {
        let mut secrets = Vec::new();
        let path = format!("/api/v1/namespaces/{namespace}/secrets?fieldSelector=type%3D{TYPE}");
        self.api.list_pages(&path, |secret| secrets.push(secret)).await?;
        // A Secret that cannot be written does not keep the others.
        let (mut is_watched, mut errors) = (true, FirstError::new());
        for secret in secrets {
            if let Some(is) = errors.note(self.secret(secret, client).await) {
                is_watched &= is;
            }
        }
        errors.into_result()?;
        Ok(is_watched)
    }

    /// Removes a Secret that is gone from the list of its account.
    async fn forget(&self, namespace: &str, account: &str, secret: &str) -> Result<(), BoxError> {
        let root = format!("/api/v1/namespaces/{namespace}");
        let path = format!("{root}/serviceaccounts/{account}");
        let Some(account) = self.api.get_opt(&path).await? else { return Ok(()) };
        let is_it = |entry: &&Value| entry["name"] == secret;
        let named = || account["secrets"].as_array().into_iter().flatten();
        // Another one may have its name by now.
        if !named().any(|entry| is_it(&entry))
            || self.api.get_opt(&format!("{root}/secrets/{secret}")).await?.is_some()
        {
            return Ok(());
        }
        let others: Vec<&Value> = named().filter(|entry| !is_it(entry)).collect();
        let patch = json!({
            "metadata": {"uid": account.uid(), "resourceVersion": account.resource_version()},
            "secrets": others,
        });
        ignore_not_found(self.api.merge_patch(&path, &patch).await)?;
        Ok(())
    }

    /// One Secret. Returns false if the cache does not show its account yet: then no event would
    /// tell of the account's deletion, because a cache that lists again has never seen it.
    async fn secret(&self, secret: Value, client: &Client) -> Result<bool, BoxError> {
        // Of a list, an item has no kind: its type is what was selected by.
        if secret["type"] != TYPE || !secret.deletion_timestamp().is_empty() {
            return Ok(true);
        }
        let namespace = secret.namespace();
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{}", secret.name());
        let account = account_of(&self.api, &secret).await?;
        let name = account.as_ref().map_or("", |account| account.name());
        let shown = client.metadata::<ServiceAccount>().get(&Request::new(namespace, name))?;
        let shown = shown.and_then(|shown| shown.metadata.uid.clone()).unwrap_or_default();
        let is_watched = account.as_ref().is_none_or(|account| account.uid() == shown);
        let written = match account {
            None => self.api.delete(&path, &as_read(&secret)).await,
            Some(account) => match self.missing(&secret, &account).await? {
                Some(patch) => self.api.merge_patch(&path, &patch).await,
                None => return Ok(is_watched),
            },
        };
        Ok(ignore_not_found(written)?.is_none() || is_watched)
    }

    /// A merge patch with what a Secret lacks.
    async fn missing(&self, secret: &Value, account: &Value) -> Result<Option<Value>, BoxError> {
        let mut data = Map::new();
        let mut set = |key: &str, value: &[u8]| {
            let value = STANDARD.encode(value);
            if secret["data"][key] != *value {
                data.insert(key.to_owned(), value.into());
            }
        };
        if let Some(root_ca) = &self.root_ca {
            set("ca.crt", root_ca.as_bytes());
        }
        let is_empty = |key: &str| secret["data"][key].as_str().is_none_or(str::is_empty);
        if is_empty("namespace") {
            set("namespace", secret.namespace().as_bytes());
        }
        if is_empty("token") {
            set("token", self.token(secret, account).await?.as_bytes());
        }
        if data.is_empty() || secret["immutable"] == true {
            return Ok(None);
        }
        Ok(Some(json!({
            "metadata": {
                "uid": secret.uid(),
                "resourceVersion": secret.resource_version(),
                "annotations": {ACCOUNT_UID: account.uid()},
            },
            "data": data,
        })))
    }

    async fn token(&self, secret: &Value, account: &Value) -> Result<String, BoxError> {
        let (namespace, name) = (secret.namespace(), account.name());
        let claims = json!({
            "iss": ISSUER,
            "sub": users::service_account(namespace, name),
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": secret.name(),
            "kubernetes.io/serviceaccount/service-account.name": name,
            "kubernetes.io/serviceaccount/service-account.uid": account.uid(),
        });
        let keys = self.keys.current()?;
        match keys.is_slow() && !self.in_place {
            true => Ok(tokio::task::spawn_blocking(move || keys.sign(&claims)).await??),
            false => Ok(keys.sign(&claims)?),
        }
    }
}

/// The account of a Secret: with the name and, if there is one, the uid in its annotations.
pub(crate) async fn account_of(api: &Api, secret: &Value) -> Result<Option<Value>, RequestError> {
    let annotation = |name: &str| {
        let annotations = secret.meta().and_then(|meta| meta.get("annotations"));
        annotations.and_then(|all| all.get(name)?.as_str()).unwrap_or_default()
    };
    let (name, uid) = (annotation(ACCOUNT_NAME), annotation(ACCOUNT_UID));
    // The annotation may be any text, and one that is no name would be another path.
    if !dns1123_subdomain(name).is_empty() {
        return Ok(None);
    }
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{name}", secret.namespace());
    let account = api.get_opt(&path).await?;
    Ok(account.filter(|account| uid.is_empty() || account.uid() == uid))
}
