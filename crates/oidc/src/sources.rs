//! Where claims are that a token does not have itself: `_claim_names` and `_claim_sources` (OpenID
//! Connect Core 1.0, section 5.6.2).

use serde_json::{Map, Value};
use setpoint_object::field::quote;

/// From claims to sources.
const NAMES: &str = "_claim_names";

/// The sources: an endpoint, or a JWT (an *aggregated* claim, which kube-apiserver does not read).
const SOURCES: &str = "_claim_sources";

/// Where a claim is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    /// The bearer token that it wants; may be empty.
    pub(crate) access_token: String,
}

/// Checks that each claim that is elsewhere has a source. kube-apiserver does so for all tokens,
/// whether it needs the claims or not.
///
/// # Errors
///
/// A source is missing, or a member has another type.
pub(crate) fn check(claims: &Map<String, Value>) -> Result<(), String> {
    let wrong = |what: &str| format!("oidc: failed to unmarshal claims: {what}");
    let sources = object(claims, SOURCES).map_err(|why| wrong(&why))?;
    for source in sources.into_iter().flat_map(Map::values) {
        text(source, "endpoint").map_err(|why| wrong(&why))?;
        text(source, "access_token").map_err(|why| wrong(&why))?;
    }
    for source in
        object(claims, NAMES).map_err(|why| wrong(&why))?.into_iter().flat_map(Map::values)
    {
        match source {
            Value::Null => return Err("oidc: failed to obtain source from claim name".to_owned()),
            Value::String(name) if name.is_empty() => {
                return Err("oidc: failed to obtain source from claim name".to_owned());
            }
            Value::String(name) if sources.is_some_and(|known| known.contains_key(name)) => {}
            Value::String(_) => return Err("oidc: source does not exist".to_owned()),
            _ => return Err(wrong("a value of _claim_names is no text")),
        }
    }
    Ok(())
}

/// Where a claim of a checked token is; `None`: in the token, or nowhere. Aggregated claims are
/// nowhere, as in kube-apiserver.
///
/// # Errors
///
/// The token has names without sources, or a source has another type.
pub(crate) fn endpoint(
    claims: &Map<String, Value>,
    claim: &str,
) -> Result<Option<Endpoint>, String> {
    let Some(names) = claims.get(NAMES).filter(|_| !claims.contains_key(claim)) else {
        return Ok(None);
    };
    let unparsed = |why: String| format!("oidc: could not parse claim sources: {why}");
    if !claims.contains_key(SOURCES) {
        return Err("oidc: no claim sources".to_owned());
    }
    let sources = object(claims, SOURCES).map_err(unparsed)?;
    for source in sources.into_iter().flat_map(Map::values) {
        text(source, "JWT").map_err(unparsed)?;
    }
    let Some(name) = names.get(claim).and_then(Value::as_str) else { return Ok(None) };
    let Some(source) = sources.and_then(|sources| sources.get(name)) else {
        return Err(format!(
            "id token _claim_names contained a source {name} missing in _claims_sources"
        ));
    };
    let url = text(source, "endpoint").map_err(unparsed)?;
    if url.is_empty() {
        return Ok(None);
    }
    let access_token = text(source, "access_token").map_err(unparsed)?.to_owned();
    Ok(Some(Endpoint { url: url.to_owned(), access_token }))
}

/// An object or nothing.
fn object<'a>(
    claims: &'a Map<String, Value>,
    member: &str,
) -> Result<Option<&'a Map<String, Value>>, String> {
    match claims.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(format!("{member} is no object")),
    }
}

/// A text of a source, empty if it has none.
fn text<'a>(source: &'a Value, member: &str) -> Result<&'a str, String> {
    match source {
        Value::Null => Ok(""),
        Value::Object(source) => match source.get(member) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(format!("{} of a source is no text", quote(member))),
        },
        _ => Err("a source is no object".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(claims: &Value) -> String {
        let claims = claims.as_object().unwrap();
        let found = check(claims).and_then(|()| endpoint(claims, "groups"));
        match found {
            Ok(None) => "none".to_owned(),
            Ok(Some(Endpoint { url, access_token })) => format!("{url} {access_token}"),
            Err(why) => why,
        }
    }

    #[test]
    fn a_claim_is_in_the_token_or_at_an_endpoint() {
        let at = json!({"endpoint": "https://a", "access_token": "t"});
        for (claims, expected) in [
            (json!({}), "none"),
            (json!({"_claim_names": {"groups": "s"}, "_claim_sources": {"s": at}}), "https://a t"),
            (
                json!({"_claim_names": {"groups": "s"},
                    "_claim_sources": {"s": {"endpoint": "https://a"}}}),
                "https://a ",
            ),
            // What the token has itself counts, also null.
            (
                json!({"groups": null, "_claim_names": {"groups": "s"},
                    "_claim_sources": {"s": at}}),
                "none",
            ),
            (json!({"_claim_names": {"roles": "s"}, "_claim_sources": {"s": at}}), "none"),
            // Aggregated.
            (
                json!({"_claim_names": {"groups": "s"}, "_claim_sources": {"s": {"JWT": "a.b.c"}}}),
                "none",
            ),
            (json!({"_claim_names": {"groups": "s"}, "_claim_sources": {"s": null}}), "none"),
            (json!({"_claim_sources": {"s": at}}), "none"),
        ] {
            assert_eq!(found(&claims), expected, "{claims}");
        }
    }

    #[test]
    fn names_must_have_sources() {
        let unmarshal = "oidc: failed to unmarshal claims: ";
        for (claims, why) in [
            (json!({"_claim_names": {"groups": "s"}}), "oidc: source does not exist"),
            (
                json!({"_claim_names": {"roles": "t"}, "_claim_sources": {"s": {}}}),
                "oidc: source does not exist",
            ),
            (
                json!({"_claim_names": {"roles": ""}, "_claim_sources": {"": {}}}),
                "oidc: failed to obtain source from claim name",
            ),
            (
                json!({"_claim_names": {"roles": null}, "_claim_sources": {}}),
                "oidc: failed to obtain source from claim name",
            ),
            (json!({"_claim_names": {}}), "oidc: no claim sources"),
            (json!({"_claim_names": null}), "oidc: no claim sources"),
            (
                json!({"_claim_names": {}, "_claim_sources": {"s": {"JWT": 7}}}),
                "oidc: could not parse claim sources: \"JWT\" of a source is no text",
            ),
            (json!({"_claim_names": "s"}), &format!("{unmarshal}_claim_names is no object")),
            (
                json!({"_claim_names": {"groups": 7}}),
                &format!("{unmarshal}a value of _claim_names is no text"),
            ),
            (json!({"_claim_sources": ["s"]}), &format!("{unmarshal}_claim_sources is no object")),
            (json!({"_claim_sources": {"s": 7}}), &format!("{unmarshal}a source is no object")),
            (
                json!({"_claim_sources": {"s": {"endpoint": 7}}}),
                &format!("{unmarshal}\"endpoint\" of a source is no text"),
            ),
        ] {
            assert_eq!(found(&claims), why, "{claims}");
        }
    }
}
