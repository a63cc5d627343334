//! The controller over a cloud through crashes and faults, of the process and of the cloud.

use super::cloud::{Cloud, Fault};
use super::fake::Fake;
use futures::future::BoxFuture;
use network::api::{CRD_YAML, Network, NetworkSpec};
use network::backend::{
    Allocation, Backend, BackendError, Desired, Existing, NeutronBackend, Owner,
};
use serde_json::{Value, json};
use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use setpoint::object::time::Timestamp;
use setpoint::prelude::*;
use setpoint::testenv::scenario::check;
use setpoint::testenv::{Life, Plans, Scenario, TestEnv, gone, has_condition, matches};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A cloud that outlives the controller. It is made within the runtime of its play.
#[derive(Clone, Default)]
struct World(Arc<OnceLock<(Fake, Cloud)>>);

impl World {
    fn cloud(&self) -> &Cloud {
        let (_, cloud) = self.0.get_or_init(|| {
            let fake = Fake::new(Clock::starting_at(Timestamp::from_secs(1)));
            let cloud = fake.cloud("p1");
            let busy = Fault::Answer(503, None, Value::Null);
            for (start, fault) in [
                ("POST /v2.0/networks", Fault::LoseAnswer),
                ("PUT /v2.0/subnets", busy.clone()),
                ("POST /v2.0/ports", Fault::LoseAnswer),
                ("GET /v2.0/networks", Fault::LoseRequest),
                ("DELETE /v2.0/subnets", Fault::LoseAnswer),
                ("DELETE /v2.0/networks", busy),
            ] {
                cloud.wire.fault(start, fault);
            }
            (fake, cloud)
        });
        cloud
    }
}

/// The back end without the ids of networks, which differ between plays.
struct Nameless(NeutronBackend);

impl Backend for Nameless {
    fn ensure<'a>(
        &'a self,
        owner: &'a Owner,
        desired: Desired,
    ) -> BoxFuture<'a, Result<Allocation, BackendError>> {
        Box::pin(async move {
            let made = self.0.ensure(owner, desired).await?;
            Ok(Allocation { device: owner.name.clone(), ..made })
        })
    }

    fn get<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Option<Existing>, BackendError>> {
        Box::pin(async move {
            let existing = self.0.get(owner).await?;
            Ok(existing.map(|existing| Existing { device: owner.name.clone(), ..existing }))
        })
    }

    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool, BackendError>> {
        self.0.release(owner)
    }

    fn check_period(&self) -> Option<Duration> {
        self.0.check_period()
    }
}

/// Two networks, one of which is edited and then deleted.
struct TwoNetworks;

impl Scenario for TwoNetworks {
    type World = World;

    fn world(&self) -> World {
        World::default()
    }

    fn definitions(&self) -> Vec<CustomResourceDefinition> {
        vec![serde_saphyr::from_str(CRD_YAML).unwrap()]
    }

    async fn live(&self, life: Life, world: World) -> Result<(), BoxError> {
        let mut manager = life.manager().cache(network::controller::cache()).build();
        let backend = Nameless(world.cloud().backend());
        manager.add(network::controller::controller(Arc::new(backend))?)?;
        manager.run(life.stop).await?;
        Ok(())
    }

    async fn drive(&self, env: &TestEnv, _world: &World) {
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
    fn outside(&self, world: &World) -> Value {
        let (fake, _) = world.0.get().unwrap();
        fake.0.lock().unwrap().outline()
    }
}

#[test]
fn cloud_ends_the_same_by_every_plan() {
    let n = check(&TwoNetworks, &Plans::new().crashes().storms(40));
    assert!(n > 50, "{n} plans");
}
