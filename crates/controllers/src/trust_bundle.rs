//! The ClusterTrustBundle of the API server's certificates: pods mount it by the name of its
//! signer, [`SIGNER`], to know the server.
//!
//! # Theory
//!
//! The name of a bundle has a digest of its certificates, so that another authority is another
//! bundle. A pass creates the present one, restores its certificates, and then deletes all others
//! of the signer: there is a bundle at any time. Any change of a bundle of the signer is one pass,
//! and so is the start. Passes are repeated until the cache shows the bundle: a cache that lists
//! again may never have seen one that is gone.
//!
//! The rules are those of kube-controller-manager's
//! `kube-apiserver-serving-clustertrustbundle-publisher-controller`. It demands the rights of its
//! role there: it reads bundles by lists and watches only, and may `attest` for the signer.

use crate::api::{Api, ignore_not_found, of_uid};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use bytes::Bytes;
use kube_core::metadata::PartialObjectMeta;
use kube_core::{ApiResource, DynamicObject, Resource as _};
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_runtime::cache::ByType;
use setpoint_runtime::{Action, BoxError, CacheOptions, Context, Controller, Request, Watch};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The signer of the API server's certificates.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

/// The controller's name.
const NAME: &str = "kube-apiserver-serving-clustertrustbundle-publisher-controller";
const GROUP: &str = "certificates.k8s.io";
const KIND: &str = "ClusterTrustBundle";
const RESOURCE: &str = "clustertrustbundles";
/// How many bytes of the SHA-256 of the certificates the name has.
const DIGEST_BYTES: usize = 12;

/// Publishes the authorities of the API server's certificates. Does nothing until
/// [`TrustBundlePublisher::run`].
#[derive(Debug)]
#[must_use]
pub struct TrustBundlePublisher {
    setup: Setup,
    version: &'static str,
    authorities: Arc<str>,
}

impl TrustBundlePublisher {
    /// The versions of ClusterTrustBundles that it can write, the preferred one first.
    pub const VERSIONS: [&'static str; 2] = ["v1beta1", "v1alpha1"];

    /// Creates a controller that starts from `setup`, and publishes authorities in PEM with a
    /// version that the server serves, one of [`VERSIONS`](Self::VERSIONS).
    pub fn new(setup: Setup, version: &'static str, authorities: Arc<str>) -> Self {
        Self { setup, version, authorities }
    }

    /// Whether the controller has nothing to do, by all ClusterTrustBundles as encoded objects.
    pub fn is_settled(bundles: &[Bytes], authorities: &str) -> bool {
        let parsed = bundles.iter().map(|bundle| serde_json::from_slice::<Value>(bundle));
        let Ok(bundles) = parsed.collect::<Result<Vec<_>, _>>() else { return false };
        let mut own = bundles.iter().filter(|bundle| bundle["spec"]["signerName"] == SIGNER);
        let is_right = |bundle: &Value| {
            bundle.name() == name_of(authorities) && bundle["spec"]["trustBundle"] == authorities
        };
        own.next().is_some_and(is_right) && own.next().is_none()
    }

    /// Runs until `stop`, then lets a running pass finish. Dropping it stops everything at once.
    ///
    /// # Errors
    ///
    /// If it fails permanently.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        let Self { setup, version, authorities } = self;
        let resource = resource(version);
        let mut of_signer = ByType::default();
        of_signer.config.fields = Some(format!("spec.signerName={SIGNER}"));
        let caches = CacheOptions::new().of::<DynamicObject>(&resource, of_signer)?;
        let mut manager = setup.bare_manager().cache(caches).build();
        // There is one key, and one pass though there is no bundle.
        let (first, keys) = mpsc::channel(1);
        first.try_send(the_bundle())?;
        let bundles = Watch::<DynamicObject>::metadata_dynamic(resource).cluster_scoped();
        let controller = Controller::builder(NAME)
            .watches(bundles, |_| vec![the_bundle()])
            .channel(keys)
            .sync_timeout(None)
            .build(Boxed(Pass { api: setup.api(NAME), version, authorities }))?;
        manager.add(controller)?;
        Ok(manager.run(stop).await?)
    }
}

