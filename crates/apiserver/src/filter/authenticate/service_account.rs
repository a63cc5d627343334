//! Tokens of service accounts: those of TokenRequests, which expire and may be bound to an object,
//! and those in Secrets.
//!
//! A signature is checked once per token and remembered for a few seconds. The objects are looked
//! up in the watch cache for every request, so that a token ends as soon as its objects do.

mod claims;
mod uses;
mod verified;

use super::{Authentication, Authenticator, TokenAudiences, bearer_token};
use claims::{Claims, Legacy, LegacySecret, Reference, Token};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::request::Parts;
use serde_json::json;
use setpoint_object::error::chain;
use setpoint_object::time::Timestamp;
use setpoint_object::{ApiError, GroupVersionResource, Skim, encode, users};
use setpoint_registry::jwt::UnverifiedToken;
use setpoint_registry::{
    Attributes, Body, Format, Identity, LEGACY_ISSUER, PatchType, Registry, Target, Verb,
    WeakRegistry, WriteOptions,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use verified::Verified;

/// How much the clocks of servers may differ, and how long an object that was deleted is still
/// accepted.
const LEEWAY: Duration = Duration::from_secs(60);
/// Why a token of a deleted object is refused.
const INVALIDATED: &str = "service account token has been invalidated";
/// The date of the last use of a Secret's token.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The label of a Secret whose token is no longer accepted.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Authenticates service accounts by their tokens.
#[derive(Debug)]
pub(crate) struct ServiceAccounts {
    registry: WeakRegistry,
    verified: Verified,
}

impl Authenticator for ServiceAccounts {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Authentication> {
        let asked = request.extensions.get::<TokenAudiences>();
        let token = bearer_token(&request.headers);
        let Some((token, registry)) = token.zip(self.registry.upgrade()) else {
            return futures::future::ready(Authentication::NoOpinion).boxed();
        };
        let own = || registry.service_account_tokens().audiences().into_iter().map(str::to_owned);
        let audiences = asked.map_or_else(|| own().collect(), |asked| asked.0.to_vec());
        async move {
            match self.user(&registry, token, audiences).await {
                Ok(Some((identity, audiences))) => Authentication::Token(identity, audiences),
                Ok(None) => Authentication::NoOpinion,
                Err(error) => Authentication::Invalid(error),
            }
        }
        .boxed()
    }
}

impl ServiceAccounts {
    pub(crate) fn new(registry: WeakRegistry) -> Self {
        Self { registry, verified: Verified::default() }
    }

    /// The user of a token, and those of the audiences that it is for. `None`: not a token of a
    /// service account.
    async fn user(
        &self,
        registry: &Registry,
        token: Cow<'_, str>,
        audiences: Vec<String>,
    ) -> Result<Option<(Identity, Vec<String>)>, String> {
        let now = registry.clock().now();
        let Some(verified) = self.verify(registry, &token, now).await? else { return Ok(None) };
        let of_server = registry.service_account_tokens().audiences();
        let own = |token: &Token| -> Vec<String> {
            match token {
                Token::Bound(claims) if !claims.audiences.is_empty() => claims.audiences.clone(),
                _ => of_server.iter().map(|&audience| audience.to_owned()).collect(),
            }
        };
        let of_token = own(&verified);
        let common: Vec<_> =
            of_token.iter().filter(|audience| audiences.contains(audience)).cloned().collect();
        if common.is_empty() {
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&of_token),
                quoted(&audiences)
            ));
        }
        let identity = match &*verified {
            Token::Bound(claims) => check(registry, claims, now).await?,
            Token::Legacy(claims) => check_legacy(registry, claims, &token, now).await?,
        };
        Ok(Some((identity, common)))
    }

    /// The claims of a token of an accepted issuer, with a valid signature.
    async fn verify(
        &self,
        registry: &Registry,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<Arc<Token>>, String> {
        let digest = Verified::digest(token);
        if let Some(known) = self.verified.get(&digest, now) {
            return Ok(Some(known));
        }
        let Ok(parsed) = UnverifiedToken::parse(token) else { return Ok(None) };
        let settings = registry.service_account_tokens();
        let is_legacy = parsed.issuer() == LEGACY_ISSUER;
        if !is_legacy && !settings.issuers().contains(&parsed.issuer()) {
            return Ok(None);
        }
        let ring = settings.key_ring();
        let mut keys = ring.current().map_err(|error| error.to_string())?;
        if let Some(signer) = settings.signer().filter(|_| !keys.has_key_of(&parsed)) {
            if let Err(error) = signer.refresh().await {
                tracing::warn!(error = chain(&*error), "ask for the keys of tokens");
            }
            keys = ring.current().map_err(|error| error.to_string())?;
        }
        let claims = keys.verify(parsed).map_err(|error| error.to_string())?;
        let token = match is_legacy {
            true => Legacy::read(&claims).map(Token::Legacy),
            false => Claims::read(claims).map(Token::Bound),
        };
        let token = Arc::new(token.ok_or("the token lacks the claims of a service account")?);
        self.verified.put(digest, token.clone(), now);
        Ok(Some(token))
    }
}

