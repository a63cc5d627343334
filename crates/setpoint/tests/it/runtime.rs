//! A controller's whole life over the server in this process, on paused time: the same seed gives
//! the same log.

use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_core::ResourceExt;
use network::api::{CRD_YAML, Network, NetworkStatus};
use setpoint::ControlPlane;
use setpoint::runtime::{
    Action, BoxError, Clock, Context, Controller, Finalize, Manager, ObjectReference, Reconciler,
    Request, Watch, create_or_update, finalizer, owner::set_controller_reference, set_condition,
    upsert::Upserted,
};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The log of events, line by line.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn push(&self, line: impl std::fmt::Display) {
        writeln!(self.0.lock().unwrap(), "{line}").unwrap();
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

/// Creates a ConfigMap, a condition and an event for each Network, and uses a finalizer.
struct Recorded(Log);

impl Reconciler for Recorded {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        let networks = context.client().api::<Network>();
        let Some(network) = networks.get(&request)? else {
            self.0.push(format_args!("{request} is gone"));
            return Ok(Action::await_change());
        };
        let pass = async |asked| match asked {
            Finalize::Apply(network) => self.apply(&request, &network, &context).await,
            Finalize::Cleanup(_) => {
                self.0.push(format_args!("{request} is cleaned up"));
                Ok::<_, BoxError>(Action::await_change())
            }
        };
        Ok(finalizer(&networks, "example.com/test", network, pass).await?)
    }
}

impl Recorded {
    async fn apply(
        &self,
        request: &Request,
        network: &Network,
        context: &Context,
    ) -> Result<Action, BoxError> {
        let maps = context.client().api::<ConfigMap>();
        let mut refused = None;
        let (_, upserted) = create_or_update(&maps, request, |existing| {
            let mut map = existing.unwrap_or_default();
            map.metadata.name = Some(request.name.to_string());
            map.metadata.namespace = Some(request.namespace.to_string());
            map.data.get_or_insert_default().insert("cidr".into(), network.spec.cidr.clone());
            refused = set_controller_reference(network, &(), &mut map).err();
            map
        })
        .await?;
        if let Some(refused) = refused {
            return Err(refused.into());
        }
        let mut status = network.status.clone().unwrap_or_default();
        let generation = network.metadata.generation;
        let now = context.clock().now();
        let changed = set_condition(
            &mut status.conditions,
            "Ready",
            true,
            "Synced",
            &network.spec.cidr,
            generation,
            now,
        );
        if changed {
            let patch = Patch::Merge(serde_json::json!({ "status": status }));
            context.client().api::<Network>().patch_status(request, &patch).await?;
            context.recorder().normal(
                &ObjectReference::of(network),
                "Synced",
                format!("{} is there", network.spec.cidr),
            );
        }
        if changed || upserted != Upserted::Unchanged {
            self.0.push(format_args!(
                "{request} generation {generation:?}: {upserted:?}, changed {changed}"
            ));
        }
        Ok(Action::await_change())
    }
}

async fn play(seed: u64) -> (String, usize) {
    let story = Log::default();
    let plane = ControlPlane::builder().simulated(seed).build();
    let client = plane.client();
    let stop = CancellationToken::new();
    let clock =
        Clock::starting_at(setpoint::object::time::Timestamp(Duration::from_secs(1_767_225_600)));
    let mut manager = Manager::builder(client.clone()).clock(clock).seed(seed).build();
    let controller = Controller::builder("test")
        .for_(Watch::<Network>::new())
        .owns(Watch::<ConfigMap>::new())
        .sync_timeout(None)
        .concurrency(2)
        .build(Recorded(story.clone()))
        .unwrap();
    let handle = manager.add(controller).unwrap();
    let informer = manager.cache().informer::<Network>();
    let ready = manager.readiness();
    let manager_stop = CancellationToken::new();
    let plane_running = plane.run(stop.clone());
    let manager_running = manager.run(manager_stop.clone());
    let wait = |ms| tokio::time::sleep(Duration::from_millis(ms));

    let acting = async {
        wait(10_000).await;
        story.push(informer.status().degraded.unwrap());
        let crd: CustomResourceDefinition = serde_json::from_value(yaml(CRD_YAML)).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &crd).await.unwrap();
        story.push(format_args!("ready {}", ready.ready().await));

        let networks = Api::<Network>::namespaced(client.clone(), "default");
        let mut object = Network::new(
            "a",
            network::api::NetworkSpec {
                cidr: "192.168.0.0/16".into(),
                gateway: "192.168.0.1".into(),
            },
        );
        object.status = Some(NetworkStatus::default());
        networks.create(&PostParams::default(), &object).await.unwrap();
        wait(1_000).await;
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
        story.push(maps.get("a").await.unwrap().data.unwrap()["cidr"].clone());

        let edit = serde_json::json!({"spec": {"cidr": "192.168.0.0/24"}});
        networks.patch("a", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
        wait(1_000).await;
        story.push(maps.get("a").await.unwrap().data.unwrap()["cidr"].clone());

        // Another client's change of an owned object is undone.
        let edit = serde_json::json!({"data": {"cidr": "mine"}});
        maps.patch("a", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
        wait(1_000).await;
        story.push(maps.get("a").await.unwrap().data.unwrap()["cidr"].clone());

        let status = networks.get("a").await.unwrap().status.unwrap();
        story.push(format_args!(
            "{} {:?}",
            status.conditions[0].message, status.conditions[0].observed_generation
        ));
        networks.delete("a", &DeleteParams::default()).await.unwrap();
        wait(1_000).await;
        story.push(format_args!(
            "left {}",
            networks.list(&ListParams::default()).await.unwrap().items.len()
        ));
        let events = Api::<CoreEvent>::namespaced(client.clone(), "default")
            .list(&ListParams::default())
            .await
            .unwrap();
        for event in &events {
            story.push(format_args!("{} {:?} {:?}", event.name_any(), event.message, event.count));
        }
        manager_stop.cancel();
        wait(1_000).await;
        stop.cancel();
    };
    let (plane, manager, ()) = tokio::join!(plane_running, manager_running, acting);
    plane.unwrap();
    manager.unwrap();
    (story.text(), handle.stats().error as usize)
}

fn yaml(text: &str) -> serde_json::Value {
    serde_saphyr::from_str(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn controller_that_starts_before_its_type_handles_an_objects_life() {
    let (story, n_errors) = play(1).await;
    expect_test::expect![[r#"
        failed to list networks.samplecrd.k8s.io: the server could not find the requested resource
        ready true
        default/a generation Some(1): Created, changed true
        192.168.0.0/16
        default/a generation Some(2): Updated, changed true
        192.168.0.0/24
        default/a generation Some(2): Updated, changed false
        192.168.0.0/24
        192.168.0.0/24 Some(2)
        default/a is cleaned up
        default/a is gone
        default/a is gone
        left 0
        a.188672568b0ae7c0 Some("192.168.0.0/16 is there") None
        a.18867256c6a5b1c0 Some("192.168.0.0/24 is there") None
    "#]]
    .assert_eq(&story);
    assert_eq!(n_errors, 0);
    assert_eq!(play(1).await.0, story, "the same seed plays the same story");
}
