//! Resource quotas.

use super::observer::{at_every_change, of};
use crate::cluster::until_either;
use crate::workloads::cluster::{ask, until};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::gc::{ObjectEvent, ObjectFeed};
use setpoint_controllers::{QuotaController, Setup};
use setpoint_runtime::BoxError;
use setpoint_store::{ChangeFeed, Revision, Store, StoreError};
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const QUOTA: &str = "/api/v1/namespaces/default/resourcequotas/q";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Number of users who create objects at the same time.
const WRITERS: usize = 16;

/// Objects up to the limits of a quota, and beyond.
struct Limits;

/// The store of a play, once there is one.
#[derive(Clone, Default)]
struct Place(Arc<Mutex<Option<Arc<dyn Store>>>>);

/// The objects of a store, as the API server of the same process tells them.
struct Feed {
    store: Arc<dyn Store>,
    feed: Option<Box<dyn ChangeFeed>>,
    events: VecDeque<ObjectEvent>,
    seen: Option<Revision>,
}

impl Feed {
    fn of(store: Arc<dyn Store>) -> Self {
        let events = [ObjectEvent::Restarted, ObjectEvent::Synced].into();
        Self { store, feed: None, events, seen: None }
    }
}

impl ObjectFeed for Feed {
    fn next(&mut self) -> BoxFuture<'_, Option<ObjectEvent>> {
        async {
            loop {
                if let Some(event) = self.events.pop_front() {
                    return Some(event);
                }
                let Some(feed) = &mut self.feed else {
                    // A quota needs no object from before: passes list them.
                    let began = match self.seen {
                        Some(seen) => Ok(seen),
                        None => self.store.revision().await,
                    };
                    if let Ok(seen) = began {
                        match self.store.changes("/registry/".into(), seen).await {
                            Ok(feed) => (self.seen, self.feed) = (Some(seen), Some(feed)),
                            Err(StoreError::Compacted { .. }) => panic!("changes are lost"),
                            // The store fails now and then.
                            Err(_) => {}
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                };
                let Ok(batch) = feed.next().await else {
                    self.feed = None;
                    continue;
                };
                self.seen = Some(batch.revision);
                let event = |change: setpoint_store::Change| match (change.value, change.previous) {
                    (Some(object), _) => Some(ObjectEvent::Put(object)),
                    (None, previous) => previous.map(|old| ObjectEvent::Deleted(old.value)),
                };
                self.events.extend(batch.changes.iter().cloned().filter_map(event));
            }
        }
        .boxed()
    }
}

fn number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}

impl Scenario for Limits {
    type World = Place;

    fn world(&self) -> Place {
        Place::default()
    }

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, place: Place) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        let store = place.0.lock().clone();
        let store = store.ok_or("there is no store yet")?;
        QuotaController::new(setup).feed(Feed::of(store)).run(life.stop.clone()).await
    }

    async fn drive(&self, env: &TestEnv, place: &Place) {
        *place.0.lock() = Some(env.store().clone());
        let watch = at_every_change(env, "/registry/", |objects, change| {
            let Some(quota) = of(objects, "resourcequotas").next() else { return };
            for (resource, name) in [("configmaps", "count/configmaps"), ("pods", "pods")] {
                let is_counted = |object: &&Value| {
                    object["metadata"]["namespace"] == "default"
                        // Over, even if its removal is still to come.
                        && object["metadata"]["deletionGracePeriodSeconds"] != 0
                        && !matches!(
                            object["status"]["phase"].as_str(),
                            Some("Succeeded" | "Failed")
                        )
                };
                let n = of(objects, resource).filter(is_counted).count() as u64;
                let status = &quota["status"];
                let (hard, used) = (number(&status["hard"][name]), number(&status["used"][name]));
                if let (Some(hard), Some(used)) = (hard, used) {
                    assert!(used <= hard, "{change}: {name}: {used} of {hard} are used");
                    assert!(n <= used, "{change}: {name}: there are {n}, but {used} are used");
                }
            }
        });
        let users = async {
            let quota = json!({
                "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
                "spec": {"hard": {"count/configmaps": "4", "pods": "2"}},
            });
            ask(env, "POST", QUOTAS, &quota).await;
            let shows = async |maps: &str, pods: &str| {
                let is_so = |quota: &Value| {
                    let used = &quota["status"]["used"];
                    used["count/configmaps"] == maps && used["pods"] == pods
                };
                until(env, QUOTA, &format!("{maps} maps and {pods} pods are used"), is_so).await;
            };
            shows("0", "0").await;
            let map = async |name: &str| {
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                });
                create(env, MAPS, &map).await
            };
            let pod = async |name: &str| {
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                    "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"},
                });
                create(env, PODS, &pod).await
            };
            // Sixteen users at a time, with room for four.
            let names: Vec<String> = (0..WRITERS).map(|n| format!("w{n}")).collect();
            let made = futures::future::join_all(names.iter().map(|name| map(name))).await;
            let made: Vec<&String> =
                names.iter().zip(made).filter(|(_, is_made)| *is_made).map(|(n, _)| n).collect();
            assert_eq!(made.len(), 4, "{made:?}");
            shows("4", "0").await;
            for name in made {
                ask(env, "DELETE", &format!("{MAPS}/{name}"), &Value::Null).await;
            }
            shows("0", "0").await;
            // Two users at a time.
            for (first, second) in [("a", "b"), ("c", "d")] {
                assert_eq!(tokio::join!(map(first), map(second)), (true, true));
            }
            assert_eq!(tokio::join!(pod("p"), pod("q")), (true, true));
            assert_eq!(tokio::join!(map("e"), pod("r")), (false, false));
            shows("4", "2").await;

            // What is deleted or over makes room.
            let at_once = json!({"gracePeriodSeconds": 0});
            ask(env, "DELETE", &format!("{MAPS}/a"), &Value::Null).await;
            ask(env, "DELETE", &format!("{PODS}/p"), &at_once).await;
            shows("3", "1").await;
            let over = json!({"status": {"phase": "Succeeded"}});
            ask(env, "PATCH", &format!("{PODS}/q/status"), &over).await;
            shows("3", "0").await;
            assert_eq!(tokio::join!(map("e"), pod("r")), (true, true));
            shows("4", "1").await;

            // Limits change while objects come.
            let wider = json!({"spec": {"hard": {"count/configmaps": "6"}}});
            ask(env, "PATCH", QUOTA, &wider).await;
            for name in ["f", "g"] {
                while !map(name).await {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
            assert!(!map("h").await);
            shows("6", "1").await;
            ask(env, "DELETE", &format!("{MAPS}/f"), &Value::Null).await;
            shows("5", "1").await;
        };
        until_either(users, watch).await;
    }
}

/// Creates an object; false if a quota refuses it.
async fn create(env: &TestEnv, path: &str, object: &Value) -> bool {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    match env.client().request::<Value>(request).await {
        Ok(_) => true,
        Err(kube_client::Error::Api(status)) if status.code == 403 => false,
        Err(error) => panic!("{path}: {error:?}"),
    }
}

#[test]
fn quotas_are_never_exceeded_and_settle_with_every_plan() {
    check(&Limits, &Plans::new().storms(10));
}
