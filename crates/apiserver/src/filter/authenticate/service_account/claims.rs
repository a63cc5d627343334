//! The claims of service account tokens.

use super::INVALID_SINCE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value};
use setpoint_object::users;
use std::collections::BTreeMap;

/// The claims of a verified token.
#[derive(Debug)]
pub(super) enum Token {
    /// Of a TokenRequest.
    Bound(Claims),
    /// Of a Secret.
    Legacy(Legacy),
}

/// An object by name and uid.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Reference {
    pub(super) name: String,
    /// Empty for the node of a pod, if there was no such node.
    #[serde(default)]
    pub(super) uid: String,
}

/// The claims of a token that expires. Times are seconds since 1970.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) audiences: Vec<String>,
    pub(super) expires: u64,
    /// Zero if missing.
    pub(super) not_before: u64,
    /// Zero if missing.
    pub(super) issued: u64,
    /// Empty if missing.
    pub(super) id: String,
    pub(super) namespace: String,
    pub(super) account: Reference,
    pub(super) pod: Option<Reference>,
    pub(super) secret: Option<Reference>,
    pub(super) node: Option<Reference>,
    /// When the token would have expired if its lifetime had not been extended. Zero: it has not.
    pub(super) warn_after: u64,
}

#[derive(Deserialize)]
struct Kubernetes {
    namespace: String,
    serviceaccount: Reference,
    #[serde(default)]
    pod: Option<Reference>,
    #[serde(default)]
    secret: Option<Reference>,
    #[serde(default)]
    node: Option<Reference>,
    #[serde(default)]
    warnafter: u64,
}

impl Claims {
    /// Reads claims; `None` if they are not those of a service account, or have no end.
    pub(super) fn read(mut claims: Map<String, Value>) -> Option<Self> {
        let kubernetes = serde_json::from_value(claims.remove("kubernetes.io")?).ok()?;
        let Kubernetes { namespace, serviceaccount: account, pod, secret, node, warnafter } =
            kubernetes;
        let text = |claim: &str| claims.get(claim).and_then(Value::as_str);
        if text("sub")? != users::service_account(&namespace, &account.name) {
            return None;
        }
        let seconds = |claim: &str| claims.get(claim).and_then(Value::as_u64);
        let audiences = match claims.get("aud") {
            Some(Value::String(audience)) => vec![audience.clone()],
            Some(Value::Array(audiences)) => {
                audiences.iter().map(|a| a.as_str().map(str::to_owned)).collect::<Option<_>>()?
            }
            None => Vec::new(),
            Some(_) => return None,
        };
        Some(Self {
            audiences,
            expires: seconds("exp")?,
            not_before: seconds("nbf").unwrap_or_default(),
            issued: seconds("iat").unwrap_or_default(),
            id: text("jti").unwrap_or_default().to_owned(),
            namespace,
            account,
            pod,
            secret,
            node,
            warn_after: warnafter,
        })
    }
}

/// The claims of a Secret's token.
#[derive(Debug)]
pub(super) struct Legacy {
    pub(super) namespace: String,
    pub(super) secret: String,
    pub(super) account: Reference,
}

impl Legacy {
    /// Reads claims; `None` if they are not those of a Secret's token.
    pub(super) fn read(claims: &Map<String, Value>) -> Option<Self> {
        let text = |claim: &str| claims.get(claim).and_then(Value::as_str).map(str::to_owned);
        let own = |name: &str| text(&format!("kubernetes.io/serviceaccount/{name}"));
        let (name, uid) = (own("service-account.name")?, own("service-account.uid")?);
        let (namespace, secret) = (own("namespace")?, own("secret.name")?);
        (text("sub")? == users::service_account(&namespace, &name)).then_some(Self {
            namespace,
            secret,
            account: Reference { name, uid },
        })
    }
}

/// What matters of the Secret of a token.
#[derive(Debug)]
pub(super) struct LegacySecret {
    pub(super) token: Vec<u8>,
    pub(super) labels: BTreeMap<String, String>,
    /// Empty if it is not being deleted.
    pub(super) deleted: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    labels: BTreeMap<String, String>,
    deletion_timestamp: String,
}

#[derive(Debug, Deserialize)]
struct Secret {
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl LegacySecret {
    pub(super) fn read(secret: &[u8]) -> Option<Self> {
        let Secret { metadata, data } = serde_json::from_slice(secret).ok()?;
        let token = STANDARD.decode(data.get("token")?).ok()?;
        Some(Self { token, labels: metadata.labels, deleted: metadata.deletion_timestamp })
    }

    /// Whether its token is no longer accepted. An empty label is none.
    pub(super) fn is_invalid(&self) -> bool {
        self.labels.get(INVALID_SINCE).is_some_and(|since| !since.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claims() -> Value {
        json!({
            "sub": "system:serviceaccount:a:b", "aud": ["x"], "exp": 9, "nbf": 1,
            "kubernetes.io": {"namespace": "a", "serviceaccount": {"name": "b", "uid": "1"}},
        })
    }

    fn read(change: impl FnOnce(&mut Value)) -> Option<Claims> {
        let mut claims = claims();
        change(&mut claims);
        Claims::read(claims.as_object().cloned()?)
    }

    #[test]
    fn claims_must_be_complete_and_agree() {
        assert_eq!(read(|_| {}).unwrap().audiences, ["x"]);
        assert_eq!(read(|c| c["aud"] = "y".into()).unwrap().audiences, ["y"]);
        assert!(read(|c| c["sub"] = "system:serviceaccount:a:c".into()).is_none());
        assert!(read(|c| c["exp"] = json!("9")).is_none());
        assert!(read(|c| c["aud"] = json!([1])).is_none());
        for missing in ["sub", "exp", "kubernetes.io"] {
            assert!(read(|c| drop(c.as_object_mut().unwrap().remove(missing))).is_none());
        }
    }
}
