//! A controller that creates for each ConfigMap a Secret with the same content. The subject of the
//! tests.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::Client;
use kube_client::api::{Api, PostParams};
use serde_json::json;
use setpoint_runtime::{
    Action, Apply, BoxError, Context, Controller, Manager, ManagerBuilder, Request, Watch,
    controller_reference,
};
use setpoint_testenv::TestEnv;

/// How the controller works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Correctly: by name, with an owner, by apply.
    Declarative,
    /// Incorrectly: a Secret with a generated name, then its name in the ConfigMap. A crash in
    /// between leaves an unknown Secret.
    Forgetful,
    /// Incorrectly: requeues immediately, forever.
    Restless,
}

/// A manager with the controller.
pub(crate) fn copier(builder: ManagerBuilder, style: Style) -> Result<Manager, BoxError> {
    let mut manager = builder.build();
    let reconcile = move |request: Request, context: Context| async move {
        reconcile(style, &request, &context).await
    };
    let watch = Watch::<ConfigMap>::new();
    manager.add(Controller::builder("copier").for_(watch).build(reconcile)?)?;
    Ok(manager)
}

async fn reconcile(style: Style, request: &Request, context: &Context) -> Result<Action, BoxError> {
    let client = context.client();
    let Some(map) = client.api::<ConfigMap>().get(request)? else {
        return Ok(Action::await_change());
    };
    if &*request.namespace != "default" || map.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let owner = controller_reference(&*map, &())?;
    match style {
        Style::Declarative | Style::Restless => {
            let secret = Apply::<Secret>::new(request)
                .owner(&owner)
                .set("/stringData", json!(map.data))
                .force();
            client.api::<Secret>().apply(&secret).await?;
        }
        Style::Forgetful => {
            let is_noted =
                map.metadata.annotations.as_ref().is_some_and(|a| a.contains_key("made"));
            if !is_noted {
                let secret: Secret = serde_json::from_value(json!({
                    "metadata": {"generateName": "copy-", "namespace": "default", "ownerReferences": [owner]},
                    "stringData": map.data,
                }))?;
                client.api::<Secret>().create(&secret).await?;
                let note = Apply::<ConfigMap>::new(request).annotation("made", "yes").force();
                client.api::<ConfigMap>().apply(&note).await?;
            }
        }
    }
    Ok(match style {
        Style::Restless => Action::requeue_after(std::time::Duration::from_millis(500)),
        _ => Action::await_change(),
    })
}

/// Creates a ConfigMap.
pub(crate) async fn create_map(client: Client, name: &str, color: &str) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"color": color}}));
    maps.create(&PostParams::default(), &map.unwrap()).await.unwrap();
}

/// The Secrets of the default namespace.
pub(crate) fn secrets(env: &TestEnv) -> Api<Secret> {
    Api::default_namespaced(env.client())
}
