//! Tokens and keys of service accounts.
use setpoint_jwt::{KeySet, SigningKey, UnverifiedToken, VerifyingKey};

/// The claims of the tokens in the corpus that are signed.
const CLAIMS: &str = r#"{"iss":"https://a","sub":"system:serviceaccount:a:b"}"#;

fn keys() -> KeySet {
    let fill = |bytes: &mut [u8]| {
        bytes.fill(7);
        Ok(())
    };
    KeySet::new(SigningKey::generate(fill).unwrap())
}

/// Any bytes are a key that can be used, or refused. Any text is refused, unless it is a token with
/// the only claims that the key has signed.
pub fn check(input: &[u8]) {
    if let Ok(key) = SigningKey::from_pem(input) {
        let token = KeySet::new(key).sign(&serde_json::json!({}));
        assert!(token.is_ok_and(|token| UnverifiedToken::parse(&token).is_ok()));
    }
    for key in VerifyingKey::all_from_pem(input).unwrap_or_default() {
        assert!(key.jwk()["kid"] == key.id());
    }
    let text = String::from_utf8_lossy(input);
    let Ok(token) = UnverifiedToken::parse(&text) else { return };
    let issuer = token.issuer().to_owned();
    if let Ok(claims) = keys().verify(token) {
        assert_eq!(serde_json::Value::Object(claims).to_string(), CLAIMS);
        assert_eq!(issuer, "https://a");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_has_a_token_that_is_accepted() {
        let token = keys().sign(&serde_json::from_str(CLAIMS).unwrap()).unwrap();
        assert_eq!(token, include_str!("../corpus/token/signed"));
    }
}
