//! Answers: reading them within limits, and what HTTP errors mean.

use crate::client::RESPONSE_BYTES_MAX;
use crate::error::CallError;
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of one permit of the semaphore of read bytes.
pub(crate) const PERMIT_BYTES: usize = 1 << 10;
/// Compressed bytes that are decompressed before yielding: at most a mebibyte of text, less than
/// two milliseconds.
const SLICE_BYTES: usize = 1 << 10;
/// Maximum bytes of the body of an error that is parsed at once: 32 KiB, far less than a
/// millisecond.
const PARSED_BYTES_MAX: usize = 32 << 10;
/// Maximum bytes of the message of a `Status`: 64 KiB. A longer one is cut.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a body that an error shows, as client-go.
const SHOWN_BYTES_MAX: usize = 2048;

/// Why a body could not be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    Call(CallError),
    Broken(hyper::Error),
    Gzip(io::Error),
}

/// Reads a body, and decompresses it.
pub(crate) async fn read(
    headers: &HeaderMap,
    mut body: Incoming,
    room: &Semaphore,
) -> Result<Bytes, ReadError> {
    let too_large = || ReadError::Call(CallError::ResponseTooLarge(RESPONSE_BYTES_MAX));
    let is_gzip = headers.get(CONTENT_ENCODING).is_some_and(|coding| coding == "gzip");
    let mut taken = Taken { room, permits: None, n_bytes: 0 };
    let mut plain = Vec::new();
    let mut unpacked = MultiGzDecoder::new(Limited(Vec::new()));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(ReadError::Broken)?;
        let Some(data) = frame.data_ref() else { continue };
        if !is_gzip {
            taken.grow(plain.len() + data.len())?;
            if plain.len() + data.len() > RESPONSE_BYTES_MAX {
                return Err(too_large());
            }
            plain.extend_from_slice(data);
            continue;
        }
        for slice in data.chunks(SLICE_BYTES) {
            match unpacked.write_all(slice) {
                Ok(()) => taken.grow(unpacked.get_ref().0.len())?,
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    return Err(too_large());
                }
                Err(error) => return Err(ReadError::Gzip(error)),
            }
            tokio::task::yield_now().await;
        }
    }
    if is_gzip {
        plain = unpacked.finish().map_err(ReadError::Gzip)?.0;
    }
    Ok(plain.into())
}

/// The permits for the bytes read so far.
struct Taken<'s> {
    room: &'s Semaphore,
    permits: Option<SemaphorePermit<'s>>,
    n_bytes: usize,
}

impl Taken<'_> {
    fn grow(&mut self, n_bytes: usize) -> Result<(), ReadError> {
        let busy = || ReadError::Call(CallError::Busy);
        let more = n_bytes.div_ceil(PERMIT_BYTES) - self.n_bytes.div_ceil(PERMIT_BYTES);
        let more = u32::try_from(more).map_err(|_| busy())?;
        let permits = self.room.try_acquire_many(more).map_err(|_| busy())?;
        match &mut self.permits {
            Some(taken) => taken.merge(permits),
            None => self.permits = Some(permits),
        }
        self.n_bytes = n_bytes;
        Ok(())
    }
}

/// Bytes up to the limit.
struct Limited(Vec<u8>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > RESPONSE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// When the server wants the request again: 429 or 5xx with `Retry-After` in seconds.
pub(crate) fn retry_after(code: u16, headers: &HeaderMap) -> Option<Duration> {
    if code != 429 && code < 500 {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The answer's bytes, or the error for its code and body, as client-go has it.
///
/// # Errors
///
/// Any code outside 200 to 206, and an empty body.
pub(crate) async fn interpret(
    code: u16,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Bytes, CallError> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    if (200..=206).contains(&code) {
        if body.is_empty() {
            let shown = if content_type.is_empty() { "application/json" } else { content_type };
            return Err(CallError::Empty { code, content_type: shown.to_owned() });
        }
        return Ok(body);
    }
    // A long one is parsed on another thread.
    let message = match body.len() > PARSED_BYTES_MAX {
        false => status_message(&body),
        true => {
            let body = body.clone();
            let parsed = tokio::task::spawn_blocking(move || status_message(&body));
            parsed.await.ok().flatten()
        }
    };
    if let Some(message) = message {
        return Err(CallError::Http { code, message });
    }
    let is_text = content_type.is_empty() || content_type.starts_with("text/");
    let said = match is_text {
        true => String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]).trim().to_owned(),
        false => "unknown".to_owned(),
    };
    Err(CallError::Http { code, message: message_for(code, said) })
}

/// The members of a `Status` that count. The rest takes no memory.
#[derive(Deserialize)]
struct Failure<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
}

/// The message of a body that is a failed `Status`.
fn status_message(body: &[u8]) -> Option<String> {
    let Failure { kind, status, message } = serde_json::from_slice(body).ok()?;
    (kind == "Status" && status == "Failure").then(|| {
        let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
        message[..end].to_owned()
    })
}

/// The message for an HTTP code; `said` is the body's text.
fn message_for(code: u16, said: String) -> String {
    let text = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 406 | 415 => return said,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        code if code >= 500 => {
            let quoted = setpoint_object::field::quote(&said);
            return format!(
                "an error on the server ({quoted}) has prevented the request from succeeding"
            );
        }
        code => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn error(code: u16, content_type: &'static str, body: &'static str) -> String {
        let mut headers = HeaderMap::new();
        if !content_type.is_empty() {
            headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        }
        interpret(code, &headers, Bytes::from(body)).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn the_message_of_a_long_status_is_cut() {
        let message = "é".repeat(1 << 20);
        let body = format!(r#"{{"kind":"Status","status":"Failure","message":"{message}"}}"#);
        let error = interpret(403, &HeaderMap::new(), body.into()).await.unwrap_err();
        assert_eq!(error.to_string(), message[..MESSAGE_BYTES_MAX]);
    }

    #[tokio::test]
    async fn http_errors_have_the_words_of_client_go() {
        assert_eq!(
            error(500, "text/plain", "on fire\n").await,
            "an error on the server (\"on fire\") has prevented the request from succeeding"
        );
        assert_eq!(
            error(500, "application/json", "{}").await,
            "an error on the server (\"unknown\") has prevented the request from succeeding"
        );
        assert_eq!(error(404, "", "x").await, "the server could not find the requested resource");
        assert_eq!(
            error(302, "", "").await,
            "the server responded with the status code 302 but did not return more information"
        );
        assert_eq!(
            error(
                400,
                "application/json",
                r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}"#
            )
            .await,
            "no"
        );
        assert_eq!(
            error(200, "", "").await,
            "0-length response with status code: 200 and content type: application/json"
        );
    }
}
