//! What becomes of an operator when the definition of its type comes, changes, goes and comes back.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams,
};
use setpoint::prelude::*;
use setpoint::runtime::cache::{ByType, CacheConfig};
use setpoint::runtime::reconciler::with_state;
use setpoint::runtime::{ControllerHandle, ControllerState, ManagerHandle};
use setpoint::testenv::{TestEnv, gone};

/// The spec of a Lamp.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone)]
#[kube(
    group = "home.example",
    version = "v1",
    kind = "Lamp",
    namespaced,
    selectable = ".spec.color",
    crates(kube_core = "setpoint::kube_core")
)]
struct LampSpec {
    color: String,
    #[serde(default)]
    watts: i32,
}

/// What the passes saw, in order.
type Seen = Mutex<Vec<String>>;

async fn reconcile(
    seen: Arc<Seen>,
    request: Request,
    context: Context,
) -> Result<Action, ClientError> {
    let lamp = context.client().api::<Lamp>().get(&request);
    let color = match &lamp {
        Ok(Some(lamp)) => &lamp.spec.color,
        Ok(None) => "gone",
        Err(_) => "unreadable",
    };
    seen.lock().push(format!("{} {color}", request.name));
    lamp.map(|_| Action::await_change())
}

/// An operator of Lamps, and what it does.
struct Operator {
    manager: ManagerHandle,
    lamps: ControllerHandle,
    seen: Arc<Seen>,
}

impl Operator {
    fn run(env: &TestEnv, cache: CacheOptions) -> Self {
        let seen = Arc::new(Seen::default());
        let manager = env.manager().cache(cache).build();
        let lamps = Controller::builder("lamps")
            .for_(Watch::<Lamp>::new())
            .build(with_state(seen.clone(), reconcile))
            .unwrap();
        let lamps = manager.handle().add(lamps).unwrap();
        let operator = Self { manager: manager.handle(), lamps, seen };
        env.run(manager);
        operator
    }

    /// Waits until its passes saw this, each as often as it is there.
    async fn has_seen(&self, env: &TestEnv, expected: &[&str]) {
        let what = format!("{expected:?} is seen");
        let seen = env.eventually(&what, async || (*self.seen.lock() == expected).then_some(()));
        // Virtual time, shorter than the patience of the environment.
        _ = tokio::time::timeout(Duration::from_secs(1000), seen).await;
        assert_eq!(std::mem::take(&mut *self.seen.lock()), expected);
    }

    /// Waits until its watch has this failure, or none.
    async fn is_degraded(&self, env: &TestEnv, text: Option<&str>) {
        let what = format!("the watch says {text:?}");
        env.eventually(&what, async || {
            let degraded = self.lamps.sources().remove(0).degraded;
            let is_met = match (&degraded, text) {
                (Some(degraded), Some(text)) => degraded.contains(text),
                (degraded, text) => degraded.is_some() == text.is_some(),
            };
            is_met.then_some(())
        })
        .await;
    }
}

const NOT_SERVED: &str = "the server could not find the requested resource";

fn lamp(name: &str, spec: Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "home.example/v1",
        "kind": "Lamp",
        "metadata": {"name": name},
        "spec": spec,
    }))
    .unwrap()
}

/// Lamps as trees, in a version.
fn lamps(env: &TestEnv, version: &str) -> Api<DynamicObject> {
    let mut resource = ApiResource::erase::<Lamp>(&());
    resource.api_version = format!("home.example/{version}");
    version.clone_into(&mut resource.version);
    Api::default_namespaced_with(env.client(), &resource)
}

async fn create(env: &TestEnv, name: &str, spec: Value) {
    lamps(env, "v1").create(&PostParams::default(), &lamp(name, spec)).await.unwrap();
}

