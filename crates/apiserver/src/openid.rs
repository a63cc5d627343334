//! OpenID discovery: the issuer and the keys of service account tokens, for other servers.

use crate::body::Body;
use http::{HeaderValue, Response, header};
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::encode::{Members, push_in_order};
use setpoint_registry::ServiceAccountTokens;
use setpoint_registry::jwt::KeySet;
use std::sync::Arc;

/// The path of the discovery document.
pub(crate) const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// The path of the keys.
pub(crate) const PUBLIC_KEYS: &str = "/openid/v1/jwks";

/// The only media type of the keys.
pub(crate) const KEYS_TYPE: &str = "application/jwk-set+json";

/// How long clients may keep both, if this server signs: an hour, as kube-apiserver's.
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
    const ORDER: [&str; 5] = [
        "issuer",
        "jwks_uri",
        "response_types_supported",
        "subject_types_supported",
        "id_token_signing_alg_values_supported",
    ];
    let json = HeaderValue::from_static("application/json");
    Ok(respond(&document, &ORDER, json, cache_control(tokens)))
}

/// The keys.
///
/// # Errors
///
/// As [`configuration`].
pub(crate) fn public_keys(tokens: &ServiceAccountTokens) -> Result<Response<Body>, ApiError> {
    const ORDER: [&str; 10] = ["keys", "use", "kty", "kid", "crv", "alg", "x", "y", "n", "e"];
    let keys = keys(tokens)?.jwks();
    Ok(respond(&keys, &ORDER, HeaderValue::from_static(KEYS_TYPE), cache_control(tokens)))
}

fn cache_control(tokens: &ServiceAccountTokens) -> HeaderValue {
    let of_signer = tokens.signer().and_then(|signer| {
        let seconds = signer.keys_age_max().as_secs();
        HeaderValue::try_from(format!("public, max-age={seconds}")).ok()
    });
    of_signer.unwrap_or(CACHE_CONTROL)
}

fn keys(tokens: &ServiceAccountTokens) -> Result<Arc<KeySet>, ApiError> {
    tokens.key_ring().current().map_err(ApiError::internal)
}

/// Answers with a document whose members have the order of the reference server's structs.
fn respond(
    document: &Value,
    order: &[&str],
    media_type: HeaderValue,
    cache_control: HeaderValue,
) -> Response<Body> {
    let mut body = Vec::new();
    push_in_order(&mut body, document, &|members| {
        let mut sorted: Members<'_> = members.iter().collect();
        sorted.sort_by_key(|(name, _)| order.iter().position(|at| *at == **name));
        Some(sorted)
    });
    let mut response = Response::new(Body::once(body));
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response.headers_mut().insert(header::CACHE_CONTROL, cache_control);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_the_order_of_the_reference_server() {
        let document = json!({"keys": [{"alg": "RS256", "e": "AQAB", "kty": "RSA", "use": "sig"}]});
        let order = ["keys", "use", "kty", "alg", "e"];
        let answer = respond(&document, &order, HeaderValue::from_static(KEYS_TYPE), CACHE_CONTROL);
        let expected =
            r#"{"keys":[{"use":"sig","kty":"RSA","alg":"RS256","e":"AQAB"}]}"#.as_bytes();
        assert_eq!(answer.body().as_bytes(), Some(expected));
    }
}
