//! Impersonation: a user with the right acts as another user for one request (spec: auth §1.5).
//!
//! The headers name the other user: `Impersonate-User`, `Impersonate-Group` (repeated),
//! `Impersonate-Uid` and `Impersonate-Extra-<key>`. Authorizers decide, one question for each
//! value.
//!
//! | mode | for | questions |
//! |---|---|---|
//! | `associated-node` | the node that a service account's token is bound to, by name only | `impersonate-on:<mode>:<verb>` on what is requested, then `impersonate:<mode>` on `nodes` (name `*`), `serviceaccounts`, `users`, `groups`, `uids`, `userextras` |
//! | `arbitrary-node` | a node, by name only | the same, by the node's name |
//! | `serviceaccount` | a service account, by name only | the same |
//! | `user-info` | all other users | the same |
//! | without a name | everybody | `impersonate` |
//!
//! The first mode whose questions are all allowed counts. The number of questions is bounded by the
//! size of a request's head.

use crate::query::decode;
use http::{HeaderMap, HeaderName};
use setpoint_object::field::quote;
use setpoint_object::name::{dns1123_label, dns1123_subdomain, qualified_name};
use setpoint_object::users::{AUTHENTICATED, UNAUTHENTICATED};
use setpoint_object::{ApiError, users};
use setpoint_registry::{
    Attributes, Feature, Identity, MASTERS, Registry, Requested, ResourcePath, Subresource, Verb,
    forbidden,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// Number of values from which on a single question covers all of them.
const MANY: usize = 4;
/// The plain verb, as metrics name it.
const LEGACY: &str = "legacy";
/// The API group of the questions; the plain verb has users and groups in the core group.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// A user as the headers name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// What the other user is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject<'a> {
    Node(&'a str),
    ServiceAccount { namespace: &'a str, name: &'a str },
    Other,
}

/// A constrained mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
}

impl Mode {
    const ALL: [Self; 4] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo];

    fn as_str(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
        }
    }

    /// Whether the mode is for this user.
    fn is_for(self, wanted: &Wanted, requester: &Identity) -> bool {
        let has_only_name =
            wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        match (self, wanted.subject()) {
            (Self::AssociatedNode, Subject::Node(name)) => {
                let is_account = matches!(subject(&requester.user), Subject::ServiceAccount { .. });
                let bound = requester.extra.get(users::BOUND_NODE).map(Vec::as_slice);
                has_only_name && is_account && matches!(bound, Some([bound]) if bound == name)
            }
            (Self::ArbitraryNode, Subject::Node(_))
            | (Self::ServiceAccount, Subject::ServiceAccount { .. }) => has_only_name,
            (Self::UserInfo, Subject::Other) => true,
            _ => false,
        }
    }
}

impl Wanted {
    /// The user that the headers name, if any.
    ///
    /// # Errors
    ///
    /// 400: a group, uid or extra without a user.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let text =
            |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
        let mut wanted = Self {
            user: first(USER),
            uid: first(UID),
            groups: headers.get_all(GROUP).iter().map(text).collect(),
            extra: BTreeMap::new(),
        };
        for name in headers.keys() {
            let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
            // A key that is not percent-encoded is taken as it is.
            let key = decode(key, false).unwrap_or_else(|| key.to_owned());
            let values = headers.get_all(name).iter().map(text);
            wanted.extra.entry(key).or_default().extend(values);
        }
        let has_others =
            !wanted.uid.is_empty() || !wanted.groups.is_empty() || !wanted.extra.is_empty();
        match (wanted.user.is_empty(), has_others) {
            (false, _) => Ok(Some(wanted)),
            (true, false) => Ok(None),
            (true, true) => Err(ApiError::bad_request(format!(
                "requested {} without impersonating a user name",
                wanted.go_syntax()
            ))),
        }
    }

    /// Go's `%#v` of its type, which is what the reference server answers.
    fn go_syntax(&self) -> String {
        let list = |values: &[String]| {
            let values: Vec<_> = values.iter().map(|value| quote(value)).collect();
            format!("[]string{{{}}}", values.join(", "))
        };
        let groups = match self.groups.is_empty() {
            true => "[]string(nil)".to_owned(),
            false => list(&self.groups),
        };
        let extra = match self.extra.is_empty() {
            true => "map[string][]string(nil)".to_owned(),
            false => {
                let entries = self.extra.iter();
                let entries: Vec<_> = entries
                    .map(|(key, values)| format!("{}:{}", quote(key), list(values)))
                    .collect();
                format!("map[string][]string{{{}}}", entries.join(", "))
            }
        };
        let (user, uid) = (quote(&self.user), quote(&self.uid));
        format!("&user.DefaultInfo{{Name:{user}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
    }

    fn subject(&self) -> Subject<'_> {
        subject(&self.user)
    }

    /// The user of the request, once it is allowed. `is_constrained`: by one of the modes, which
    /// give a node its group.
    fn identity(&self, is_constrained: bool) -> Identity {
        let mut groups = self.groups.clone();
        match self.subject() {
            Subject::Node(_) if is_constrained => groups = vec![users::NODES.to_owned()],
            Subject::ServiceAccount { namespace, .. } if groups.is_empty() => {
                groups = users::service_account_groups(namespace).into();
            }
            _ => {}
        }
        let has = |group: &str| groups.iter().any(|one| one == group);
        let added = match self.user == users::ANONYMOUS {
            true => Some(UNAUTHENTICATED).filter(|group| !has(group)),
            false => Some(AUTHENTICATED).filter(|group| !has(UNAUTHENTICATED) && !has(group)),
        };
        groups.extend(added.map(str::to_owned));
        Identity {
            uid: self.uid.as_str().into(),
            extra: Arc::new(self.extra.clone()),
            ..Identity::new(&self.user, groups.iter().map(String::as_str))
        }
    }
}

