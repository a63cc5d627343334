//! Bootstrap tokens: Secrets of `kube-system` with which new nodes ask for their certificates.

use super::{Authentication, Authenticator, bearer_token};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::request::Parts;
use serde::Deserialize;
use setpoint_object::GroupVersionResource;
use setpoint_object::time::Timestamp;
use setpoint_registry::{Identity, Registry, WeakRegistry};
use std::collections::{BTreeMap, BTreeSet};
use subtle::ConstantTimeEq as _;

/// The type of the Secrets.
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The group of all users of bootstrap tokens, and the start of the names of further groups.
const GROUP: &str = "system:bootstrappers";
/// Lengths of the two parts of a token.
const ID_CHARS: usize = 6;
const SECRET_CHARS: usize = 16;
/// Maximum length of a further group's name after the prefix.
const GROUP_CHARS_MAX: usize = 256;

/// Authenticates the users of bootstrap tokens.
#[derive(Debug)]
pub(crate) struct BootstrapTokens(WeakRegistry);

impl BootstrapTokens {
    pub(crate) fn new(registry: WeakRegistry) -> Self {
        Self(registry)
    }
}

impl Authenticator for BootstrapTokens {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Authentication> {
        let user = || {
            let token = bearer_token(&request.headers)?;
            let (id, secret) = parse(&token)?;
            user(&self.0.upgrade()?, id, secret)
        };
        // All of it is in memory.
        let answer = user().map_or(Authentication::NoOpinion, Authentication::User);
        futures::future::ready(answer).boxed()
    }
}

/// The id and the secret of a token.
fn parse(token: &str) -> Option<(&str, &str)> {
    let is_word = |text: &str, n_chars| {
        text.len() == n_chars && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'))
    };
    let (id, secret) = token.split_once('.')?;
    (is_word(id, ID_CHARS) && is_word(secret, SECRET_CHARS)).then_some((id, secret))
}

#[derive(Debug, Deserialize)]
struct Secret {
    metadata: Metadata,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

/// The user of a token. Reads memory only, because unauthenticated clients may try any id.
fn user(registry: &Registry, id: &str, secret: &str) -> Option<Identity> {
    let secrets = GroupVersionResource::new("", "v1", "secrets");
    let name = format!("bootstrap-token-{id}");
    let found = registry.objects().cached(&secrets, "kube-system", &name).ok()??;
    let found: Secret = serde_json::from_slice(&found.bytes).ok()?;
    identity(&found, id, secret, registry.clock().now())
}

fn identity(found: &Secret, id: &str, secret: &str, now: Timestamp) -> Option<Identity> {
    let value = |key: &str| -> Option<String> {
        let bytes = STANDARD.decode(found.data.get(key)?).ok()?;
        String::from_utf8(bytes).ok()
    };
    if found.kind != TYPE || found.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let wanted = value("token-secret").filter(|wanted| !wanted.is_empty())?;
    let is_right: bool = wanted.as_bytes().ct_eq(secret.as_bytes()).into();
    if !is_right || value("token-id")? != id {
        return None;
    }
    if found.data.get("expiration").is_some_and(|value| !value.is_empty()) {
        // A time that cannot be read has passed.
        let expires = Timestamp::parse(&value("expiration")?)?;
        if expires <= now {
            return None;
        }
    }
    if value("usage-bootstrap-authentication")? != "true" {
        return None;
    }
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    let extra = value("auth-extra-groups").unwrap_or_default();
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        if !is_group(group) {
            return None;
        }
        groups.insert(group.to_owned());
    }
    let user = format!("system:bootstrap:{id}");
    Some(Identity::new(&user, groups.iter().map(String::as_str)))
}

/// Whether a token may add a group.
fn is_group(group: &str) -> bool {
    let rest = group.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':'));
    let is_char = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b':' | b'-');
    rest.is_some_and(|rest| {
        rest.len() <= GROUP_CHARS_MAX
            && rest.bytes().all(is_char)
            && rest.ends_with(|c: char| c.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "abcdef";
    const SECRET: &str = "0123456789abcdef";

    fn groups(change: impl FnOnce(&mut Secret)) -> Option<Vec<String>> {
        let data = [
            ("token-id", ID),
            ("token-secret", SECRET),
            ("usage-bootstrap-authentication", "true"),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), STANDARD.encode(value)));
        let mut secret = Secret {
            metadata: Metadata { deletion_timestamp: None },
            kind: TYPE.to_owned(),
            data: data.into(),
        };
        change(&mut secret);
        let user = identity(&secret, ID, SECRET, Timestamp::from_secs(1_767_225_600))?;
        assert_eq!(&*user.user, "system:bootstrap:abcdef");
        Some(user.groups.iter().map(|group| group.to_string()).collect())
    }

    fn with(key: &str, value: &str) -> Option<Vec<String>> {
        groups(|secret| drop(secret.data.insert(key.to_owned(), STANDARD.encode(value))))
    }

    #[test]
    fn tokens_have_an_id_and_a_secret() {
        assert_eq!(parse("abcdef.0123456789abcdef"), Some((ID, SECRET)));
        for wrong in [
            "",
            "abcdef",
            "abcde.0123456789abcdef",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcde.",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn secret_decides_about_its_token() {
        let plain = vec!["system:bootstrappers".to_owned()];
        assert_eq!(groups(|_| {}), Some(plain.clone()));
        let more = with("auth-extra-groups", "system:bootstrappers:a,system:bootstrappers:b:c-1");
        assert_eq!(more.unwrap().len(), 3);
        for never_or_later in ["", "2026-01-01T00:00:01Z"] {
            assert_eq!(with("expiration", never_or_later), Some(plain.clone()));
        }
        for (key, wrong) in [
            ("token-secret", "0123456789abcdeF"),
            ("token-secret", ""),
            ("token-id", "abcdeg"),
            ("expiration", "2026-01-01T00:00:00Z"),
            ("expiration", "tomorrow"),
            ("usage-bootstrap-authentication", "false"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:a:"),
            ("auth-extra-groups", " system:bootstrappers:a"),
            ("auth-extra-groups", "system:bootstrappers:a,"),
        ] {
            assert_eq!(with(key, wrong), None, "{key} {wrong}");
        }
        for key in ["token-secret", "token-id", "usage-bootstrap-authentication"] {
            assert_eq!(groups(|secret| drop(secret.data.remove(key))), None, "{key}");
        }
        assert_eq!(groups(|secret| secret.kind = "Opaque".to_owned()), None);
        assert_eq!(groups(|secret| secret.metadata.deletion_timestamp = Some(String::new())), None);
    }
}
