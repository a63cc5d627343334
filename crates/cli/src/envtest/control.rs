//! What an environment can do that envtest's cannot: pages under `/setpoint`, for administrators.

use super::faults::Faults;
use super::planes::Planes;
use super::requests::Requests;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::Value;
use setpoint::ControlPlaneBuilder;
use setpoint::apiserver::{Attributes, Body, Handler, RequestBody};
use setpoint::object::{ApiError, Reason};
use std::sync::Arc;

/// The path of all pages.
const PREFIX: &str = "/setpoint";
/// The group whose members may use them.
const ADMINISTRATORS: &str = "system:masters";
/// Maximum size of a body.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The answer of a page.
pub(super) type Answer = Result<Response<Body>, ApiError>;

/// The parts behind the pages.
#[derive(Debug, Clone)]
pub(crate) struct Pages {
    requests: Arc<Requests>,
    faults: Arc<Faults>,
    planes: Planes,
}

impl Pages {
    pub(crate) fn new(planes: Planes) -> Self {
        Self {
            requests: Arc::new(Requests::default()),
            faults: Arc::new(Faults::default()),
            planes,
        }
    }

    /// Adds the pages to a control plane.
    pub(crate) fn add_to(&self, plane: ControlPlaneBuilder) -> ControlPlaneBuilder {
        plane
            .audit(self.requests.clone())
            .interceptor(self.faults.clone())
            .route(PREFIX, Arc::new(self.clone()))
    }

    async fn answer(self, request: Request<RequestBody>) -> Answer {
        let attributes = request.extensions().get::<Arc<Attributes>>();
        if !attributes.is_some_and(|request| request.identity.is_in(ADMINISTRATORS)) {
            let why = "only members of system:masters may use /setpoint";
            return Err(ApiError::new(403, Reason::Forbidden, why));
        }
        let (parts, body) = request.into_parts();
        let body = read(body).await?;
        let body = match body.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&body)
                .map_err(|error| ApiError::bad_request(error.to_string()))?,
        };
        let query = parts.uri.query().unwrap_or_default();
        let path = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default();
        let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match &path[..] {
            ["requests"] => self.requests.answer(&parts.method, query),
            ["faults", rest @ ..] => self.faults.answer(&parts.method, rest, &body),
            ["planes", rest @ ..] => self.planes.answer(&parts.method, rest, &body).await,
            _ => Err(not_found(parts.uri.path())),
        }
    }
}

/// The whole body of a request.
async fn read(mut body: RequestBody) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::bad_request(error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > BODY_BYTES_MAX {
            return Err(ApiError::new(413, Reason::RequestEntityTooLarge, "the body is too large"));
        }
    }
    Ok(bytes)
}

impl Handler for Pages {
    /// kube-apiserver has no such path.
    fn is_listed(&self) -> bool {
        false
    }

    fn handle(&self, request: Request<RequestBody>) -> BoxFuture<'static, Response<Body>> {
        let control = self.clone();
        async move {
            let answer = control.answer(request).await;
            answer.unwrap_or_else(|error| {
                let code = StatusCode::from_u16(error.code());
                let code = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                json_bytes(code, error.to_json())
            })
        }
        .boxed()
    }
}

pub(super) fn not_found(path: &str) -> ApiError {
    ApiError::new(404, Reason::NotFound, format!("there is no {path}"))
}

pub(super) fn no_method(method: &Method) -> ApiError {
    ApiError::new(405, Reason::MethodNotAllowed, format!("{method} is not possible here"))
}

/// An answer with a document.
pub(super) fn json(code: StatusCode, document: &Value) -> Response<Body> {
    json_bytes(code, document.to_string())
}

fn json_bytes(code: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut answer = Response::new(Body::once(bytes));
    *answer.status_mut() = code;
    let kind = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}
