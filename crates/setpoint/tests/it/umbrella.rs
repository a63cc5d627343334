//! The umbrella crate `kube`, without its runtime, together with a controller: its clients, and
//! types with its derive.

use kube::api::PostParams;
use kube::{Api, Client, CustomResource};
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint::ControlPlane;
use setpoint::object::time::Timestamp;
use setpoint::prelude::*;
use std::time::Duration;

/// A square, declared as by a user of kube.
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

/// Retries until there is a result.
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
async fn definition_that_is_refused_or_never_served_is_an_error_with_the_reason() {
    use setpoint::runtime::crd::{INSTALL_TIMEOUT, install_and_wait};
    let plane = ControlPlane::builder().simulated(1).build();
    let (client, stop) = (plane.client(), CancellationToken::new());
    let user = async {
        let mut wrong = Square::crd();
        wrong.spec.versions[0].schema = None;
        let refused = install_and_wait(&client, "me", [wrong]).await.unwrap_err();
        assert_eq!(refused.to_string(), "apply the definition squares.example.dev");

        install_and_wait(&client, "me", [Square::crd()]).await.unwrap();
        // Another definition of the same group has the kind, so its names are not accepted.
        let mut other = Square::crd();
        other.metadata.name = Some("others.example.dev".into());
        other.spec.names.plural = "others".into();
        other.spec.names.singular = Some("other".into());
        let started = tokio::time::Instant::now();
        let late = install_and_wait(&client, "me", [other]).await.unwrap_err();
        assert_eq!(started.elapsed().as_secs(), INSTALL_TIMEOUT.as_secs());
        let text = late.to_string();
        assert!(text.contains("others.example.dev is not served after 30"), "{text}");
        assert!(text.contains("it is not NamesAccepted"), "{text}");
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(plane.run(stop.clone()), user);
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn clients_and_derived_types_of_kube_work_with_a_controller() {
    let plane = ControlPlane::builder().simulated(1).build();
    // The same type under both names.
    let client: Client = plane.client();
    let clock = Clock::starting_at(Timestamp::from_secs(1_767_225_600));
    let mut manager = Manager::builder(client.clone()).clock(clock).seed(1).build();
    let squares = Controller::builder("square").for_(Watch::<Square>::new()).sync_timeout(None);
    manager.add(squares.build(reconcile).unwrap()).unwrap();

    let (stop_manager, stop_plane) = (CancellationToken::new(), CancellationToken::new());
    let user = async {
        let squares = Api::<Square>::namespaced(client.clone(), "default");
        let square = Square::new("a", SquareSpec { side: 3 });
        squares.create(&PostParams::default(), &square).await.unwrap();
        let area = eventually(async || squares.get("a").await.unwrap().status?.area).await;
        stop_manager.cancel();
        area
    };
    let working = async {
        // Repeating it changes nothing.
        manager.install_crds([Square::crd()]).await.unwrap();
        manager.install_crds([Square::crd()]).await.unwrap();
        let (ended, area) = tokio::join!(manager.run(stop_manager.clone()), user);
        stop_plane.cancel();
        ended.unwrap();
        area
    };
    let (ended, area) = tokio::join!(plane.run(stop_plane.clone()), working);
    ended.unwrap();
    assert_eq!(area, 9);
}
