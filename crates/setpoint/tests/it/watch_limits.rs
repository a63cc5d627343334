//! Limits of open watches, over HTTPS.

use crate::extension_backend::over_https;
use http::{Request, Response};
use kube_client::Client;
use kube_client::client::Body;
use setpoint::ControlPlane;
use setpoint::apiserver::RequestLimits;
use std::time::Duration;

/// How long the server may take to notice that a client has disconnected.
const PATIENCE: Duration = Duration::from_secs(60);

async fn watch(client: &Client) -> Response<Body> {
    let path = "/api/v1/namespaces/default/configmaps?watch=true";
    client.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn watches_beyond_the_limit_of_a_user_are_refused_until_one_ends() {
    let limits = RequestLimits::default().watches_per_user(2).watches(3);
    let builder = ControlPlane::builder().controllers(false).request_limits(limits);
    over_https(builder, async |_, admin, bob| {
        let first = watch(&bob).await;
        let second = watch(&bob).await;
        assert_eq!([first.status(), second.status()], [200, 200]);
        let refused = watch(&bob).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], "1");
        let mut of_admin = Vec::new();
        for _ in 0..4 {
            let open = watch(&admin).await;
            assert_eq!(open.status(), 200, "no limit for system:masters");
            of_admin.push(open);
        }
        drop(first);
        // The server notices the disconnect asynchronously.
        let admitted = async { while watch(&bob).await.status() != 200 {} };
        tokio::time::timeout(PATIENCE, admitted).await.expect("one watch has ended");
    })
    .await;
}
