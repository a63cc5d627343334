//! What kind of token a request of a service account has.

use super::claims::{Legacy, LegacySecret, Token};
use super::verified::Verified;
use super::{Lookup, ServiceAccounts};
use crate::token_use::TokenUse;
use serde::Deserialize;
use setpoint_object::time::Timestamp;
use setpoint_object::users;
use setpoint_registry::Registry;

/// The Secrets that an account lists.
#[derive(Deserialize)]
struct Account {
    #[serde(default)]
    secrets: Vec<Listed>,
}
#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    name: String,
}

impl ServiceAccounts {
    /// What kind of token one is that was just verified. `is_accepted`: the request has a user.
    pub(in crate::filter::authenticate) async fn token_use(
        &self,
        registry: &Registry,
        token: &str,
        is_accepted: bool,
    ) -> Option<TokenUse> {
        let now = registry.clock().now();
        let token = self.verified.get(&Verified::digest(token), now)?;
        match (&*token, is_accepted) {
            (Token::Bound(claims), true) if claims.warn_after > 0 => {
                let seconds = now.0.as_secs().checked_sub(claims.warn_after);
                Some(match seconds.filter(|seconds| *seconds > 0) {
                    None => TokenUse::Renewed,
                    Some(seconds) => {
                        let subject =
                            users::service_account(&claims.namespace, &claims.account.name);
                        let late = "seconds after warning threshold";
                        TokenUse::Stale(format!("subject: {subject}, {late}: {seconds}"))
                    }
                })
            }
            (Token::Legacy(claims), _) if registry.service_account_tokens().looks_up() => {
                legacy_use(registry, claims, is_accepted, now).await
            }
            _ => None,
        }
    }
}

async fn legacy_use(
    registry: &Registry,
    claims: &Legacy,
    is_accepted: bool,
    now: Timestamp,
) -> Option<TokenUse> {
    let objects = Lookup { registry, namespace: &claims.namespace, now };
    if !is_accepted {
        let secret = objects.get("secrets", &claims.secret).await.ok()??;
        let is_marked = LegacySecret::read(&secret)?.is_invalid();
        let shown = || format!("{}/{}", claims.secret, claims.namespace);
        return is_marked.then(|| TokenUse::Invalidated(shown()));
    }
    let account = objects.get("serviceaccounts", &claims.account.name).await.ok()??;
    let account: Account = serde_json::from_slice(&account).ok()?;
    let is_listed = account.secrets.iter().any(|listed| listed.name == claims.secret);
    let kind = if is_listed { TokenUse::Generated } else { TokenUse::Manual };
    Some(kind(claims.secret.clone()))
}
