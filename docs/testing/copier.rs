//! A controller and its tests.

use setpoint::k8s_openapi::api::core::v1::{ConfigMap, Secret};
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{DeleteParams, PostParams};
use setpoint::prelude::*;
use setpoint::testenv::scenario::check;
use setpoint::testenv::{Life, Plans, Scenario, TestEnv, exists, gone};

/// Gives each ConfigMap of the default namespace a Secret of its name.
async fn reconcile(request: Request, context: Context) -> Result<Action, BoxError> {
    let Some(map) = context.client().api::<ConfigMap>().get(&request)? else {
        return Ok(Action::await_change());
    };
    let secret = Apply::<Secret>::new(&request)
        .controlled_by(&*map, &())?
        .set("/stringData", serde_json::json!(map.data))
        .force();
    context.client().api::<Secret>().apply(&secret).await?;
    Ok(Action::await_change())
}

fn manager(builder: ManagerBuilder) -> Result<Manager, BoxError> {
    let mut manager = builder.namespaces(["default"])?.build();
    let watch = Watch::<ConfigMap>::new();
    manager.add(Controller::builder("copier").for_(watch).build(reconcile)?)?;
    Ok(manager)
}

async fn create(env: &TestEnv, name: &str) -> Api<ConfigMap> {
    let maps: Api<ConfigMap> = Api::default_namespaced(env.client());
    let map = ConfigMap {
        metadata: setpoint::kube_core::ObjectMeta { name: Some(name.into()), ..<_>::default() },
        data: Some([("color".to_owned(), "red".to_owned())].into()),
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &map).await.unwrap();
    maps
}

#[setpoint::test]
async fn secret_comes_and_goes_with_its_config_map(env: &TestEnv) {
    env.run(manager(env.manager()).unwrap());
    let maps = create(env, "a").await;
    let secrets: Api<Secret> = Api::default_namespaced(env.client());
    env.until(&secrets, "a", exists()).await;
    maps.delete("a", &DeleteParams::background()).await.unwrap();
    env.until(&secrets, "a", gone()).await;
}

struct Copies;

impl Scenario for Copies {
    type World = ();

    fn world(&self) {}

    /// What `main` does.
    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        manager(life.manager())?.run(life.stop).await?;
        Ok(())
    }

    /// What users do, and wait for.
    async fn drive(&self, env: &TestEnv, _world: &()) {
        create(env, "a").await;
        let secrets: Api<Secret> = Api::default_namespaced(env.client());
        env.until(&secrets, "a", exists()).await;
    }
}

#[test]
fn secret_is_there_in_the_end_whatever_happens() {
    check(&Copies, &Plans::new().crashes().storms(30));
}
