//! Tokens in Secrets that nobody uses: are refused after a year, and deleted after another one.
//!
//! # Theory
//!
//! The API server labels the Secret of a token with the date of its use. A ConfigMap has the date
//! since which it does. Every server makes it ([`ServerIdentity`]), and this controller, in the
//! server's name. Once a day it looks at the Secrets:
//!
//! [`ServerIdentity`]: crate::identity::ServerIdentity
//!
//! | a token that is [`UNUSED`] | gets |
//! |---|---|
//! | has no label that it is invalid | the label, with today's date: the server refuses it then |
//! | was labeled so long ago, too | deleted |
//!
//! Only generated tokens count, those that their account lists, and none that a pod mounts. A token
//! cannot be unused for longer than uses are noted. Writes carry the version of the Secret that was
//! read, so a token that is used meanwhile stays. The rules are those of kube-controller-manager's
//! `legacy-serviceaccount-token-cleaner-controller`.

use crate::api::{Api, RequestError, as_read, ignore_stale};
use crate::first_error::FirstError;
use crate::setup::Setup;
use crate::token_secrets::account_of;
use serde_json::{Value, json};
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::{Clock, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The controller's name.
const NAME: &str = "legacy-service-account-token-cleaner";
/// How long a token must be unused: a year, as kube-controller-manager's default.
pub const UNUSED: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The time between two passes: a day, as in kube-controller-manager.
const PERIOD: Duration = DAY;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The time until a pass that failed is repeated.
const RETRY_PERIOD: Duration = Duration::from_secs(60);
/// The ConfigMap, and its member with the date.
const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const MAP: &str = "kube-apiserver-legacy-service-account-token-tracking";
const SINCE: &str = "since";
/// The Secrets with tokens.
const SECRETS: &str = "/api/v1/secrets?fieldSelector=type%3Dkubernetes.io%2Fservice-account-token";
/// The labels with the dates of the last use, and since when a token is refused.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Ends unused tokens in Secrets. Does nothing until [`LegacyTokens::run`].
#[must_use]
pub struct LegacyTokens {
    api: Api,
    /// The client of the ConfigMap, which is the server's.
    api_of_server: Api,
    clock: Clock,
}

impl fmt::Debug for LegacyTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LegacyTokens").finish_non_exhaustive()
    }
}

impl LegacyTokens {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: &Setup) -> Self {
        let api_of_server = setup.api_of_server(NAME);
        Self { api: setup.api(NAME), api_of_server, clock: setup.clock().clone() }
    }

    /// Runs until `stop`. A pass that fails is repeated. Dropping it stops at once.
    pub async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            // Boxed, so that a controller that waits is small.
            let pause = match Box::pin(self.pass()).await {
                Ok(()) => PERIOD,
                Err(error) => {
                    tracing::warn!(
                        error = chain(&error),
                        "look for unused tokens of service accounts"
                    );
                    RETRY_PERIOD
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                // Cancel safe: a sleep holds no state.
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn pass(&self) -> Result<(), RequestError> {
        let now = self.clock.now();
        let since = noted_since(&self.api_of_server, now).await?;
        // The whole first day counts as one without notes.
        if now.since(since) < DAY + UNUSED {
            return Ok(());
        }
        let Some(limit) = now.0.checked_sub(UNUSED).map(Timestamp) else { return Ok(()) };
        let mut secrets = Vec::new();
        let mut look = |secret: Value| {
            if let Some(end) = end(&secret, limit) {
                secrets.push((secret, end));
            }
        };
        self.api.list_pages(SECRETS, &mut look).await?;
        let (mut mounted, mut errors) = (BTreeMap::new(), FirstError::new());
        for (secret, end) in &secrets {
            if !self.is_generated(secret).await? {
                continue;
            }
            let namespace = secret.namespace();
            if !mounted.contains_key(namespace) {
                mounted.insert(namespace.to_owned(), self.mounted(namespace).await?);
            }
            if !mounted.get(namespace).is_some_and(|names| names.contains(secret.name())) {
                // One that cannot be written does not keep the others.
                errors.note(self.end(secret, *end, now).await);
            }
        }
        errors.into_result()
    }

    /// Whether the Secret's account exists and lists it, as it does generated ones.
    async fn is_generated(&self, secret: &Value) -> Result<bool, RequestError> {
        let account = account_of(&self.api, secret).await?;
        Ok(account.is_some_and(|account| {
            let mut listed = account["secrets"].as_array().into_iter().flatten();
            listed.any(|listed| listed["name"] == secret.name())
        }))
    }

    /// The names of the Secrets that pods of a namespace use.
    async fn mounted(&self, namespace: &str) -> Result<BTreeSet<String>, RequestError> {
        let mut names = BTreeSet::new();
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        self.api.list_pages(&pods, |pod| secret_names(&pod["spec"], &mut names)).await?;
        Ok(names)
    }

    async fn end(&self, secret: &Value, end: End, now: Timestamp) -> Result<(), RequestError> {
        let path = format!("/api/v1/namespaces/{}/secrets/{}", secret.namespace(), secret.name());
        let ended = match end {
            End::Refuse => {
                let metadata = json!({
                    "uid": secret.uid(), "resourceVersion": secret.resource_version(),
                    "labels": {INVALID_SINCE: date(now)},
                });
                self.api.merge_patch(&path, &json!({"metadata": metadata})).await
            }
            End::Delete => self.api.delete(&path, &as_read(secret)).await,
        };
        // Used or changed meanwhile: the next pass decides again.
        ignore_stale(ended).map(drop)
    }
}

/// What an unused token gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Refuse,
    Delete,
}

