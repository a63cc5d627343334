//! Writes answers: JSON, YAML, protobuf or CBOR, indented or not, compressed or not; a
//! `Status` for every failure.

use crate::body::{Body, BodyError};
use crate::filter::large::{LARGE_BYTES_MIN, LargeAnswers};
use crate::indent;
use crate::list::{Form, ListWriter};
use crate::negotiate::{Accepted, Encoding, Endpoint, Types, accept_header, negotiate};
use crate::query::Query;
use bytes::{Bytes, BytesMut};
use futures::Stream;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use serde_json::Value;
use setpoint_object::status::Details;
use setpoint_object::{ApiError, Status, boolean};
use setpoint_registry::{List, Listed};
use setpoint_schema::{INLINE_BYTES_MAX, cbor, protobuf};
use std::io::Write as _;
use std::sync::Arc;

/// Bodies longer than this many bytes are compressed for clients that accept gzip: 128 KiB, as the
/// reference server's.
const GZIP_BYTES_MIN: usize = LARGE_BYTES_MIN;
/// Bytes of a large answer that are made at a time and then wait for the client: 64 KiB, four
/// HTTP/2 frames of the usual size.
const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes that are compressed at once: about a millisecond of work.
const ZIP_SLICE_BYTES: usize = 64 * 1024;
/// Items whose sizes are added up at once: each may be a cache miss.
const SUM_SLICE: usize = 8192;
/// Upper bound of the bytes of a list around its items.
const ENVELOPE_BYTES: usize = 512;

/// The properties of a request that decide how its answer is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// Indent JSON.
    pub(crate) pretty: bool,
    /// The client accepts gzip.
    pub(crate) gzip: bool,
}

impl Style {
    /// From headers and query. A value of `?pretty=` decides; only those that Go's `ParseBool`
    /// takes for true indent. Without one, the user agents of terminals and browsers do.
    pub(crate) fn of(headers: &HeaderMap, query: &Query) -> Self {
        let agent =
            headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let pretty = match query.text("pretty") {
            "" => ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix)),
            value => boolean::parse(value) == Some(true),
        };
        // Only the bare token counts: `gzip;q=0.5` does not.
        let gzip = headers
            .get_all(header::ACCEPT_ENCODING)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(','))
            .any(|token| token.trim() == "gzip");
        Self { pretty, gzip }
    }
}

/// Answers with a JSON document in the accepted encoding.
pub(crate) fn document(
    code: StatusCode,
    accepted: Accepted,
    style: Style,
    json: Bytes,
) -> Response<Body> {
    let mut media_type = accepted.encoding.media_type();
    let body = match accepted.encoding {
        // As in Go, without a newline at the end, which compact JSON has.
        Encoding::Json if style.pretty || accepted.pretty => indent::indented(&json).into(),
        Encoding::Json => with_newline(json),
        Encoding::Yaml => match to_yaml(&json) {
            Ok(text) => text.into(),
            Err(error) => return status(&ApiError::internal(error).0, Accepted::default(), style),
        },
        Encoding::Protobuf => match protobuf::object(&json) {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                media_type = in_json_instead(accepted.encoding, &error);
                with_newline(json)
            }
        },
        Encoding::Cbor => match cbor::object(&json) {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                media_type = in_json_instead(accepted.encoding, &error);
                with_newline(json)
            }
        },
    };
    with_body(code, media_type, style, body)
}

/// A list and the limits of its answer.
pub(crate) struct LargeList<'a> {
    pub(crate) form: Form,
    pub(crate) list: List,
    pub(crate) large: &'a LargeAnswers,
    pub(crate) user: &'a Arc<str>,
    /// The write is committed: its answer cannot be refused.
    pub(crate) is_done: bool,
}

