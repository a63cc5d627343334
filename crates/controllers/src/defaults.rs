//! What every namespace has: the ServiceAccount `default`, and the cluster's CA in the ConfigMap
//! `kube-root-ca.crt`.
//!
//! # Theory
//!
//! A pass compares one namespace with what it should have, and creates or restores what is missing
//! or different. Changes of a namespace and of these objects enqueue the namespace. Namespaces that
//! are being deleted are left alone. Passes read caches, which hold these objects only, so a
//! restart sends no request for a namespace that is complete.
//!
//! The rules are those of kube-controller-manager's `service-account-controller` and
//! `root-ca-cert-publisher`.

use crate::api::{Api, RequestError};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use bytes::Bytes;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube_core::metadata::PartialObjectMeta;
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::{ApiError, Skim};
use setpoint_runtime::{Action, BoxError, Context, Controller, Manager, Request, Watch};
use std::collections::HashSet;
use std::sync::Arc;

/// The controllers' name in logs.
const NAME: &str = "namespace-defaults";
/// The user agents, which are the reference's controllers.
const ACCOUNTS: &str = "service-account-controller";
const PUBLISHER: &str = "root-ca-cert-publisher";
/// The account of pods that name none.
pub(crate) const ACCOUNT: &str = "default";
/// The ConfigMap with the cluster's CA, its key and its description.
pub(crate) const ROOT_CA: &str = "kube-root-ca.crt";
const CA_KEY: &str = "ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIPTION_TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
/// Number of namespaces that are processed at the same time.
const WORKERS: usize = 5;

/// Creates and restores what every namespace has. Does nothing until a manager runs it.
#[derive(Debug)]
#[must_use]
pub struct NamespaceDefaults {
    setup: Setup,
    root_ca: Option<Arc<str>>,
}

impl NamespaceDefaults {
    /// The name of the ServiceAccount.
    pub const ACCOUNT: &str = ACCOUNT;
    /// The name of the ConfigMap.
    pub const ROOT_CA: &str = ROOT_CA;

    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup, root_ca: None }
    }

    /// The certificates (PEM) that clients inside the cluster verify the server with. Default:
    /// none, and no ConfigMap is created.
    pub fn root_ca(mut self, pem: Option<Arc<str>>) -> Self {
        self.root_ca = pem;
        self
    }

    /// Whether the controller has nothing to do, by all namespaces, ServiceAccounts and ConfigMaps
    /// as encoded objects. ConfigMaps are ignored without a `root_ca`.
    pub fn is_settled(
        namespaces: &[Bytes],
        accounts: &[Bytes],
        maps: &[Bytes],
        root_ca: Option<&str>,
    ) -> bool {
        // What cannot be read is missing.
        let namespaces_of = |objects: &[Bytes], is_right: &dyn Fn(&Skim<'_>, &Bytes) -> bool| {
            let skims = objects.iter().filter_map(|object| Some((Skim::of(object).ok()?, object)));
            let right = skims.filter(|(skim, object)| is_right(skim, object));
            right.map(|(skim, _)| skim.namespace.into_owned()).collect::<HashSet<_>>()
        };
        let with_account = namespaces_of(accounts, &|skim, _| skim.name == ACCOUNT);
        let with_map = root_ca.map(|root_ca| {
            namespaces_of(maps, &|skim, object| {
                skim.name == ROOT_CA
                    && serde_json::from_slice(object).is_ok_and(|map| is_right(&map, root_ca))
            })
        });
        namespaces.iter().all(|object| {
            let Ok(namespace) = Skim::of(object) else { return false };
            let name = &*namespace.name;
            !namespace.deletion_timestamp.is_empty()
                || with_account.contains(name)
                    && with_map.as_ref().is_none_or(|with_map| with_map.contains(name))
        })
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let mut controller = Controller::builder(NAME)
            .concurrency(WORKERS)
            .for_(Watch::<Namespace>::metadata())
            .watches(
                Watch::<ServiceAccount>::metadata(),
                |event: &Event<PartialObjectMeta<ServiceAccount>>| of_namespace(event),
            );
        if self.root_ca.is_some() {
            controller = controller
                .watches(Watch::<ConfigMap>::new(), |event: &Event<ConfigMap>| of_namespace(event));
        }
        let pass = Pass {
            accounts: self.setup.api(ACCOUNTS),
            publisher: self.setup.api(PUBLISHER),
            root_ca: self.root_ca,
        };
        manager.add(controller.sync_timeout(None).build(Boxed(pass))?)?;
        Ok(())
    }
}

