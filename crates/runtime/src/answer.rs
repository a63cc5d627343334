//! Answers of the API server, read within bounds of bytes and time.
//!
//! `kube_client::Client::request` reads an answer as a whole, however long it is and however slowly
//! it comes. What the runtime asks itself (reviews, Leases, definitions) has a known size.

use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube_client::client::Body;
use kube_core::Status;
use serde::de::DeserializeOwned;
use setpoint_informer::from_json;

use crate::error::BoxError;

/// Maximum time of an answer: 5 min, from the request to the last byte. The API server ends a
/// request after a minute (`--request-timeout`), and kube-client a connection without bytes after
/// 295 s.
pub const ANSWER_MAX: Duration = Duration::from_secs(300);

/// Maximum bytes of an answer with one small object, such as a Lease: 4 MiB. An API server accepts
/// no longer ones.
pub(crate) const OBJECT_BYTES_MAX: usize = 4 << 20;

/// Why an answer was not read to its end. The request may have been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// It is longer than expected.
    #[error("the answer has more than {bytes_max} bytes")]
    TooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// It did not end in time.
    #[error("no whole answer within {time_max:?}")]
    Slow {
        /// The limit.
        time_max: Duration,
    },
}

impl AnswerError {
    /// The cause of a client's error, if it is one.
    pub fn of(error: &kube_client::Error) -> Option<Self> {
        match error {
            kube_client::Error::Service(source) => source.downcast_ref().copied(),
            _ => None,
        }
    }
}

/// Sends a request and decodes its answer, as `kube_client::Client::request`, within bounds.
///
/// # Errors
///
/// The same as kube-client's; [`AnswerError`] as the cause of `Error::Service`.
///
/// Dropping the future ends the request, which may have been done.
pub async fn request<T: DeserializeOwned>(
    client: &kube_client::Client,
    request: http::Request<Vec<u8>>,
    bytes_max: usize,
    time_max: Duration,
) -> Result<T, kube_client::Error> {
    let failed = |error: BoxError| kube_client::Error::Service(error);
    let answered = async {
        let (head, body) = client.send(request.map(Body::from)).await?.into_parts();
        let body = match Limited::new(body, bytes_max).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(failed(AnswerError::TooLong { bytes_max }.into()));
            }
            Err(error) => return Err(failed(error)),
        };
        if !head.status.is_client_error() && !head.status.is_server_error() {
            return from_json(&body).map_err(kube_client::Error::SerdeError);
        }
        let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(&body[..body.len().min(512)]);
            Status::failure(text.trim(), "Failed to parse error data")
                .with_code(head.status.as_u16())
        });
        Err(kube_client::Error::Api(status.boxed()))
    };
    let answered = tokio::time::timeout(time_max, answered).await;
    answered.unwrap_or_else(|_| Err(failed(AnswerError::Slow { time_max }.into())))
}

/// A client whose answers fail after so many bytes, watches included. Call it within a runtime: a
/// client has a task, which ends with the client's last clone.
pub(crate) fn limited(client: &kube_client::Client, bytes_max: usize) -> kube_client::Client {
    let (namespace, until) = (client.default_namespace().to_owned(), *client.valid_until());
    let client = client.clone();
    let send = tower::service_fn(move |request: http::Request<Body>| {
        let client = client.clone();
        async move {
            let answer = client.send(request).await?;
            Ok::<_, kube_client::Error>(answer.map(|body| Limited::new(body, bytes_max)))
        }
    });
    kube_client::Client::new(send, namespace).with_valid_until(until)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures::{StreamExt as _, stream};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use serde_json::Value;

    use super::*;

    /// A client of a server that answers with pieces of a text: so many, with a pause between them.
    fn client(code: u16, piece: &'static str, n: usize, pause: Duration) -> kube_client::Client {
        let service = tower::service_fn(move |_: http::Request<Body>| async move {
            let pieces = stream::iter(0..n).then(move |_| async move {
                tokio::time::sleep(pause).await;
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(piece.as_bytes())))
            });
            let body = StreamBody::new(pieces);
            Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
        });
        kube_client::Client::new(service, "default")
    }

    async fn ask(client: &kube_client::Client) -> Result<Value, kube_client::Error> {
        let question = http::Request::get("/").body(Vec::new()).unwrap();
        request(client, question, 100, Duration::from_secs(10)).await
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_read_up_to_its_limits() {
        let short = ask(&client(200, "[1]", 1, Duration::ZERO)).await;
        assert_eq!(short.unwrap(), serde_json::json!([1]));
        let endless = ask(&client(200, "[", usize::MAX, Duration::ZERO)).await.unwrap_err();
        assert_eq!(AnswerError::of(&endless), Some(AnswerError::TooLong { bytes_max: 100 }));
        let endless = ask(&client(500, "[", usize::MAX, Duration::ZERO)).await.unwrap_err();
        assert_eq!(AnswerError::of(&endless), Some(AnswerError::TooLong { bytes_max: 100 }));
        // Each byte comes before a time-out between bytes.
        let slow = ask(&client(200, " ", 90, Duration::from_secs(9))).await.unwrap_err();
        assert!(matches!(AnswerError::of(&slow), Some(AnswerError::Slow { .. })), "{slow}");
    }

    #[tokio::test]
    async fn a_failure_is_its_status_or_made_of_the_code() {
        let text = r#"{"kind":"Status","status":"Failure","message":"no","code":403}"#;
        for (code, text, message) in [(403, text, "no"), (502, "bad gateway", "bad gateway")] {
            match ask(&client(code, text, 1, Duration::ZERO)).await {
                Err(kube_client::Error::Api(status)) => {
                    assert_eq!((status.code, &*status.message), (code, message));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_limited_client_reads_no_more_than_its_limit() {
        let endless = limited(&client(200, "[", usize::MAX, Duration::ZERO), 100);
        let question = http::Request::get("/").body(Vec::new()).unwrap();
        assert!(endless.request::<Value>(question).await.is_err());
    }
}
