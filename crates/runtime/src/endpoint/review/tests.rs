//! Reviews by an API server that records its requests.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use super::super::bearer::BearerAuth;

/// The server's requests, and how many of its answers are failures.
#[derive(Default)]
struct Api {
    reviews: Mutex<Vec<Value>>,
    failures: Mutex<u32>,
}

impl Api {
    fn take(&self) -> Vec<Value> {
        std::mem::take(&mut *self.reviews.lock())
    }

    fn answer(&self, review: &Value) -> (u16, Value) {
        {
            let mut failures = self.failures.lock();
            if *failures > 0 {
                *failures -= 1;
                return (
                    500,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500}),
                );
            }
        }
        self.reviews.lock().push(review.clone());
        let spec = &review["spec"];
        let status = match review["kind"].as_str() {
            Some("TokenReview") => match spec["token"].as_str() {
                Some("bad") => json!({"authenticated": false}),
                Some("long") => {
                    let group = "g".repeat(super::USER_BYTES_MAX);
                    json!({"authenticated": true, "user": {"username": "scraper", "groups": [group]}})
                }
                Some(name) => {
                    json!({"authenticated": true, "user": {"username": name, "uid": "7", "groups": ["g"]}})
                }
                None => json!({}),
            },
            _ => json!({"allowed": spec["user"] == "scraper"}),
        };
        (201, json!({"status": status}))
    }
}

fn auth(api: &Arc<Api>) -> BearerAuth {
    let api = api.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let api = api.clone();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let (code, answer) = api.answer(&serde_json::from_slice(&body).unwrap());
            let body = Full::new(Bytes::from(answer.to_string()));
            Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    BearerAuth::reviewed_seeded(kube_client::Client::new(service, "default"), 1)
}

async fn admit(auth: &BearerAuth, method: &str, path: &str, token: &str) -> StatusCode {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {token}"))
        .body(())
        .unwrap();
    match auth.admit(&request.into_parts().0).await {
        Ok(()) => StatusCode::OK,
        Err(answer) => answer.status(),
    }
}

#[tokio::test(start_paused = true)]
async fn spec_1_3_reviews_are_sent_once_and_cached() {
    let api = Arc::new(Api::default());
    let auth = auth(&api);
    assert_eq!(admit(&auth, "GET", "/metrics", "scraper").await, 200);
    let reviews = api.take();
    assert_eq!(reviews[0]["spec"], json!({"token": "scraper"}));
    assert_eq!(
        reviews[1]["spec"],
        json!({
            "user": "scraper", "uid": "7", "groups": ["g"], "extra": null,
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        })
    );
    assert_eq!(admit(&auth, "GET", "/metrics", "scraper").await, 200);
    assert_eq!(api.take().len(), 0, "both are remembered");
    assert_eq!(admit(&auth, "POST", "/metrics", "scraper").await, 200);
    assert_eq!(api.take().len(), 1, "another verb");
    advance(Duration::from_secs(61)).await;
    assert_eq!(admit(&auth, "GET", "/metrics", "scraper").await, 200);
    assert_eq!(api.take().len(), 1, "a token is good for a minute");
    advance(Duration::from_secs(240)).await;
    assert_eq!(admit(&auth, "GET", "/metrics", "scraper").await, 200);
    assert_eq!(api.take().len(), 2, "a permission for five");

    assert_eq!(admit(&auth, "GET", "/metrics", "other").await, 403);
    assert_eq!(admit(&auth, "GET", "/metrics", "other").await, 403);
    assert_eq!(api.take().len(), 2);
    advance(Duration::from_secs(31)).await;
    assert_eq!(admit(&auth, "GET", "/metrics", "other").await, 403);
    assert_eq!(api.take().len(), 1, "a refusal for half a minute");
    for _ in 0..3 {
        assert_eq!(admit(&auth, "GET", "/metrics", "bad").await, 401);
    }
    assert_eq!(api.take().len(), 1, "a bad token is remembered, too");
}

#[tokio::test(start_paused = true)]
async fn spec_1_3_failures_are_retried_four_times_and_then_answered_with_500() {
    let api = Arc::new(Api::default());
    let auth = auth(&api);
    *api.failures.lock() = 4;
    let began = Instant::now();
    assert_eq!(admit(&auth, "GET", "/metrics", "scraper").await, 200);
    // 500 ms, growing by half each time, plus up to a fifth at random.
    let waited = began.elapsed().as_secs_f64();
    assert!((4.0..4.9).contains(&waited), "{waited}");
    *api.failures.lock() = 100;
    assert_eq!(admit(&auth, "GET", "/metrics", "another").await, 500);
    assert_eq!(*api.failures.lock(), 95);
}

/// An API server that answers every review with pieces of nothing without an end.
fn endless(pause: Duration) -> kube_client::Client {
    let service = tower::service_fn(move |_: Request<Body>| async move {
        let pieces = futures::stream::unfold((), move |()| async move {
            tokio::time::sleep(pause).await;
            let piece = http_body::Frame::data(Bytes::from_static(&[b' '; 1024]));
            Some((Ok::<_, Infallible>(piece), ()))
        });
        let body = http_body_util::StreamBody::new(pieces);
        Ok::<_, Infallible>(http::Response::new(body))
    });
    kube_client::Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_an_end_is_left_at_its_limit_and_not_asked_for_again() {
    let auth = BearerAuth::reviewed_seeded(endless(Duration::from_millis(1)), 1);
    let began = Instant::now();
    assert_eq!(admit(&auth, "GET", "/metrics", "scraper").await, 500);
    // A mebibyte in pieces of a kibibyte.
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_access_review_that_is_answered_slowly_ends() {
    let reviewer = super::Reviewer::new(endless(Duration::from_secs(1)), 1);
    let began = Instant::now();
    let attributes = super::Attributes { path: "/metrics".into(), verb: "get".into() };
    let user = r#"{"username": "scraper"}"#.into();
    assert!(reviewer.authorize(&user, attributes).await.is_err());
    assert_eq!(began.elapsed(), super::ACCESS_MAX);
}

#[tokio::test]
async fn users_that_are_long_are_not_kept() {
    let api = Arc::new(Api::default());
    let auth = auth(&api);
    for _ in 0..2 {
        assert_eq!(admit(&auth, "GET", "/metrics", "long").await, 200);
        assert_eq!(api.take().len(), 2, "both are asked for again");
    }
}