/// What kind of user a name means.
fn subject(user: &str) -> Subject<'_> {
    if let Some(name) = users::node_of(user) {
        return match dns1123_subdomain(name).is_empty() {
            true => Subject::Node(name),
            false => Subject::Other,
        };
    }
    match users::service_account_of(user) {
        Some((namespace, name))
            if dns1123_label(namespace).is_empty() && dns1123_subdomain(name).is_empty() =>
        {
            Subject::ServiceAccount { namespace, name }
        }
        _ => Subject::Other,
    }
}

/// Removes the headers, from a request that is forwarded: its user has been changed already.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            matches!(name.as_str(), USER | GROUP | UID) || name.as_str().starts_with(EXTRA)
        })
        .cloned()
        .collect();
    names.into_iter().for_each(|name| {
        headers.remove(name);
    });
}

/// The user as whom the requester acts, with the verb that allowed it.
///
/// # Errors
///
/// 403 with the first refusal: of the plain verb, if that allows the name and lacks another value;
/// otherwise of the first mode.
pub(crate) async fn authorize(
    registry: &Registry,
    request: &Attributes,
    wanted: &Wanted,
) -> Result<(Identity, Verb), ApiError> {
    let begun = Instant::now();
    let decided = decide(registry, request, wanted).await;
    let mode = match &decided {
        Ok((_, mode)) => mode.map_or(LEGACY, Mode::as_str),
        Err(_) => "",
    };
    registry.impersonated(mode, decided.is_ok(), begun.elapsed());
    let (identity, mode) = decided?;
    let verb = match mode {
        Some(mode) => Verb::from(&*format!("impersonate:{}", mode.as_str())),
        None => Verb::from("impersonate"),
    };
    Ok((identity, verb))
}

/// The user and the mode that allowed it; `None`: the plain verb.
async fn decide(
    registry: &Registry,
    request: &Attributes,
    wanted: &Wanted,
) -> Result<(Identity, Option<Mode>), ApiError> {
    let questions = Questions { registry, request, wanted };
    let mut first = None;
    let is_constrained = registry.features().is_on(Feature::ConstrainedImpersonation);
    let is_for = |mode: &Mode| is_constrained && mode.is_for(wanted, &request.identity);
    for mode in Mode::ALL.into_iter().filter(is_for) {
        match questions.constrained(mode).await {
            Ok(()) => return Ok((wanted.identity(true), Some(mode))),
            Err(refusal) => first = first.or(Some(refusal)),
        }
    }
    let verb = Verb::from("impersonate");
    if let Err(refusal) = questions.name(&verb, None).await {
        return Err(first.unwrap_or(refusal));
    }
    questions.others(&verb, None).await?;
    Ok((wanted.identity(false), None))
}