/// Answers with a list. Up to [`LARGE_BYTES_MIN`] it is one piece, with its length. More is made as
/// the client reads it.
///
/// # Errors
///
/// 429 if too many large lists are being sent; 500 if one of the first items cannot be encoded.
pub(crate) async fn list(
    style: Style,
    LargeList { form, list, large, user, is_done }: LargeList<'_>,
) -> Result<Response<Body>, ApiError> {
    let mut items_bytes: usize = 0;
    for items in list.items.chunks(SUM_SLICE) {
        if items_bytes > 0 {
            tokio::task::yield_now().await;
        }
        items_bytes += items.iter().map(Listed::room).sum::<usize>();
    }
    let permit = async || match is_done {
        true => Ok(large.acquire_at_once(user, items_bytes)),
        false => large.acquire(user, items_bytes).await,
    };
    // Taken before any work is done, if it is certain to be needed.
    let early = if items_bytes > LARGE_BYTES_MIN { Some(permit().await?) } else { None };
    let mut writer =
        ListWriter::new(form, list, large.clone()).await.map_err(ApiError::internal)?;
    let mut first = Vec::with_capacity(items_bytes.min(LARGE_BYTES_MIN) + ENVELOPE_BYTES);
    while first.len() <= LARGE_BYTES_MIN {
        if !writer.push_slice(&mut first).await.map_err(ApiError::internal)? {
            let media_type = writer.media_type();
            return Ok(with_body(StatusCode::OK, media_type, style, first.into()));
        }
        tokio::task::yield_now().await;
    }
    let permit = match early {
        Some(permit) => permit,
        None => permit().await?,
    };
    let media_type = writer.media_type();
    let zip = style.gzip.then(Zip::new);
    let chunks = Chunks { writer, zip, first, is_done: false };
    let body = Body::try_stream(permit.send(chunks.into_stream()));
    Ok(response(StatusCode::OK, media_type, style.gzip, body))
}

/// A large list, chunk by chunk.
struct Chunks {
    writer: ListWriter,
    zip: Option<Zip>,
    /// Written, but not yet sent.
    first: Vec<u8>,
    is_done: bool,
}

impl Chunks {
    fn into_stream(self) -> impl Stream<Item = Result<Vec<u8>, BodyError>> + Send {
        futures::stream::unfold(self, |mut chunks| async move {
            if chunks.is_done {
                return None;
            }
            let chunk = chunks.next().await;
            chunks.is_done |= chunk.is_err();
            Some((chunk, chunks))
        })
    }

    /// The next chunk: [`CHUNK_BYTES`] and the rest of its last item. Yields between slices.
    async fn next(&mut self) -> Result<Vec<u8>, BodyError> {
        let mut out = Vec::new();
        loop {
            let mut slice = std::mem::take(&mut self.first);
            if slice.is_empty() {
                tokio::task::yield_now().await;
                slice.reserve(CHUNK_BYTES + CHUNK_BYTES / 4);
                self.is_done = !self.writer.push_slice(&mut slice).await?;
            }
            match &mut self.zip {
                Some(zip) => zip.push_all(&slice, &mut out).await?,
                None if out.is_empty() => out = slice,
                None => out.append(&mut slice),
            }
            if self.is_done
                && let Some(zip) = self.zip.take()
            {
                zip.finish(&mut out)?;
            }
            if self.is_done || out.len() >= CHUNK_BYTES {
                return Ok(out);
            }
        }
    }
}

/// Compresses an answer as it is made.
struct Zip(flate2::write::GzEncoder<Vec<u8>>);

impl Zip {
    fn new() -> Self {
        // Level 4 of 9, as the reference server: most of the saving at a fraction of the time.
        Self(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(4)))
    }

    /// Compresses, and yields after each millisecond of work or so.
    async fn push_all(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), BodyError> {
        for (at, part) in bytes.chunks(ZIP_SLICE_BYTES).enumerate() {
            if at > 0 {
                tokio::task::yield_now().await;
            }
            self.0.write_all(part).map_err(unzippable)?;
            out.append(self.0.get_mut());
        }
        Ok(())
    }

    fn finish(self, out: &mut Vec<u8>) -> Result<(), BodyError> {
        out.append(&mut self.0.finish().map_err(unzippable)?);
        Ok(())
    }
}

