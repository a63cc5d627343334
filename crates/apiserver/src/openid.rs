//! OpenID discovery: the issuer and the keys of service account tokens, for other servers.

use crate::body::Body;
use http::{HeaderValue, Response, header};
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_registry::ServiceAccountTokens;
use setpoint_registry::jwt::KeySet;
use std::sync::Arc;

/// The path of the discovery document.
pub(crate) const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// The path of the keys.
pub(crate) const PUBLIC_KEYS: &str = "/openid/v1/jwks";

/// How long clients may keep both: an hour, as kube-apiserver's.
const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// The discovery document. `address` is the server's own `host:port`.
///
/// # Errors
///
/// 500: there are no keys.
pub(crate) fn configuration(
    tokens: &ServiceAccountTokens,
    address: &str,
) -> Result<Response<Body>, ApiError> {
    let uri = match tokens.public_keys_uri() {
        "" => format!("https://{address}{PUBLIC_KEYS}"),
        uri => uri.to_owned(),
    };
    let algorithms = keys(tokens)?.algorithms();
    let algorithms: Vec<_> = algorithms.iter().map(|algorithm| algorithm.as_str()).collect();
    let document = json!({
        "issuer": tokens.issuers().first(),
        "jwks_uri": uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
    });
    Ok(respond(&document, HeaderValue::from_static("application/json")))
}

/// The keys.
///
/// # Errors
///
/// As [`configuration`].
pub(crate) fn public_keys(tokens: &ServiceAccountTokens) -> Result<Response<Body>, ApiError> {
    let keys = keys(tokens)?.jwks();
    Ok(respond(&keys, HeaderValue::from_static("application/jwk-set+json")))
}

fn keys(tokens: &ServiceAccountTokens) -> Result<Arc<KeySet>, ApiError> {
    tokens.key_ring().current().map_err(ApiError::internal)
}

fn respond(document: &Value, media_type: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::once(document.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response.headers_mut().insert(header::CACHE_CONTROL, CACHE_CONTROL);
    response
}
