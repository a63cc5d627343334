//! A controller over a service outside of the cluster: each `Bucket` gets a bucket there.
//!
//! | what changes                   | what triggers the reconcile                            |
//! |--------------------------------|--------------------------------------------------------|
//! | a `Bucket`                     | its watch                                              |
//! | the Secret that a Bucket names | an index of Buckets by Secret, and `watches_by_index`  |
//! | the bucket, at the service     | a channel                                              |
//! | nothing                        | a check of every bucket after ten minutes              |
//!
//! The finalizer is added before the first call of the service, and removed after the service has
//! deleted its bucket. So no bucket is left behind.

pub mod service;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use service::Service;
use setpoint::prelude::*;
use std::time::Duration;

/// The spec of a Bucket.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone)]
#[kube(
    group = "example.dev",
    version = "v1",
    kind = "Bucket",
    namespaced,
    status = "BucketStatus",
    crates(kube_core = "setpoint::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct BucketSpec {
    /// The Secret of this namespace whose member `accessKey` the service needs.
    pub secret: String,
}

/// The status of a Bucket.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct BucketStatus {
    /// `Ready`: the service has the bucket.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// The finalizer that keeps a deleted Bucket until the service has deleted its bucket.
const FINALIZER: &str = "example.dev/bucket";
/// The index of Buckets by the Secret that they name.
const BY_SECRET: &str = "spec.secret";
/// Time between two checks of a bucket without an event.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Builds the manager of the program. Tests use it too.
///
/// # Errors
///
/// The server refuses the definition.
pub async fn manager(builder: ManagerBuilder, service: Service) -> Result<Manager, BoxError> {
    let mut manager = builder.build();
    manager.install_crds([Bucket::crd()]).await?;
    let controller = Controller::builder("bucket")
        .for_(Watch::<Bucket>::new().index(BY_SECRET, |bucket: &Bucket| {
            let namespace = bucket.meta().namespace.as_deref().unwrap_or_default();
            vec![format!("{namespace}/{}", bucket.spec.secret)]
        }))
        .watches_by_index::<Bucket, _>(Watch::<Secret>::new(), BY_SECRET)
        .channel_of(service.notices(), |bucket| {
            let key = bucket.split_once('/');
            key.map(|(namespace, name)| Request::new(namespace, name)).into_iter().collect()
        })
        .build(Buckets { service })?;
    manager.add(controller)?;
    Ok(manager)
}

/// The reconciler, with its client of the service.
struct Buckets {
    service: Service,
}

impl Reconciler for Buckets {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        let buckets = context.client().api::<Bucket>();
        let Some(bucket) = buckets.get(&request)? else { return Ok(Action::await_change()) };
        let pass = async |finalize| match finalize {
            Finalize::Apply(bucket) => self.apply(&request, &bucket, &context).await,
            Finalize::Cleanup(_) => {
                self.service.remove(&request.to_string());
                Ok::<_, BoxError>(Action::await_change())
            }
        };
        Ok(finalizer(&buckets, FINALIZER, bucket, pass).await?)
    }
}

impl Buckets {
    async fn apply(
        &self,
        request: &Request,
        bucket: &Bucket,
        context: &Context,
    ) -> Result<Action, BoxError> {
        let key = Request::new(&*request.namespace, &*bucket.spec.secret);
        let secret = context.client().api::<Secret>().get(&key)?;
        let data = secret.as_ref().and_then(|secret| secret.data.as_ref());
        let (ready, reason, message) = match data.and_then(|data| data.get("accessKey")) {
            Some(access_key) => {
                self.service.ensure(&request.to_string(), &access_key.0);
                (true, "Available", "the service has it".to_owned())
            }
            // The next change of the Secret triggers another pass, by the index.
            None => (false, "SecretMissing", format!("the Secret {key} has no accessKey")),
        };
        let mut status = bucket.status.clone().unwrap_or_default();
        let (generation, now) = (bucket.meta().generation, context.clock().now());
        let conditions = &mut status.conditions;
        if set_condition(conditions, "Ready", ready, reason, &message, generation, now) {
            let status = Apply::<Bucket>::new(request).status(&status).force();
            context.client().api::<Bucket>().status().apply(&status).await?;
        }
        Ok(Action::requeue_after(LOOK_AGAIN))
    }
}