/// The questions to the authorizers about one request.
struct Questions<'a> {
    registry: &'a Registry,
    request: &'a Attributes,
    wanted: &'a Wanted,
}

impl Questions<'_> {
    async fn constrained(&self, mode: Mode) -> Result<(), ApiError> {
        let on = format!("impersonate-on:{}:{}", mode.as_str(), self.request.verb);
        self.allowed(self.on(Verb::from(&*on)), Some(mode)).await?;
        let verb = Verb::from(&*format!("impersonate:{}", mode.as_str()));
        self.name(&verb, Some(mode)).await?;
        self.others(&verb, Some(mode)).await
    }

    /// The request itself with another verb.
    fn on(&self, verb: Verb) -> Attributes {
        let request = self.request;
        let mut requested = request.requested.clone();
        // What a field selector names stays named: the new verb is not a list.
        let name = || request.name().to_owned();
        match &mut requested {
            Requested::Resource(target) => target.name = name(),
            Requested::Unrouted(path) => path.name = name(),
            _ => {}
        }
        Attributes {
            label_selector: request.label_selector.clone(),
            field_selector: request.field_selector.clone(),
            ..request.with(verb, requested)
        }
    }

    async fn name(&self, verb: &Verb, mode: Option<Mode>) -> Result<(), ApiError> {
        let group = mode.map_or("", |_| AUTHENTICATION);
        let (resource, namespace, name) = match (self.wanted.subject(), mode) {
            (Subject::Node(_), Some(Mode::AssociatedNode)) => ("nodes", "", "*"),
            (Subject::Node(name), Some(_)) => ("nodes", "", name),
            (Subject::ServiceAccount { namespace, name }, _) => {
                ("serviceaccounts", namespace, name)
            }
            (Subject::Node(_) | Subject::Other, _) => ("users", "", &*self.wanted.user),
        };
        let path = ResourcePath { namespace: namespace.to_owned(), ..path(group, resource, name) };
        self.allowed(self.about(verb, path), mode).await
    }

    /// Uid, groups and extra values. The modes refuse some values that the plain verb accepts, and
    /// ask once where there are many.
    async fn others(&self, verb: &Verb, mode: Option<Mode>) -> Result<(), ApiError> {
        let Wanted { uid, groups, extra, .. } = self.wanted;
        if !uid.is_empty() {
            self.allowed(self.about(verb, path(AUTHENTICATION, "uids", uid)), mode).await?;
        }
        let of_group = |name: &str| {
            self.about(verb, path(mode.map_or("", |_| AUTHENTICATION), "groups", name))
        };
        let of_extra = |key: &str, value: &str| {
            let path = path(AUTHENTICATION, "userextras", value);
            self.about(verb, ResourcePath { subresource: Subresource::of(key), ..path })
        };
        let mut may_all_groups = false;
        let mut may_all_extras = false;
        if mode.is_some() {
            if groups.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return Err(forbidden(&of_group(""), why));
            }
            if groups.iter().any(|group| group == MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(forbidden(&of_group(MASTERS), why));
            }
            if let Some(why) = bad_extra(extra) {
                return Err(forbidden(&of_extra("", ""), &why));
            }
            may_all_groups =
                groups.len() >= MANY && self.allowed(of_group("*"), mode).await.is_ok();
            let n_extras = extra.values().map(Vec::len).sum::<usize>().max(extra.len());
            may_all_extras =
                n_extras >= MANY && self.allowed(of_extra("*", "*"), mode).await.is_ok();
        }
        for group in groups.iter().filter(|_| !may_all_groups) {
            self.allowed(of_group(group), mode).await?;
        }
        for (key, values) in extra.iter().filter(|_| !may_all_extras) {
            for value in values {
                self.allowed(of_extra(key, value), mode).await?;
            }
        }
        Ok(())
    }

    fn about(&self, verb: &Verb, path: ResourcePath) -> Attributes {
        self.request.with(verb.clone(), Requested::Unrouted(path))
    }

    /// Asks the authorizers. An error of an authorizer refuses the request.
    async fn allowed(&self, question: Attributes, mode: Option<Mode>) -> Result<(), ApiError> {
        let begun = Instant::now();
        let decided = self.registry.authorize(&question).await;
        let mode = mode.map_or(LEGACY, Mode::as_str);
        self.registry.asked_to_impersonate(mode, decided.is_ok(), begun.elapsed());
        match decided {
            Err(error) if error.code() != 403 => Err(forbidden(&question, &error.0.message)),
            decided => decided,
        }
    }
}

