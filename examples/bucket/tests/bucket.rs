//! The controller beside a control plane in this process, with a service that the test looks into.

use bucket::service::Service;
use bucket::{Bucket, BucketSpec, manager};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use setpoint::prelude::*;
use setpoint::testenv::scenario::check;
use setpoint::testenv::{Life, Plans, Scenario, TestEnv, gone, has_condition};

const PHOTOS: &str = "default/photos";

/// Gives the Secret an access key.
async fn set_access_key(env: &TestEnv, access_key: &str) -> Result<(), BoxError> {
    let secrets = Api::<Secret>::default_namespaced(env.client());
    let data = json!({"accessKey": access_key});
    let meta = json!({"name": "storage"});
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data});
    secrets.patch("storage", &PatchParams::apply("test").force(), &Patch::Apply(secret)).await?;
    Ok(())
}

/// Waits until the service has the bucket with this access key.
async fn has_access_key(env: &TestEnv, service: &Service, access_key: &str) {
    let is_there = || {
        let buckets = service.buckets();
        buckets.get(PHOTOS).is_some_and(|key| key == access_key.as_bytes()).then_some(())
    };
    env.eventually(&format!("the service knows {access_key}"), async || is_there()).await;
}

/// A Bucket before its Secret; then the Secret, and another access key.
async fn user(env: &TestEnv, service: &Service) -> Result<Api<Bucket>, BoxError> {
    let buckets = Api::<Bucket>::default_namespaced(env.client());
    let photos = Bucket::new("photos", BucketSpec { secret: "storage".into() });
    buckets.create(&PostParams::default(), &photos).await?;
    env.until(&buckets, "photos", has_condition("Ready", "False")).await;
    set_access_key(env, "one").await?;
    env.until(&buckets, "photos", has_condition("Ready", "True")).await;
    set_access_key(env, "two").await?;
    has_access_key(env, service, "two").await;
    Ok(buckets)
}

#[setpoint::test]
async fn bucket_follows_its_secret_and_its_service(env: &TestEnv) -> Result<(), BoxError> {
    let service = Service::default();
    env.run(manager(env.manager(), service.clone()).await?);
    let buckets = user(env, &service).await?;

    service.delete_by_hand(PHOTOS);
    has_access_key(env, &service, "two").await;

    buckets.delete("photos", &DeleteParams::default()).await?;
    env.until(&buckets, "photos", gone()).await;
    assert!(service.buckets().is_empty(), "the finalizer held it until this");
    Ok(())
}

/// The same while the controller dies and the server fails; the service lives on.
struct Photos;

impl Scenario for Photos {
    type World = Service;

    fn world(&self) -> Service {
        Service::default()
    }

    async fn live(&self, life: Life, service: Service) -> Result<(), BoxError> {
        Ok(manager(life.manager(), service).await?.run(life.stop).await?)
    }

    async fn drive(&self, env: &TestEnv, service: &Service) {
        env.install(&Bucket::crd()).await.expect("the definition is served");
        let buckets = user(env, service).await.expect("make a client for the user");
        let other = Bucket::new("music", BucketSpec { secret: "storage".into() });
        buckets.create(&PostParams::default(), &other).await.expect("create a bucket");
        env.until(&buckets, "music", has_condition("Ready", "True")).await;
        buckets.delete("photos", &DeleteParams::default()).await.expect("delete a bucket");
        env.until(&buckets, "photos", gone()).await;
    }

    fn outside(&self, service: &Service) -> Value {
        json!(service.buckets())
    }
}

#[test]
fn no_bucket_is_left_behind_whatever_happens() {
    check(&Photos, &Plans::new().crashes().storms(20));
}