async fn paint(env: &TestEnv, version: &str, name: &str, color: &str) {
    let patch = Patch::Merge(json!({"spec": {"color": color}}));
    lamps(env, version).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[setpoint::test]
async fn operator_follows_its_type_through_its_end_and_its_return(env: &TestEnv) {
    let operator = Operator::run(env, CacheOptions::new());
    operator.is_degraded(env, Some(NOT_SERVED)).await;
    assert_eq!(operator.lamps.state(), ControllerState::Syncing);

    let definitions: Api<CustomResourceDefinition> = Api::all(env.client());
    for color in ["red", "blue"] {
        env.install(&Lamp::crd()).await.unwrap();
        create(env, "a", json!({"color": color})).await;
        operator.has_seen(env, &[&format!("a {color}")]).await;
        operator.is_degraded(env, None).await;
        definitions.delete("lamps.home.example", &DeleteParams::default()).await.unwrap();
        env.until(&definitions, "lamps.home.example", gone()).await;
        operator.has_seen(env, &["a gone"]).await;
        operator.is_degraded(env, Some(NOT_SERVED)).await;
        assert_eq!(operator.lamps.state(), ControllerState::Running);
    }
}

#[setpoint::test]
async fn operator_follows_its_type_through_a_version_that_is_not_served(env: &TestEnv) {
    let definition = |v1_is_served: bool| -> CustomResourceDefinition {
        let mut definition = serde_json::to_value(Lamp::crd()).unwrap();
        let versions = definition["spec"]["versions"].as_array_mut().unwrap();
        let mut v2 = versions[0].clone();
        v2["name"] = "v2".into();
        versions[0]["storage"] = false.into();
        versions[0]["served"] = v1_is_served.into();
        versions.push(v2);
        serde_json::from_value(definition).unwrap()
    };
    env.install(&Lamp::crd()).await.unwrap();
    let operator = Operator::run(env, CacheOptions::new());
    create(env, "a", json!({"color": "red"})).await;
    operator.has_seen(env, &["a red"]).await;
    // The stored version changes.
    env.install(&definition(true)).await.unwrap();
    create(env, "b", json!({"color": "red"})).await;
    operator.has_seen(env, &["b red"]).await;
    paint(env, "v2", "a", "blue").await;
    operator.has_seen(env, &["a blue"]).await;

    env.install(&definition(false)).await.unwrap();
    operator.is_degraded(env, Some(NOT_SERVED)).await;
    paint(env, "v2", "a", "green").await;
    env.install(&definition(true)).await.unwrap();
    // All objects of a new list are handled, as in client-go.
    operator.has_seen(env, &["a green", "b red"]).await;
    operator.is_degraded(env, None).await;
}

#[setpoint::test]
async fn object_that_does_not_decode_fails_alone(env: &TestEnv) {
    let mut definition = serde_json::to_value(Lamp::crd()).unwrap();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"] = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"color": {"type": "string"}},
    });
    env.install(&serde_json::from_value(definition).unwrap()).await.unwrap();
    let operator = Operator::run(env, CacheOptions::new());
    create(env, "bad", json!({"color": "red", "watts": "many"})).await;
    create(env, "good", json!({"color": "red", "watts": 5})).await;
    let saw = |what: &'static str| {
        let seen = operator.seen.clone();
        async move || seen.lock().iter().any(|seen| seen == what).then_some(())
    };
    env.eventually("the bad one fails", saw("bad unreadable")).await;
    env.eventually("the good one is seen", saw("good red")).await;
    let api = operator.manager.client().api::<Lamp>();
    assert!(matches!(api.select().all(), Err(ClientError::CachedDecode(_))));
    let readable: Vec<_> =
        api.select().objects().unwrap().iter().filter_map(|lamp| lamp.get().ok()).collect();
    assert_eq!(readable.len(), 1);
    let explained = operator.lamps.explain(&Request::new("default", "bad"));
    let explained = explained[0].to_string();
    assert!(explained.contains("invalid type: string \"many\", expected i32"), "{explained}");

    let patch = Patch::Merge(json!({"spec": {"watts": 6}}));
    lamps(env, "v1").patch("bad", &PatchParams::default(), &patch).await.unwrap();
    env.eventually("it is mended", saw("bad red")).await;
    assert_eq!(api.select().all().unwrap().len(), 2);
}

#[setpoint::test]
async fn objects_enter_and_leave_a_cache_of_a_selectable_field(env: &TestEnv) {
    env.install(&Lamp::crd()).await.unwrap();
    let red = ByType::new().config(CacheConfig::new().fields("spec.color=red"));
    let cache = CacheOptions::new().of::<Lamp>(&(), red).unwrap();
    let operator = Operator::run(env, cache);
    create(env, "b", json!({"color": "blue"})).await;
    create(env, "a", json!({"color": "red"})).await;
    operator.has_seen(env, &["a red"]).await;
    paint(env, "v1", "a", "blue").await;
    operator.has_seen(env, &["a gone"]).await;
    paint(env, "v1", "b", "red").await;
    operator.has_seen(env, &["b red"]).await;
}