/// The namespace of an event's object.
fn of_namespace<K: kube_client::Resource>(event: &Event<K>) -> Vec<Request> {
    vec![Request::cluster(event.key().namespace.clone())]
}

struct Pass {
    accounts: Api,
    publisher: Api,
    root_ca: Option<Arc<str>>,
}

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client();
        let found = client.metadata::<Namespace>().get(request)?;
        if found.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
            return Ok(Action::await_change());
        }
        let namespace = &*request.name;
        let key = Request::new(namespace, ACCOUNT);
        if client.metadata::<ServiceAccount>().get(&key)?.is_none() {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
            let account = json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT},
            });
            ignore_lost(self.accounts.post(&path, &account).await)?;
        }
        if let Some(root_ca) = &self.root_ca {
            let found = client.api::<ConfigMap>().get(&Request::new(namespace, ROOT_CA))?;
            self.publish(namespace, root_ca, found.as_deref()).await?;
        }
        Ok(Action::await_change())
    }
}

impl Pass {
    /// Creates the ConfigMap, or restores its data and its description.
    async fn publish(
        &self,
        namespace: &str,
        root_ca: &str,
        found: Option<&ConfigMap>,
    ) -> Result<(), RequestError> {
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let Some(found) = found else {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": ROOT_CA, "annotations": {DESCRIPTION: DESCRIPTION_TEXT}},
                "data": {CA_KEY: root_ca},
            });
            return ignore_lost(self.publisher.post(&collection, &map).await);
        };
        if is_right(found, root_ca) {
            return Ok(());
        }
        let data = found.data.as_ref();
        // Null removes further keys.
        let mut restored = json!({CA_KEY: root_ca});
        for key in data.into_iter().flatten().map(|(key, _)| key).filter(|key| *key != CA_KEY) {
            restored[key] = Value::Null;
        }
        let patch = json!({
            "metadata": {
                "uid": found.metadata.uid, "annotations": {DESCRIPTION: DESCRIPTION_TEXT},
            },
            "data": restored,
            "binaryData": null,
        });
        let path = format!("{collection}/{ROOT_CA}");
        ignore_lost(self.publisher.merge_patch(&path, &patch).await)
    }
}

/// Whether a ConfigMap has the CA, nothing else, and its description.
fn is_right(map: &ConfigMap, root_ca: &str) -> bool {
    let is_right = map.binary_data.is_none()
        && map.data.as_ref().is_some_and(|data| {
            data.len() == 1 && data.get(CA_KEY).is_some_and(|value| value == root_ca)
        });
    let description = map.metadata.annotations.as_ref().and_then(|all| all.get(DESCRIPTION));
    is_right && description.is_some_and(|text| text == DESCRIPTION_TEXT)
}

/// Whether a create was refused because its namespace is being deleted.
fn is_terminating(error: &ApiError) -> bool {
    let causes = error.0.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Ignores the answers of a race: the object exists already or no longer, or its namespace is being
/// deleted. An event follows.
fn ignore_lost(answer: Result<Value, RequestError>) -> Result<(), RequestError> {
    match answer {
        Err(error) if error.is_not_found() || error.is_already_exists() => Ok(()),
        Err(RequestError::Api(error)) if is_terminating(&error) => Ok(()),
        answer => answer.map(drop),
    }
}
