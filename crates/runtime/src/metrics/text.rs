//! The text formats of scrapes.

#[cfg(feature = "endpoints")]
use bytes::Bytes;

/// Converts OpenMetrics to Prometheus' older format: a counter's family has the name of its
/// samples, and there is no end marker.
pub(super) fn prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len() + openmetrics.len() / 16);
    let mut about: Option<(&str, &str)> = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // The family's name depends on the type, which is on the next line.
            about = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let total = if kind == "counter" { "_total" } else { "" };
            let kind = if kind == "unknown" { "untyped" } else { kind };
            if let Some((_, help)) = about.take() {
                text.extend(["# HELP ", name, total, " ", help, "\n"]);
            }
            text.extend(["# TYPE ", name, total, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            text.extend([line, "\n"]);
        }
    }
    text
}

/// The answer to a scrape.
#[cfg(feature = "endpoints")]
pub(super) fn answer<B>(
    metrics: &super::Metrics,
    request: &http::Request<B>,
) -> http::Response<Bytes> {
    use http::{HeaderValue, Method, StatusCode, header};

    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut answer = http::Response::new(Bytes::from_static(b"Method Not Allowed\n"));
        *answer.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return answer;
    }
    let accepted = request.headers().get_all(header::ACCEPT);
    let wants_openmetrics = accepted.iter().any(|value| {
        value.to_str().is_ok_and(|value| value.contains("application/openmetrics-text"))
    });
    let (content_type, text) = if wants_openmetrics {
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", metrics.openmetrics())
    } else {
        ("text/plain; version=0.0.4; charset=utf-8", metrics.prometheus())
    };
    let mut answer = http::Response::new(Bytes::from(text));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