/// A list of texts, as Go quotes it.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<_> = texts.iter().map(|text| setpoint_object::field::quote(text)).collect();
    format!("[{}]", texts.join(" "))
}

/// The user of a token that expires, if its objects are still there.
async fn check(registry: &Registry, claims: &Claims, now: Timestamp) -> Result<Identity, String> {
    let seconds = now.0.as_secs();
    let leeway = LEEWAY.as_secs();
    if seconds.saturating_sub(leeway) > claims.expires {
        return Err("service account token has expired".to_owned());
    }
    if seconds + leeway < claims.not_before {
        return Err("service account token is not valid yet".to_owned());
    }
    if seconds + leeway < claims.issued {
        return Err("service account token is issued in the future".to_owned());
    }
    let objects = Lookup { registry, namespace: &claims.namespace, now };
    objects.account(&claims.account).await?;
    if let Some(secret) = &claims.secret {
        objects.bound("secrets", "secret", secret).await?;
    }
    let mut extra = BTreeMap::new();
    let mut say = |key: &str, value: &str| {
        if !value.is_empty() {
            extra.insert(key.to_owned(), vec![value.to_owned()]);
        }
    };
    if !claims.id.is_empty() {
        say(users::CREDENTIAL_ID, &format!("JTI={}", claims.id));
    }
    if let Some(pod) = &claims.pod {
        objects.bound("pods", "pod", pod).await?;
        say("authentication.kubernetes.io/pod-name", &pod.name);
        say("authentication.kubernetes.io/pod-uid", &pod.uid);
    }
    if let Some(node) = &claims.node {
        // A pod's node is only recorded: the pod ends the token.
        if claims.pod.is_none() {
            objects.bound("nodes", "node", node).await?;
        }
        say(users::BOUND_NODE, &node.name);
        say("authentication.kubernetes.io/node-uid", &node.uid);
    }
    Ok(identity(&claims.namespace, &claims.account, extra))
}

/// The user of a Secret's token, if the Secret still has it, unless that does not matter.
async fn check_legacy(
    registry: &Registry,
    claims: &Legacy,
    token: &str,
    now: Timestamp,
) -> Result<Identity, String> {
    if !registry.service_account_tokens().looks_up() {
        return Ok(identity(&claims.namespace, &claims.account, BTreeMap::new()));
    }
    let objects = Lookup { registry, namespace: &claims.namespace, now };
    // Not as of a token that is bound to a Secret.
    let gone = || "Token has been invalidated".to_owned();
    let secret = objects.get("secrets", &claims.secret).await?.ok_or_else(gone)?;
    let secret = LegacySecret::read(&secret).ok_or_else(gone)?;
    if objects.is_deleted(&secret.deleted) {
        return Err(gone());
    }
    if secret.token != token.as_bytes() {
        return Err("Token does not match server's copy".to_owned());
    }
    objects.account(&claims.account).await?;
    // Of a token that is refused, too: so it is seen that somebody needs it.
    let today = &now.rfc3339()[..10];
    if secret.labels.get(LAST_USED).is_none_or(|date| date != today) {
        note_use(registry, claims, today).await;
    }
    if secret.is_invalid() {
        let (namespace, secret, account) =
            (&claims.namespace, &claims.secret, &claims.account.name);
        return Err(format!(
            "the token in secret {namespace}/{secret} for service account {namespace}/{account} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
        ));
    }
    Ok(identity(&claims.namespace, &claims.account, BTreeMap::new()))
}