/// What a token gets by its labels, if uses before `limit` do not count. `None`: nothing.
fn end(secret: &Value, limit: Timestamp) -> Option<End> {
    let label = |name: &str| {
        let labels = secret.meta().and_then(|meta| meta.get("labels"));
        labels.and_then(|all| all.get(name)?.as_str())
    };
    let created = Timestamp::parse(secret.meta_str("creationTimestamp")).unwrap_or_default();
    if created >= limit || !secret.deletion_timestamp().is_empty() {
        return None;
    }
    let first = date(limit);
    // Without a label it was never used; a label that is no date says nothing.
    if let Some(used) = label(LAST_USED)
        && (parse_date(used).is_none() || *used >= *first)
    {
        return None;
    }
    match label(INVALID_SINCE).filter(|since| parse_date(since).is_some()) {
        None => Some(End::Refuse),
        Some(since) => (*since < *first).then_some(End::Delete),
    }
}

/// Since when uses are noted. Makes the ConfigMap if it is missing or has no date, as every server
/// does.
pub(crate) async fn noted_since(api: &Api, now: Timestamp) -> Result<Timestamp, RequestError> {
    let path = format!("{MAPS}/{MAP}");
    let found = api.get_opt(&path).await?;
    let data = json!({SINCE: date(now)});
    match &found {
        Some(map) => {
            if let Some(since) = map["data"][SINCE].as_str().and_then(parse_date) {
                return Ok(since);
            }
            let version = json!({"resourceVersion": map.resource_version()});
            let patch = json!({"metadata": version, "data": data});
            api.merge_patch(&path, &patch).await?;
        }
        None => {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MAP}, "data": data,
            });
            // Another server may be faster.
            ignore_stale(api.post(MAPS, &map).await)?;
        }
    }
    Ok(now)
}

/// The date of a time: `2026-01-31`. Dates are ordered as texts are.
fn date(time: Timestamp) -> String {
    time.rfc3339().chars().take("2026-01-31".len()).collect()
}

/// The begin of a date.
fn parse_date(text: &str) -> Option<Timestamp> {
    Timestamp::parse(&format!("{text}T00:00:00Z")).filter(|time| date(*time) == text)
}

/// Collects the names of the Secrets in a part of a pod's spec: volumes, their drivers' Secrets,
/// variables, and those for pulling images.
fn secret_names(part: &Value, names: &mut BTreeSet<String>) {
    match part {
        Value::Array(items) => items.iter().for_each(|item| secret_names(item, names)),
        Value::Object(members) => {
            for (member, value) in members {
                let name = match &**member {
                    "secretName" => value.as_str(),
                    "secret" | "secretRef" | "secretKeyRef" | "nodePublishSecretRef" => {
                        value["name"].as_str()
                    }
                    "imagePullSecrets" => {
                        let listed = value.as_array().into_iter().flatten();
                        let listed = listed.filter_map(|listed| listed["name"].as_str());
                        names.extend(listed.map(str::to_owned));
                        None
                    }
                    _ => None,
                };
                names.extend(name.map(str::to_owned));
                secret_names(value, names);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_token_is_refused_and_later_deleted() {
        let limit = Timestamp::parse("2026-03-01T12:00:00Z").unwrap();
        let token = |created: &str, labels: Value| {
            let created = format!("{created}T00:00:00Z");
            end(&json!({"metadata": {"creationTimestamp": created, "labels": labels}}), limit)
        };
        let old = "2025-01-01";
        assert_eq!(token(old, Value::Null), Some(End::Refuse));
        assert_eq!(token("2026-03-02", Value::Null), None, "it is new");
        assert_eq!(token(old, json!({LAST_USED: "2026-02-28"})), Some(End::Refuse));
        assert_eq!(token(old, json!({LAST_USED: "2026-03-01"})), None);
        assert_eq!(token(old, json!({LAST_USED: "yesterday"})), None);
        assert_eq!(token(old, json!({INVALID_SINCE: "2026-02-28"})), Some(End::Delete));
        assert_eq!(token(old, json!({INVALID_SINCE: "2026-03-01"})), None, "not yet");
        assert_eq!(token(old, json!({INVALID_SINCE: "no date"})), Some(End::Refuse));
        let used = json!({INVALID_SINCE: "2026-02-28", LAST_USED: "2026-03-02"});
        assert_eq!(token(old, used), None, "somebody tried it");
        let deleted = json!({"metadata": {
            "creationTimestamp": "2025-01-01T00:00:00Z", "deletionTimestamp": "2026-02-01T00:00:00Z",
        }});
        assert_eq!(end(&deleted, limit), None);
    }

    #[test]
    fn dates_are_whole_days() {
        assert_eq!(date(Timestamp::parse("2026-01-31T23:59:59Z").unwrap()), "2026-01-31");
        assert_eq!(parse_date("2026-01-31").map(date).as_deref(), Some("2026-01-31"));
        for other in ["", "2026-1-31", "2026-02-30", "2026-01-31T00:00:00Z", "today"] {
            assert_eq!(parse_date(other), None, "{other}");
        }
    }

    #[test]
    fn every_way_to_use_a_secret_counts() {
        let spec = json!({
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{
                "name": "c", "env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}],
                "envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "map"}}],
            }],
            "volumes": [
                {"name": "v", "secret": {"secretName": "mounted"}},
                {"name": "w", "projected": {"sources": [{"secret": {"name": "projected"}}]}},
                {"name": "x", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "driver"}}},
                {"name": "y", "azureFile": {"secretName": "share", "shareName": "s"}},
            ],
        });
        let mut names = BTreeSet::new();
        secret_names(&spec, &mut names);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(names, ["all", "driver", "key", "mounted", "projected", "pull", "share"]);
    }
}
