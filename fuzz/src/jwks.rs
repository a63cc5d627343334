//! Key sets that issuers publish.
use setpoint_jwt::{JwkSet, UnverifiedToken};

/// A token that no key of a generated set has signed.
const TOKEN: &str = include_str!("../corpus/token/signed");

/// Any bytes are a set of keys or refused. No set accepts a token whose key it does not have.
pub fn check(input: &[u8]) {
    let Ok(keys) = JwkSet::parse(input) else { return };
    assert_eq!(keys.len(), JwkSet::parse(input).unwrap().len());
    let token = UnverifiedToken::parse(TOKEN).unwrap();
    let is_slow = keys.is_slow(&token);
    assert_eq!(keys.is_slow(&token), is_slow);
    assert!(keys.verify(token).is_err());
}