/// Compression to memory does not fail.
fn unzippable(error: std::io::Error) -> BodyError {
    BodyError::Encode(error.to_string())
}

/// Compresses bytes as they are sent.
fn zipped(bytes: Bytes) -> impl Stream<Item = Result<Bytes, BodyError>> + Send {
    futures::stream::unfold(Some((Zip::new(), bytes)), |left| async move {
        let (mut zip, mut bytes) = left?;
        let mut out = Vec::new();
        while out.len() < CHUNK_BYTES && !bytes.is_empty() {
            let part = bytes.split_to(bytes.len().min(ZIP_SLICE_BYTES));
            tokio::task::yield_now().await;
            if let Err(error) = zip.push_all(&part, &mut out).await {
                return Some((Err(error), None));
            }
        }
        if !bytes.is_empty() {
            return Some((Ok(out.into()), Some((zip, bytes))));
        }
        let ended = zip.finish(&mut out).map(|()| out.into());
        Some((ended, None))
    })
}

/// An object without a form in the accepted encoding (as stored objects may have) is sent in JSON,
/// because the write that it answers may be committed.
fn in_json_instead(encoding: Encoding, error: &(dyn std::error::Error + 'static)) -> &'static str {
    let accepted = encoding.media_type();
    tracing::error!(error, accepted, "answer in JSON: the object has no form in that encoding");
    Encoding::Json.media_type()
}

/// Adds the final newline: in place if the bytes are not shared.
fn with_newline(json: Bytes) -> Bytes {
    let mut text = match json.try_into_mut() {
        Ok(text) => text,
        Err(shared) => {
            let mut text = BytesMut::with_capacity(shared.len() + 1);
            text.extend_from_slice(&shared);
            text
        }
    };
    text.extend_from_slice(b"\n");
    text.freeze()
}

/// Answers with a body of a media type, compressed if it is long and the client accepts it.
pub(crate) fn with_body(
    code: StatusCode,
    media_type: &'static str,
    style: Style,
    body: Bytes,
) -> Response<Body> {
    let is_zipped = style.gzip && body.len() > GZIP_BYTES_MIN;
    let body = if is_zipped { Body::try_stream(zipped(body)) } else { Body::once(body) };
    response(code, media_type, is_zipped, body)
}

fn response(
    code: StatusCode,
    media_type: &'static str,
    is_zipped: bool,
    body: Body,
) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if is_zipped {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// Converts JSON to YAML.
pub(crate) fn to_yaml(json: &[u8]) -> Result<String, String> {
    let value: Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    serde_saphyr::to_string(&value).map_err(|error| error.to_string())
}

/// Answers with the `Status` of a failure, in the encoding that the client accepts, or as indented
/// JSON if it accepts none. That is never CBOR: what answers before a resource does has no CBOR in
/// the reference server.
pub(crate) fn error(error: &ApiError, headers: &HeaderMap, style: Style) -> Response<Body> {
    error_in(&error.0, headers, style, Types::default())
}

/// As [`error`], for failures of a resource that has some media types. Those of its route (no such
/// method, no such patch type) have none but the usual ones; they are known by their empty details.
fn error_in(failure: &Status, headers: &HeaderMap, style: Style, types: Types) -> Response<Body> {
    let is_of_route = failure.details.as_ref().is_some_and(|found| *found == Details::default());
    let types = if is_of_route { Types::default() } else { types };
    match negotiate(&accept_header(headers), Endpoint::Status, types) {
        Ok(accepted) => status(failure, accepted, style),
        Err(_) => status(failure, Accepted { pretty: true, ..Accepted::default() }, style),
    }
}

/// As [`error`], for the errors of a resource that has some media types. They may have any size,
/// because they repeat what the client sent. A large one is written on a blocking thread, and
/// counted until it is sent. If there is no room, the answer is 429.
pub(crate) async fn refusal(
    failure: Arc<Status>,
    headers: &HeaderMap,
    style: Style,
    types: Types,
    (large, user): (&LargeAnswers, &Arc<str>),
) -> Response<Body> {
    let n_bytes = failure.n_bytes();
    if n_bytes <= INLINE_BYTES_MAX {
        return error_in(&failure, headers, style, types);
    }
    let room = match large.reserve(user, n_bytes) {
        Ok(room) => room,
        Err(crowded) => return error_in(&crowded.0, headers, style, types),
    };
    let own_headers = headers.clone();
    let answer = move || room.hold(error_in(&failure, &own_headers, style, types));
    match large.run_blocking(answer).await {
        Ok(response) => response,
        Err(failed) => error_in(&ApiError::internal(failed).0, headers, style, types),
    }
}

/// Answers with the `Status` of a failure.
fn status(failure: &Status, accepted: Accepted, style: Style) -> Response<Body> {
    let code = failure.code.and_then(|code| StatusCode::from_u16(code).ok());
    let code = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = document(code, accepted, style, failure.to_json().into());
    let retry = failure.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, retry.into());
    }
    response
}

/// Answers with plain text.
pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::once(text));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// As [`text`], with the header that disables content sniffing.
pub(crate) fn plain(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    without_sniffing(text(code, body))
}