fn path(group: &str, resource: &str, name: &str) -> ResourcePath {
    ResourcePath {
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..ResourcePath::default()
    }
}

/// Why a constrained mode refuses extra values.
fn bad_extra(extra: &BTreeMap<String, Vec<String>>) -> Option<String> {
    for (key, values) in extra {
        let why = if key.is_empty() {
            "the empty string key in extra"
        } else if !key.contains('/') || !qualified_name(key).is_empty() {
            return Some(format!(
                "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: must be a domain-prefixed path (such as \"acme.io/foo\")",
                quote(key)
            ));
        } else if key.chars().any(char::is_uppercase) {
            return Some(format!(
                "impersonating a non-lowercase key in extra is not allowed: {}",
                quote(key)
            ));
        } else if values.is_empty() {
            "empty values in extra"
        } else if values.iter().any(String::is_empty) {
            "the empty string value in extra"
        } else {
            continue;
        };
        return Some(format!("impersonating {why} is not allowed"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn wanted(headers: &[(&'static str, &'static str)]) -> Result<Option<Wanted>, ApiError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        Wanted::of(&map)
    }

    fn groups(identity: &Identity) -> Vec<&str> {
        identity.groups.iter().map(|group| &**group).collect()
    }

    #[test]
    fn headers_name_a_user() {
        assert_eq!(wanted(&[("accept", "x")]).unwrap(), None);
        let jane = wanted(&[
            ("impersonate-user", "jane"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-acme.com%2fscope", "x"),
            ("impersonate-extra-acme.com%2fscope", "y"),
            ("impersonate-extra-bad%zz", "z"),
        ]);
        let jane = jane.unwrap().unwrap().identity(false);
        assert_eq!((&*jane.user, &*jane.uid), ("jane", "7"));
        assert_eq!(groups(&jane), ["a", "b", "system:authenticated"]);
        let extra: Vec<_> = jane.extra.iter().map(|(key, v)| (&**key, v.join(","))).collect();
        assert_eq!(extra, [("acme.com/scope", "x,y".to_owned()), ("bad%zz", "z".to_owned())]);
    }

    #[test]
    fn values_without_a_user_are_a_bad_request() {
        for (headers, shown) in [
            (
                [("impersonate-group", "g1")],
                r#"Groups:[]string{"g1"}, Extra:map[string][]string(nil)"#,
            ),
            (
                [("impersonate-extra-a", "x")],
                r#"Groups:[]string(nil), Extra:map[string][]string{"a":[]string{"x"}}"#,
            ),
        ] {
            let error = wanted(&headers).unwrap_err();
            let message = format!(
                r#"requested &user.DefaultInfo{{Name:"", UID:"", {shown}}} without impersonating a user name"#
            );
            assert_eq!((error.code(), error.0.message), (400, message));
        }
    }

    #[test]
    fn groups_follow_the_kind_of_user() {
        let identity = |headers: &[(&'static str, &'static str)], is_constrained| {
            wanted(headers).unwrap().unwrap().identity(is_constrained)
        };
        let account = [("impersonate-user", "system:serviceaccount:shop:bot")];
        assert_eq!(
            groups(&identity(&account, false)),
            ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]
        );
        let anonymous = [("impersonate-user", "system:anonymous")];
        assert_eq!(groups(&identity(&anonymous, false)), ["system:unauthenticated"]);
        let stranger =
            [("impersonate-user", "jane"), ("impersonate-group", "system:unauthenticated")];
        assert_eq!(groups(&identity(&stranger, false)), ["system:unauthenticated"]);
        let node = [("impersonate-user", "system:node:n1")];
        assert_eq!(groups(&identity(&node, true)), ["system:nodes", "system:authenticated"]);
        assert_eq!(groups(&identity(&node, false)), ["system:authenticated"]);
    }

    #[test]
    fn forwarded_requests_do_not_name_a_user() {
        let mut headers = HeaderMap::new();
        for name in ["impersonate-user", "impersonate-extra-x", "impersonate-uid", "accept"] {
            headers.insert(name, HeaderValue::from_static("x"));
        }
        strip(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
