//! The server's own ClusterTrustBundle.

use crate::cluster::Cluster;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{Setup, TrustBundlePublisher};
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plan, Plans, Scenario, TestEnv};
use std::sync::LazyLock;

const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

/// The authority, and a former one: the same in all plays.
static AUTHORITIES: LazyLock<[String; 2]> = LazyLock::new(|| {
    [(), ()].map(|()| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    })
});

/// Bundles that users make, change and delete.
struct Published;

impl Scenario for Published {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        let gates = [Feature::ClusterTrustBundle];
        let config = RuntimeConfig::with_gates("api/beta", gates).expect("a valid text");
        builder.controllers(false).runtime_config(config)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        let authority = AUTHORITIES[0].as_str().into();
        TrustBundlePublisher::new(setup, "v1beta1", authority).run(life.stop.clone()).await
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let [authority, former] = &*AUTHORITIES;
        let bundle = |name: &str, signer: &str| {
            json!({
                "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
                "metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": former},
            })
        };
        let until_one = async || {
            let is_one = |all: &[Value]| {
                let mut own = all.iter().filter(|bundle| bundle["spec"]["signerName"] == SIGNER);
                let is_right = |bundle: &Value| bundle["spec"]["trustBundle"] == authority.as_str();
                own.next().is_some_and(is_right) && own.next().is_none()
            };
            let all = cluster.until_all(BUNDLES, is_one).await;
            let own = all.iter().find(|bundle| bundle["spec"]["signerName"] == SIGNER).unwrap();
            own["metadata"]["name"].as_str().unwrap().to_owned()
        };
        cluster.create(BUNDLES, &bundle("example.com:x:y", "example.com/x")).await;
        for name in ["a", "b"] {
            let name = format!("kubernetes.io:kube-apiserver-serving:{name}");
            let body = bundle(&name, SIGNER);
            match cluster.send("POST", BUNDLES, "application/json", &body).await {
                Ok(_) => {}
                // The answer to the first attempt was lost, and the publisher deletes it.
                Err(kube_client::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{name}: {error}"),
            }
        }
        let name = until_one().await;
        let path = format!("{BUNDLES}/{name}");
        cluster.patch(&path, &json!({"spec": {"trustBundle": former}})).await;
        until_one().await;
        cluster.delete(&path, &json!({})).await;
        assert_eq!(until_one().await, name);
    }
}

#[test]
fn the_authority_has_one_bundle_with_every_plan() {
    let plans = Plans::new().crashes().storms(8).plan(Plan::storm(44)).plan(Plan::storm(709));
    check(&Published, &plans);
}
