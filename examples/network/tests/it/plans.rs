//! The controller through crashes and faults: wherever it is stopped, networks and objects end
//! where they would have ended without.

use futures::future::BoxFuture;
use network::api::{CRD_YAML, Network, NetworkSpec};
use network::backend::{Allocation, Backend, BackendError, Desired, Existing, Owner};
use serde_json::{Value, json};
use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use setpoint::prelude::*;
use setpoint::testenv::scenario::check;
use setpoint::testenv::{Life, Plans, Scenario, TestEnv, gone, has_condition, matches};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Networks in memory, which outlive the controller.
#[derive(Debug, Clone, Default)]
struct Ranges(Arc<Mutex<BTreeMap<String, (String, Desired)>>>);

impl Backend for Ranges {
    fn ensure<'a>(
        &'a self,
        owner: &'a Owner,
        desired: Desired,
    ) -> BoxFuture<'a, Result<Allocation, BackendError>> {
        let mut ranges = self.0.lock().unwrap();
        let before = ranges.insert(owner.uid.clone(), (owner.name.clone(), desired));
        let changed = before.is_none_or(|(_, before)| before != desired);
        let device = format!("of {}", owner.name);
        Box::pin(async move { Ok(Allocation { device, changed }) })
    }

    fn get<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Option<Existing>, BackendError>> {
        let ranges = self.0.lock().unwrap();
        let held = ranges
            .get(&owner.uid)
            .map(|(name, desired)| Existing { desired: *desired, device: format!("of {name}") });
        Box::pin(async move { Ok(held) })
    }

    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool, BackendError>> {
        let was_held = self.0.lock().unwrap().remove(&owner.uid).is_some();
        Box::pin(async move { Ok(was_held) })
    }
}

/// Two networks, one of which is edited and then deleted.
struct TwoNetworks;

impl Scenario for TwoNetworks {
    type World = Ranges;

    fn world(&self) -> Ranges {
        Ranges::default()
    }

    fn definitions(&self) -> Vec<CustomResourceDefinition> {
        vec![serde_saphyr::from_str(CRD_YAML).unwrap()]
    }

    async fn live(&self, life: Life, world: Ranges) -> Result<(), BoxError> {
        let mut manager = life.manager().cache(network::controller::cache()).build();
        manager.add(network::controller::controller(Arc::new(world))?)?;
        manager.run(life.stop).await?;
        Ok(())
    }

    async fn drive(&self, env: &TestEnv, _world: &Ranges) {
        let networks: Api<Network> = Api::default_namespaced(env.client());
        for (name, cidr, gateway) in
            [("kept", "10.0.0.0/24", "10.0.0.1"), ("gone", "10.1.0.0/24", "10.1.0.1")]
        {
            let spec = NetworkSpec { cidr: cidr.into(), gateway: gateway.into() };
            networks.create(&PostParams::default(), &Network::new(name, spec)).await.unwrap();
        }
        for name in ["kept", "gone"] {
            env.until(&networks, name, has_condition("Ready", "True")).await;
        }
        let wider = json!({"spec": {"cidr": "10.1.0.0/16"}});
        networks.patch("gone", &PatchParams::default(), &Patch::Merge(wider)).await.unwrap();
        let is_wide = |network: &Value| network["status"]["cidr"] == "10.1.0.0/16";
        env.until(&networks, "gone", matches("is wider", is_wide)).await;
        networks.delete("gone", &DeleteParams::default()).await.unwrap();
        env.until(&networks, "gone", gone()).await;
    }

    fn outside(&self, world: &Ranges) -> Value {
        let ranges = world.0.lock().unwrap();
        let subnets = ranges.values().map(|(name, held)| json!([name, held.subnet.to_string()]));
        subnets.collect()
    }
}

#[test]
fn networks_end_the_same_by_every_plan() {
    let n = check(&TwoNetworks, &Plans::new().crashes().storms(60));
    assert!(n > 70, "{n} plans");
}
