//! The claims that every token must have: issuer, audience, times.

use crate::sources;
use serde_json::{Map, Value};
use setpoint_object::field::quote;
use setpoint_object::time::Timestamp;
use std::time::Duration;

/// How far in the future `nbf` may be: a minute, as kube-apiserver.
const LEEWAY: Duration = Duration::from_secs(60);

/// Later times cannot be printed: 9999-12-30.
const SECONDS_MAX: u64 = 253_402_200_000;

/// Issuers that Google writes with and without a scheme.
const GOOGLE: &str = "https://accounts.google.com";
const GOOGLE_SHORT: &str = "accounts.google.com";

/// The issuer of a token as it is configured.
pub(crate) fn full_issuer(issuer: &str) -> &str {
    if issuer == GOOGLE_SHORT { GOOGLE } else { issuer }
}

/// Checks audience and times, and that the claims that are elsewhere have sources. Returns when the
/// token ends.
///
/// # Errors
///
/// The token is for others, has ended, or is not valid yet, or a source is missing.
pub(crate) fn check(
    claims: &Map<String, Value>,
    audiences: &[String],
    now: Timestamp,
) -> Result<Timestamp, String> {
    sources::check(claims)?;
    let found = audiences_of(claims)?;
    if !audiences.iter().any(|audience| found.contains(&audience.as_str())) {
        let list =
            |texts: &mut dyn Iterator<Item = &str>| texts.map(quote).collect::<Vec<_>>().join(" ");
        let found = list(&mut found.into_iter());
        return Err(match audiences {
            [one] => format!("oidc: expected audience {} got [{found}]", quote(one)),
            several => {
                let mut sorted: Vec<&str> = several.iter().map(String::as_str).collect();
                sorted.sort_unstable();
                let wanted = list(&mut sorted.into_iter());
                format!("oidc: expected audience in [{wanted}] got [{found}]")
            }
        });
    }
    let expires = time(claims, "exp")?;
    match expires {
        Some(expires) if expires >= now => {}
        expires => {
            let shown = expires.map_or("0001-01-01 00:00:00 +0000 UTC".to_owned(), go_time);
            return Err(format!("oidc: token is expired (Token Expiry: {shown})"));
        }
    }
    if let Some(start) = time(claims, "nbf")?
        && now + LEEWAY < start
    {
        return Err(format!(
            "oidc: current time {} before the nbf (not before) time: {}",
            go_time(now),
            go_time(start)
        ));
    }
    Ok(expires.unwrap_or(now))
}

/// `aud`: a text or a list of texts.
fn audiences_of(claims: &Map<String, Value>) -> Result<Vec<&str>, String> {
    let wrong = || "oidc: failed to unmarshal claims: aud is no text and no list of texts";
    match claims.get("aud") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one]),
        Some(Value::Array(list)) => {
            list.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(|| wrong().to_owned())
        }
        Some(_) => Err(wrong().to_owned()),
    }
}

/// A time in seconds since 1970, perhaps with a fraction, which is dropped.
fn time(claims: &Map<String, Value>, claim: &str) -> Result<Option<Timestamp>, String> {
    let seconds = match claims.get(claim) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => {
            number.as_u64().or_else(|| number.as_f64().map(|seconds| seconds as u64))
        }
        Some(_) => None,
    };
    match seconds {
        Some(seconds) => Ok(Some(Timestamp::from_secs(seconds.min(SECONDS_MAX)))),
        None => Err(format!("oidc: failed to unmarshal claims: {claim} is no time in seconds")),
    }
}

/// A time as Go prints it.
fn go_time(time: Timestamp) -> String {
    let text = time.rfc3339();
    format!("{} +0000 UTC", text.trim_end_matches('Z').replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn checked(claims: Value, audiences: &[&str]) -> String {
        let audiences: Vec<String> = audiences.iter().map(|text| (*text).to_owned()).collect();
        let now = Timestamp::from_secs(1_767_225_600);
        match check(claims.as_object().unwrap(), &audiences, now) {
            Ok(expires) => expires.rfc3339(),
            Err(why) => why,
        }
    }

    #[test]
    fn audiences_and_times_are_required() {
        let now = 1_767_225_600_u64;
        let ok = "2026-01-01T00:00:00Z";
        assert_eq!(checked(json!({"aud": "a", "exp": now}), &["a"]), ok);
        assert_eq!(checked(json!({"aud": ["x", "b"], "exp": now as f64 + 0.7}), &["a", "b"]), ok);
        assert_eq!(checked(json!({"aud": "a", "exp": now, "nbf": now + 60}), &["a"]), ok);
        for (claims, audiences, error) in [
            (json!({"exp": now}), &["a"][..], r#"oidc: expected audience "a" got []"#),
            (
                json!({"aud": ["x", "y"], "exp": now}),
                &["b", "a"],
                r#"oidc: expected audience in ["a" "b"] got ["x" "y"]"#,
            ),
            (
                json!({"aud": "a"}),
                &["a"],
                "oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)",
            ),
            (
                json!({"aud": "a", "exp": now - 1}),
                &["a"],
                "oidc: token is expired (Token Expiry: 2025-12-31 23:59:59 +0000 UTC)",
            ),
            (
                json!({"aud": "a", "exp": now, "nbf": now + 61}),
                &["a"],
                "oidc: current time 2026-01-01 00:00:00 +0000 UTC before the nbf (not before) time: 2026-01-01 00:01:01 +0000 UTC",
            ),
            (
                json!({"aud": "a", "exp": "soon"}),
                &["a"],
                "oidc: failed to unmarshal claims: exp is no time in seconds",
            ),
            (
                json!({"aud": 7, "exp": now}),
                &["a"],
                "oidc: failed to unmarshal claims: aud is no text and no list of texts",
            ),
        ] {
            assert_eq!(checked(claims, audiences), error);
        }
        // Negative and huge numbers are times too.
        assert!(checked(json!({"aud": "a", "exp": -5}), &["a"]).contains("expired"));
        assert_eq!(checked(json!({"aud": "a", "exp": 1e300}), &["a"]), "9999-12-30T20:00:00Z");
    }
}