fn resource(version: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: version.to_owned(),
        api_version: format!("{GROUP}/{version}"),
        kind: KIND.to_owned(),
        plural: RESOURCE.to_owned(),
    }
}

fn the_bundle() -> Request {
    Request::cluster(SIGNER)
}

/// The name of the bundle of these certificates.
fn name_of(authorities: &str) -> String {
    let mut name = SIGNER.replace('/', ":") + ":";
    for byte in &Sha256::digest(authorities)[..DIGEST_BYTES] {
        // Writing to a String cannot fail.
        _ = write!(name, "{byte:02x}");
    }
    name
}

struct Pass {
    api: Api,
    version: &'static str,
    authorities: Arc<str>,
}

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, _: &Request, context: &Context) -> Result<Action, BoxError> {
        let collection = format!("/apis/{GROUP}/{}/{RESOURCE}", self.version);
        let name = name_of(&self.authorities);
        let (mut present, mut others) = (None, Vec::new());
        let take = |bundle: Value| match bundle.name() == name {
            true => present = Some(bundle),
            // Of the others, only what deletes them.
            false => others.push((bundle.name().to_owned(), bundle.uid().to_owned())),
        };
        let signer = SIGNER.replace('/', "%2F");
        let of_signer = format!("{collection}?fieldSelector=spec.signerName%3D{signer}");
        self.api.list_pages(&of_signer, take).await?;
        let certificates = Value::from(&*self.authorities);
        let bundle = match present {
            None => {
                let bundle = json!({
                    "apiVersion": format!("{GROUP}/{}", self.version), "kind": KIND,
                    "metadata": {"name": name},
                    "spec": {"signerName": SIGNER, "trustBundle": certificates},
                });
                self.api.post(&collection, &bundle).await?
            }
            Some(mut bundle) if bundle["spec"]["trustBundle"] != certificates => {
                bundle["spec"]["trustBundle"] = certificates;
                self.api.put(&format!("{collection}/{name}"), &bundle).await?
            }
            Some(bundle) => bundle,
        };
        for (name, uid) in others {
            let deleted = self.api.delete(&format!("{collection}/{name}"), &of_uid(&uid)).await;
            ignore_not_found(deleted)?;
        }
        let cache =
            context.client().api_with::<PartialObjectMeta<DynamicObject>>(resource(self.version));
        let shown = cache.get(&Request::cluster(name))?;
        let is_shown = shown.is_some_and(|shown| shown.meta().uid.as_deref() == Some(bundle.uid()));
        Ok(if is_shown { Action::await_change() } else { Action::requeue() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_has_a_digest_of_the_certificates() {
        assert_eq!(name_of("a\n"), "kubernetes.io:kube-apiserver-serving:87428fc522803d31065e7bce");
    }

    #[test]
    fn it_is_settled_with_one_right_bundle() {
        let bundle = |name: &str, signer: &str, certificates: &str| {
            let spec = json!({"signerName": signer, "trustBundle": certificates});
            Bytes::from(json!({"metadata": {"name": name}, "spec": spec}).to_string())
        };
        let right = bundle(&name_of("a"), SIGNER, "a");
        let wrong = bundle(&name_of("a"), SIGNER, "b");
        let former = bundle(&name_of("c"), SIGNER, "c");
        let foreign = bundle("example.com:x:y", "example.com/x", "c");
        let is_settled = |bundles: &[&Bytes]| {
            let bundles: Vec<Bytes> = bundles.iter().map(|bundle| (*bundle).clone()).collect();
            TrustBundlePublisher::is_settled(&bundles, "a")
        };
        assert!(is_settled(&[&right]) && is_settled(&[&foreign, &right]));
        assert!(!is_settled(&[]) && !is_settled(&[&foreign]) && !is_settled(&[&wrong]));
        assert!(!is_settled(&[&right, &former]) && !is_settled(&[&Bytes::from("{")]));
    }
}