/// Labels a Secret with the date, once a day.
async fn note_use(registry: &Registry, claims: &Legacy, today: &str) {
    let noted = async {
        let catalog = registry.catalog();
        let row = catalog.get("", "v1", "secrets").ok_or_else(ApiError::no_route)?;
        let target = Target::new(row.clone(), &claims.namespace, &claims.secret);
        let request = Attributes::loopback(Verb::Patch, target);
        let patch = json!({"metadata": {"labels": {LAST_USED: today}}});
        let body = Body { bytes: encode::to_bytes(&patch), format: Format::Json };
        let options =
            WriteOptions { field_manager: "kube-apiserver".to_owned(), ..WriteOptions::default() };
        registry.patch(&request, PatchType::Merge, body, &options).await
    };
    if let Err(error) = noted.boxed().await {
        let (namespace, secret) = (&claims.namespace, &claims.secret);
        tracing::warn!(error = chain(&error), %namespace, %secret, "record the use of a token");
    }
}

fn identity(
    namespace: &str,
    account: &Reference,
    extra: BTreeMap<String, Vec<String>>,
) -> Identity {
    let name = users::service_account(namespace, &account.name);
    let groups = users::service_account_groups(namespace);
    Identity {
        uid: account.uid.as_str().into(),
        extra: Arc::new(extra),
        ..Identity::new(&name, groups.iter().map(String::as_str))
    }
}

/// Looks up the objects of a token.
struct Lookup<'a> {
    registry: &'a Registry,
    namespace: &'a str,
    now: Timestamp,
}

impl Lookup<'_> {
    async fn get(&self, resource: &str, name: &str) -> Result<Option<bytes::Bytes>, String> {
        let namespace = if resource == "nodes" { "" } else { self.namespace };
        let resource = GroupVersionResource::new("", "v1", resource);
        let found = self.registry.objects().get(&resource, namespace, name).await;
        Ok(found.map_err(|error| error.to_string())?.map(|object| object.bytes))
    }

    /// Whether an object with this deletion time counts as deleted.
    fn is_deleted(&self, deleted: &str) -> bool {
        Timestamp::parse(deleted).is_some_and(|deleted| deleted + LEEWAY < self.now)
    }

    /// Requires the account.
    async fn account(&self, account: &Reference) -> Result<(), String> {
        let Some(found) = self.get("serviceaccounts", &account.name).await? else {
            let name = setpoint_object::field::quote(&account.name);
            return Err(format!("serviceaccounts {name} not found"));
        };
        let found = Skim::of(&found).map_err(|error| error.to_string())?;
        if self.is_deleted(&found.deletion_timestamp) {
            return Err(INVALIDATED.to_owned());
        }
        if *found.uid != *account.uid {
            return Err(format!(
                "service account UID ({}) does not match claim ({})",
                found.uid, account.uid
            ));
        }
        Ok(())
    }

    /// Requires an object that the token is bound to.
    async fn bound(&self, resource: &str, kind: &str, bound: &Reference) -> Result<(), String> {
        let found = self.get(resource, &bound.name).await?.ok_or(INVALIDATED)?;
        let found = Skim::of(&found).map_err(|error| error.to_string())?;
        if self.is_deleted(&found.deletion_timestamp) {
            return Err(INVALIDATED.to_owned());
        }
        if *found.uid != *bound.uid {
            return Err(format!(
                "{kind} UID ({}) does not match service account {kind} ref claim ({})",
                found.uid, bound.uid
            ));
        }
        Ok(())
    }
}
