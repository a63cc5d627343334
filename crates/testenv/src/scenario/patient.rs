//! A user's client that retries when the server cannot answer.

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use kube_client::Client;
use kube_client::client::Body;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the client retries.
const PATIENCE: Duration = Duration::from_secs(600);

/// Retries on 429 and 5xx. A 404 at the second attempt of a delete means that the first one deleted
/// the object. A refusal at the second attempt of a create means that the first one created it, if
/// the object exists.
pub(super) fn patient(inner: Client) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let started = Instant::now();
            let mut n_tries = 0;
            loop {
                let again = Request::from_parts(parts.clone(), Body::from(body.clone()));
                let mut answer = inner.send(again).await?;
                let status = answer.status();
                n_tries += 1;
                if !may_pass(status) || started.elapsed() > PATIENCE {
                    match (&parts.method, status) {
                        (&Method::DELETE, StatusCode::NOT_FOUND) if n_tries > 1 => {
                            *answer.status_mut() = StatusCode::OK;
                        }
                        (
                            &Method::POST,
                            // A limit or an address that the first one has taken.
                            StatusCode::CONFLICT
                            | StatusCode::FORBIDDEN
                            | StatusCode::UNPROCESSABLE_ENTITY,
                        ) if n_tries > 1 => {
                            if let Some(created) = created(&inner, &parts, &body).await? {
                                return Ok(created);
                            }
                        }
                        _ => {}
                    }
                    return Ok::<_, kube_client::Error>(answer);
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    });
    Client::new(service, "default")
}

/// The response that the first attempt of a create would have had: the current object. `None` if
/// the object has no name, or no longer exists.
async fn created(
    client: &Client,
    parts: &Parts,
    body: &[u8],
) -> Result<Option<Response<Body>>, kube_client::Error> {
    let tree: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(name) = tree["metadata"]["name"].as_str() else { return Ok(None) };
    let uri = format!("{}/{name}", parts.uri.path());
    let started = Instant::now();
    loop {
        let get = Request::get(&uri).body(Body::empty()).map_err(kube_client::Error::HttpError)?;
        let found = client.send(get).await?;
        if !may_pass(found.status()) || started.elapsed() > PATIENCE {
            return Ok(found.status().is_success().then_some(found));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether another attempt may have another answer.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}
