//! A request's way to its handler and back.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use setpoint_serve::Received;

use super::{
    BearerAuth, HEAD_MAX, REQUEST_BODY_BYTES_MAX,
    route::{Routes, text},
};

/// How long a body may take to arrive.
const BODY_MAX: Duration = HEAD_MAX;

/// What answers.
#[derive(Debug)]
pub(super) struct Answerer {
    pub(super) routes: Routes,
    pub(super) bearer: Option<BearerAuth>,
}

impl Answerer {
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Received>,
    ) -> Response<Full<Bytes>> {
        self.respond(request).await.map(Full::new)
    }

    async fn respond(&self, request: Request<Received>) -> Response<Bytes> {
        let (parts, body) = request.into_parts();
        if let Some(bearer) = &self.bearer
            && let Err(refused) = bearer.admit(&parts).await
        {
            return refused;
        }
        let too_large = || text(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large\n");
        if body.size_hint().lower() > REQUEST_BODY_BYTES_MAX as u64 {
            return too_large();
        }
        let body = Limited::new(body, REQUEST_BODY_BYTES_MAX).collect();
        let body = match tokio::time::timeout(BODY_MAX, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return too_large();
            }
            Ok(Err(_)) => return text(StatusCode::BAD_REQUEST, "the body cannot be read\n"),
            Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the body takes too long\n"),
        };
        self.routes.answer(Request::from_parts(parts, body)).await
    }
}
