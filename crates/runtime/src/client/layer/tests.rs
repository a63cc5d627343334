use http::{Method, header};
use tower::{ServiceBuilder, ServiceExt};

use super::*;
use crate::client::FieldValidation;

/// Sends a request through a layer to a server that answers with the request; its discovery has
/// pods, maps and nodes.
async fn send<L>(layer: L, request: Request<Body>) -> Result<String, String>
where
    L: Layer<Echo>,
    L::Service: Service<Request<Body>, Response = Response<Body>, Error = BoxError>,
{
    match layer.layer(Echo).oneshot(request).await {
        Ok(response) => Ok(text(response).await),
        Err(error) => Err(error.to_string()),
    }
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect_bytes().await.unwrap().to_vec()).unwrap()
}

#[derive(Clone)]
struct Echo;

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        async move {
            if request.uri().path() == "/api/v1" {
                let known = r#"{"resources":[{"name":"pods","namespaced":true},{"name":"nodes","namespaced":false}]}"#;
                return Ok(answer(http::StatusCode::OK, known));
            }
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let body = request.into_body().collect_bytes().await?;
            let body = String::from_utf8_lossy(&body).into_owned();
            Ok(answer(http::StatusCode::OK, format!("{method} {uri} {body}").trim_end()))
        }
        .boxed()
    }
}

fn request(method: Method, uri: &str, body: &str) -> Request<Body> {
    let builder = Request::builder().method(method).uri(uri);
    builder.body(Body::from(body.as_bytes().to_vec())).unwrap()
}

#[test]
fn call_is_read_from_method_and_path() {
    let read = |method, uri| {
        ApiCall::of(&request(method, uri, "")).map_or("-".to_owned(), |call| call.to_string())
    };
    for (method, uri, call) in [
        (Method::GET, "/api/v1/pods", "list pods"),
        (Method::GET, "/api/v1/pods?watch=true", "watch pods"),
        (Method::GET, "/api/v1/namespaces/a/pods/b", "get pods a/b"),
        (
            Method::GET,
            "https://host/apis/apps/v1/namespaces/a/deployments/b/scale",
            "get deployments.apps/scale a/b",
        ),
        (Method::GET, "/api/v1/namespaces", "list namespaces"),
        (Method::GET, "/api/v1/namespaces/a", "get namespaces a"),
        (Method::PUT, "/api/v1/namespaces/a/finalize", "update namespaces/finalize a"),
        (Method::PUT, "/api/v1/nodes/n/status", "update nodes/status n"),
        (Method::POST, "/api/v1/namespaces/a/pods/b/eviction", "create pods/eviction a/b"),
        (Method::PATCH, "/api/v1/nodes/n", "patch nodes n"),
        (Method::DELETE, "/api/v1/namespaces/a/pods", "deletecollection pods in a"),
        (Method::DELETE, "/api/v1/namespaces/a/pods/b", "delete pods a/b"),
        (Method::GET, "/api/v1", "-"),
        (Method::GET, "/apis/apps/v1", "-"),
        (Method::GET, "/version", "-"),
        (Method::GET, "/", "-"),
    ] {
        assert_eq!(read(method, uri), call, "{uri}");
    }
    let mut apply = request(Method::PATCH, "/api/v1/nodes/n", "");
    let yaml = http::HeaderValue::from_static("application/apply-patch+yaml");
    apply.headers_mut().insert(header::CONTENT_TYPE, yaml);
    assert_eq!(ApiCall::of(&apply).unwrap().verb, Verb::Apply);
}

