//! The umbrella crate `kube`, without its runtime, beside a controller: its clients, and types by
//! its derive.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Client, CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint::ControlPlane;
use setpoint::object::time::Timestamp;
use setpoint::prelude::*;
use std::time::Duration;

/// A square, as a user of kube declares one.
#[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Square", namespaced, status = "SquareStatus")]
struct SquareSpec {
    side: u32,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct SquareStatus {
    area: Option<u32>,
}

async fn reconcile(request: Request, context: Context) -> Result<Action, BoxError> {
    let squares = context.client().api::<Square>();
    let Some(square) = squares.get(&request)? else { return Ok(Action::await_change()) };
    let status = json!({"area": square.spec.side.pow(2)});
    squares.status().apply(&Apply::<Square>::new(&request).status(status)).await?;
    Ok(Action::await_change())
}

/// Tries again until there is an answer.
async fn eventually<T>(attempt: impl AsyncFn() -> Option<T>) -> T {
    let patience = Duration::from_secs(300);
    let tries = async {
        loop {
            if let Some(answer) = attempt().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(patience, tries).await.expect("it happens")
}

#[tokio::test(start_paused = true)]
async fn clients_and_derived_types_of_kube_work_with_a_controller() {
    let plane = ControlPlane::builder().simulated(1).build();
    // The same type, under both names.
    let client: Client = plane.client();
    let clock = Clock::starting_at(Timestamp::from_secs(1_767_225_600));
    let mut manager = Manager::builder(client.clone()).clock(clock).seed(1).build();
    let squares = Controller::builder("square").for_(Watch::<Square>::new()).sync_timeout(None);
    manager.add(squares.build(reconcile).unwrap()).unwrap();

    let (stop_manager, stop_plane) = (CancellationToken::new(), CancellationToken::new());
    let user = async {
        let definitions = Api::<CustomResourceDefinition>::all(client.clone());
        definitions.create(&PostParams::default(), &Square::crd()).await.unwrap();
        let squares = Api::<Square>::namespaced(client.clone(), "default");
        let square = Square::new("a", SquareSpec { side: 3 });
        // The type is served a moment after it is defined.
        eventually(async || squares.create(&PostParams::default(), &square).await.ok()).await;
        let area = eventually(async || squares.get("a").await.unwrap().status?.area).await;
        stop_manager.cancel();
        area
    };
    let working = async {
        let (ended, area) = tokio::join!(manager.run(stop_manager.clone()), user);
        stop_plane.cancel();
        ended.unwrap();
        area
    };
    let (ended, area) = tokio::join!(plane.run(stop_plane.clone()), working);
    ended.unwrap();
    assert_eq!(area, 9);
}