/// The same answer with the header that disables content sniffing. Refusals have it, because their
/// texts contain what the client sent.
pub(crate) fn without_sniffing(mut response: Response<Body>) -> Response<Body> {
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// `Internal Server Error`: the request cannot be served at all.
pub(crate) fn internal_error(uri: &Uri, error: &dyn std::fmt::Display) -> Response<Body> {
    let uri = uri.path_and_query().map_or("/", |uri| uri.as_str());
    let message = format!("Internal Server Error: {uri:?}: {error}\n");
    // Users choose the path, and browsers may show the answer.
    let message = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    plain(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// `404 page not found`: no route.
pub(crate) fn page_not_found() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// `service unavailable`: the backend is unavailable.
pub(crate) fn service_unavailable() -> Response<Body> {
    plain(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n")
}

/// An answer without a body.
pub(crate) fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}

/// Maximum total length of warning texts in characters; see [`WARNING_CHARS_MAX`].
const WARNINGS_CHARS_MAX: usize = 4096;
/// Maximum length of one warning if all together exceed [`WARNINGS_CHARS_MAX`].
const WARNING_CHARS_MAX: usize = 256;

/// Adds one `Warning` header per text. Drops texts with control characters. If all together are too
/// long, each is truncated, and those after the limit are dropped: the text that crosses it is the
/// last one, as in kube-apiserver.
pub(crate) fn add_warnings(headers: &mut HeaderMap, texts: &[String]) {
    let is_clean = |text: &str| !text.chars().any(char::is_control);
    let mut total = 0;
    // The text that crosses the limit untruncated. It and those before it are sent in any case.
    let crossing = texts.iter().position(|text| {
        total += if is_clean(text) { text.chars().count() } else { 0 };
        total > WARNINGS_CHARS_MAX
    });
    let each_max = if crossing.is_some() { WARNING_CHARS_MAX } else { usize::MAX };
    let mut n_sent = 0;
    for (idx, text) in texts.iter().enumerate() {
        if n_sent >= WARNINGS_CHARS_MAX && crossing.is_some_and(|crossing| idx > crossing) {
            break;
        }
        let cut: String = text.chars().take(each_max).collect();
        if !is_clean(&cut) {
            continue;
        }
        n_sent += cut.chars().count();
        let quoted = cut.replace('\\', r"\\").replace('"', r#"\""#);
        let line = format!("299 - \"{quoted}\"");
        if let Ok(value) = HeaderValue::from_bytes(line.as_bytes()) {
            headers.append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests;
