//! The deadline of every request except long-running ones: a positive `?timeout=`, at most that of
//! the server, which is a minute by default.

use crate::body::Body;
use crate::query::Query;
use crate::respond;
use http::{Response, StatusCode};
use setpoint_object::{ApiError, duration};
use std::time::Duration;

/// Default maximum duration of an ordinary request: a minute, as kube-apiserver's
/// `--request-timeout`.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The timeout of a request, at most `max`; `None` for long-running ones.
///
/// # Errors
///
/// 400 for a `timeout` that is not a duration.
pub(crate) fn of(
    query: &Query,
    long_running: bool,
    max: Duration,
) -> Result<Option<Duration>, ApiError> {
    if long_running {
        return Ok(None);
    }
    let text = query.text("timeout");
    if text.is_empty() {
        return Ok(Some(max));
    }
    let asked = duration::parse(text).map_err(|error| {
        ApiError::bad_request(format!("invalid timeout specified in the request URL - {error}"))
    })?;
    Ok(Some(match u64::try_from(asked) {
        Ok(0) | Err(_) => max,
        Ok(nanos) => Duration::from_nanos(nanos).min(max),
    }))
}

/// Runs a handler with its timeout; `None`: it took longer. The handler is dropped then: a write in
/// progress may still succeed.
pub(crate) async fn within(
    deadline: Option<Duration>,
    handler: impl Future<Output = Response<Body>>,
) -> Option<Response<Body>> {
    let Some(deadline) = deadline else { return Some(handler.await) };
    tokio::time::timeout(deadline, handler).await.ok()
}

/// The answer after the timeout: the only `Status` that is sent as text, without kind and version.
pub(crate) fn expired() -> Response<Body> {
    const BODY: &str = concat!(
        r#"{"metadata":{},"status":"Failure","#,
        r#""message":"Timeout: request did not complete within the allotted timeout","#,
        r#""reason":"Timeout","details":{},"code":504}"#,
        "\n",
    );
    respond::text(StatusCode::GATEWAY_TIMEOUT, BODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_is_the_requested_one_up_to_the_servers() {
        for max in [REQUEST_TIMEOUT, Duration::from_secs(10)] {
            let of = |text: &str| super::of(&Query::parse(text), false, max).unwrap();
            assert_eq!(of(""), Some(max));
            assert_eq!(of("timeout=0s"), Some(max));
            assert_eq!(of("timeout=-5s"), Some(max));
            assert_eq!(of("timeout=5s"), Some(Duration::from_secs(5)));
            assert_eq!(of("timeout=2h"), Some(max));
            assert_eq!(super::of(&Query::parse("timeout=foo"), true, max).unwrap(), None);
        }
    }

    #[test]
    fn malformed_time_is_refused() {
        let error = of(&Query::parse("timeout=foo"), false, REQUEST_TIMEOUT).unwrap_err();
        assert_eq!(
            error.0.message,
            r#"invalid timeout specified in the request URL - time: invalid duration "foo""#
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_beyond_its_deadline_is_answered_with_504() {
        assert!(within(Some(Duration::from_secs(1)), std::future::pending()).await.is_none());
        let response = expired();
        assert_eq!(response.status(), 504);
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
        let text = "Timeout: request did not complete within the allotted timeout";
        assert_eq!(
            std::str::from_utf8(response.body().as_bytes().unwrap()).unwrap(),
            format!(
                "{{\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"{text}\",\"reason\":\"Timeout\",\"details\":{{}},\"code\":504}}\n"
            )
        );
    }
}
