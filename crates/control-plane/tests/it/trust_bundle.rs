//! The server's own ClusterTrustBundle.

use crate::user::{User, as_account, with_user};
use futures::FutureExt as _;
use serde_json::{Value, json};
use setpoint_control_plane::{ControlPlane, ControlPlaneBuilder, ServeOptions};
use setpoint_controllers::{Selection, TrustBundlePublisher};
use setpoint_registry::{Feature, RuntimeConfig};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
const AUTHORITY: &str = include_str!("../data/authority.pem");
const OTHER: &str = include_str!("../data/other.pem");

fn gated(served: &str) -> ControlPlaneBuilder {
    let gates = [Feature::ClusterTrustBundle];
    let served = format!("certificates.k8s.io/{served}=true");
    let config = RuntimeConfig::with_gates(&served, gates).unwrap();
    ControlPlane::builder().runtime_config(config)
}

fn bundles(version: &str) -> String {
    format!("/apis/certificates.k8s.io/{version}/clustertrustbundles")
}

/// Name and certificates of each bundle of the signer.
fn of_signer(list: &Value) -> Vec<(&str, &str)> {
    let items = list["items"].as_array().into_iter().flatten();
    let own = items.filter(|bundle| bundle["spec"]["signerName"] == SIGNER);
    own.map(|bundle| {
        let name = bundle["metadata"]["name"].as_str().unwrap();
        (name, bundle["spec"]["trustBundle"].as_str().unwrap())
    })
    .collect()
}

/// Waits until there is one bundle of the signer, with the authority, and returns its name.
async fn until_published(user: &User, version: &str) -> String {
    let is_one = |list: &Value| matches!(of_signer(list)[..], [(_, found)] if found == AUTHORITY);
    let list = user.until(&bundles(version), is_one).await;
    of_signer(&list)[0].0.to_owned()
}

/// What users see of the publisher.
async fn publish(user: User, version: &str) {
    let all = bundles(version);
    let bundle = |name: &str, signer: &str| {
        json!({
            "apiVersion": format!("certificates.k8s.io/{version}"), "kind": "ClusterTrustBundle",
            "metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": OTHER},
        })
    };
    let name = until_published(&user, version).await;
    let digest = name.strip_prefix("kubernetes.io:kube-apiserver-serving:").unwrap();
    assert_eq!(digest.len(), 24);
    // That of a former authority goes, those of others stay.
    user.create(&all, bundle("kubernetes.io:kube-apiserver-serving:former", SIGNER)).await;
    user.create(&all, bundle("example.com:x:y", "example.com/x")).await;
    assert_eq!(until_published(&user, version).await, name);
    // Changes are undone.
    let own = format!("{all}/{name}");
    user.patch(&own, json!({"spec": {"trustBundle": OTHER}})).await;
    assert_eq!(until_published(&user, version).await, name);
    user.delete(&own).await;
    assert_eq!(until_published(&user, version).await, name);
    assert!(user.get(&format!("{all}/example.com:x:y")).await.is_object());
}

#[tokio::test(start_paused = true)]
async fn publisher_works_with_its_own_account_and_role() {
    for version in TrustBundlePublisher::VERSIONS {
        let run = |setup, stop| {
            TrustBundlePublisher::new(setup, version, AUTHORITY.into()).run(stop).boxed()
        };
        let act = async |user| publish(user, version).await;
        let account = "kube-apiserver-serving-clustertrustbundle-publisher";
        as_account(gated(version), account, run, act).await;
    }
}

/// Runs a served control plane while `act` uses it.
async fn with_served(plane: ControlPlaneBuilder, act: impl AsyncFnOnce(User)) {
    let options = ServeOptions::new(([127, 0, 0, 1], 0));
    let plane = plane.build();
    let user = User::of(&plane);
    let serving = plane.serve(options).await.unwrap();
    let stop = CancellationToken::new();
    let acting = async {
        act(user).await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(serving.run(stop.clone()), acting);
    ended.unwrap();
}

#[tokio::test]
async fn a_served_plane_publishes_its_authority_with_the_feature_gate() {
    for version in TrustBundlePublisher::VERSIONS {
        with_served(gated(version).controllers(Selection::all()), async |user| {
            let is_one = |list: &Value| of_signer(list).len() == 1;
            let list = user.until(&bundles(version), is_one).await;
            let map = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
            let map = user.until(map, Value::is_object).await;
            assert_eq!(of_signer(&list)[0].1, map["data"]["ca.crt"]);
        })
        .await;
    }
}

/// Without a listener there is no authority, and the controller can be turned off.
#[tokio::test(start_paused = true)]
async fn nothing_is_published_without_an_authority_or_the_controller() {
    let off = "*,-kube-apiserver-serving-clustertrustbundle-publisher-controller";
    for selection in [Selection::all(), off.parse().unwrap()] {
        with_user(gated("v1beta1").controllers(selection), async |user| {
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(user.get(&bundles("v1beta1")).await["items"], json!([]));
        })
        .await;
    }
}