#[tokio::test]
async fn dry_run_applies_to_every_write_and_to_no_read() {
    let send = |method, uri: &'static str, body: &'static str| {
        send(DryRun::new(), request(method, uri, body))
    };
    assert_eq!(send(Method::GET, "/api/v1/pods", "").await.unwrap(), "GET /api/v1/pods");
    assert_eq!(
        send(Method::POST, "/api/v1/namespaces/a/pods?&fieldManager=m", "{}").await.unwrap(),
        "POST /api/v1/namespaces/a/pods?fieldManager=m&dryRun=All {}"
    );
    assert_eq!(
        send(Method::DELETE, "/api/v1/nodes/n", "").await.unwrap(),
        "DELETE /api/v1/nodes/n?dryRun=All"
    );
    let body = r#"{"propagationPolicy":"Orphan"}"#;
    assert_eq!(
        send(Method::DELETE, "/api/v1/nodes/n?", body).await.unwrap(),
        r#"DELETE /api/v1/nodes/n?dryRun=All {"dryRun":["All"],"propagationPolicy":"Orphan"}"#
    );
    let refused = send(Method::DELETE, "/api/v1/nodes/n", "k8s\0").await.unwrap_err();
    assert_eq!(refused, LayerError::Options.to_string());
}

#[tokio::test]
async fn options_of_a_call_win_over_the_layers() {
    let layers = || {
        ServiceBuilder::new()
            .layer(FieldOwner::new("owner"))
            .layer(ValidateFields::new(FieldValidation::Strict))
    };
    let send = |uri| send(layers(), request(Method::POST, uri, ""));
    assert_eq!(
        send("/api/v1/nodes").await.unwrap(),
        "POST /api/v1/nodes?fieldManager=owner&fieldValidation=Strict"
    );
    let own = "/api/v1/nodes?fieldManager=me&fieldValidation=Ignore";
    assert_eq!(send(own).await.unwrap(), format!("POST {own}"));
    // The default of a client is overridden.
    let mut with_default = request(Method::POST, "/api/v1/nodes?fieldManager=me", "");
    with_default.extensions_mut().insert(DefaultOwner);
    let through = FieldOwner::new("an owner").layer(Echo).oneshot(with_default).await.unwrap();
    assert_eq!(text(through).await, "POST /api/v1/nodes?fieldManager=an%20owner");
}

#[tokio::test]
async fn namespaced_client_stays_in_its_namespace() {
    let layer = Namespaced::new("a");
    let send = |uri: &'static str| send(layer.clone(), request(Method::GET, uri, ""));
    for (uri, sent) in [
        ("/api/v1/pods?limit=1", "GET /api/v1/namespaces/a/pods?limit=1"),
        ("/api/v1/namespaces/a/pods/b", "GET /api/v1/namespaces/a/pods/b"),
        ("/api/v1/nodes/n", "GET /api/v1/nodes/n"),
        ("/version", "GET /version"),
    ] {
        assert_eq!(send(uri).await.unwrap(), sent);
    }
    assert_eq!(
        send("/api/v1/namespaces/b/pods").await.unwrap_err(),
        "only namespace a is allowed, not b"
    );
    assert_eq!(
        send("/api/v1/gadgets").await.unwrap_err(),
        "the scope of gadgets is unknown: it is not served"
    );
}

#[tokio::test(start_paused = true)]
async fn interceptor_answers_refuses_delays_and_forwards() {
    let layer = Interceptor::new(|call, request, next: Next| async move {
        match &*call.name {
            "answered" => Ok(answer(http::StatusCode::OK, "mine")),
            "refused" => Ok(refuse(&setpoint_object::ApiError::bad_request("no"))),
            "broken" => Err("cut".into()),
            "delayed" => {
                tokio::time::sleep(std::time::Duration::from_secs(9)).await;
                next.run(request).await
            }
            _ => next.run(request).await,
        }
    });
    let send = |uri: &'static str| send(layer.clone(), request(Method::GET, uri, ""));
    assert_eq!(send("/api/v1/nodes/answered").await.unwrap(), "mine");
    assert!(send("/api/v1/nodes/refused").await.unwrap().contains(r#""reason":"BadRequest""#));
    assert_eq!(send("/api/v1/nodes/broken").await.unwrap_err(), "cut");
    let began = tokio::time::Instant::now();
    assert_eq!(send("/api/v1/nodes/delayed").await.unwrap(), "GET /api/v1/nodes/delayed");
    assert_eq!(began.elapsed().as_secs(), 9);
    assert_eq!(send("/api/v1/nodes/other").await.unwrap(), "GET /api/v1/nodes/other");
    assert_eq!(send("/version").await.unwrap(), "GET /version");
}
