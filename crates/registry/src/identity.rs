//! Users, and users who act as others.
use crate::verb::Verb;
use serde_json::{Value, json};
use setpoint_object::users::{
    ANONYMOUS as ANONYMOUS_USER, AUTHENTICATED, MASTERS, UNAUTHENTICATED,
};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The user name of the server itself.
const LOOPBACK: &str = "system:apiserver";
/// What one of many texts takes in memory besides its characters.
pub(crate) const TEXT_BYTES: usize = 32;

/// A user: name, uid, groups and further facts from the authenticator. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User name: `system:admin`.
    pub user: Arc<str>,
    /// Distinguishes users that had the same name over time. Empty if the authenticator gives none.
    pub uid: Arc<str>,
    /// Groups.
    pub groups: Arc<[Arc<str>]>,
    /// Further facts from the authenticator, for authorizers and audit.
    pub extra: Arc<BTreeMap<String, Vec<String>>>,
}

impl Identity {
    /// Creates a user that is a member of `groups`.
    pub fn new<'a>(user: &str, groups: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            user: user.into(),
            uid: "".into(),
            groups: groups.into_iter().map(Arc::from).collect(),
            extra: Arc::default(),
        }
    }
    /// The server itself: `system:apiserver` in `system:masters`.
    pub fn loopback() -> Self {
        Self::new(LOOPBACK, [MASTERS])
    }
    /// Whether it is the server itself.
    pub fn is_loopback(&self) -> bool {
        &*self.user == LOOPBACK && self.is_in(MASTERS)
    }
    /// The administrator: `system:admin` in `system:masters`.
    pub fn admin() -> Self {
        Self::new("system:admin", [MASTERS, AUTHENTICATED])
    }
    /// A client of a listener without authentication: `system:unsecured` in `system:masters`.
    pub fn unsecured() -> Self {
        Self::new("system:unsecured", [MASTERS, AUTHENTICATED])
    }
    /// A client without credentials: `system:anonymous` in `system:unauthenticated`.
    pub fn anonymous() -> Self {
        // Made once, because every request starts with this identity.
        static ANONYMOUS: LazyLock<Identity> =
            LazyLock::new(|| Identity::new(ANONYMOUS_USER, [UNAUTHENTICATED]));
        ANONYMOUS.clone()
    }
    /// The API's `UserInfo`, without empty members.
    pub fn user_info(&self) -> Value {
        let mut user = json!({"username": *self.user});
        if !self.uid.is_empty() {
            user["uid"] = (*self.uid).into();
        }
        if !self.groups.is_empty() {
            user["groups"] = self.groups.iter().map(|group| &**group).collect();
        }
        if !self.extra.is_empty() {
            user["extra"] = json!(*self.extra);
        }
        user
    }
    /// Bytes of its texts in memory, which clients and authenticators may make many and long.
    pub fn n_bytes(&self) -> usize {
        let extra = self.extra.iter().flat_map(|(key, values)| std::iter::once(key).chain(values));
        let groups = self.groups.iter().map(|group| group.len());
        let several = groups.chain(extra.map(String::len)).map(|n_bytes| TEXT_BYTES + n_bytes);
        self.user.len() + self.uid.len() + several.sum::<usize>()
    }
    /// Whether the user is a member of `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| &**g == group)
    }
}

/// A user who acts as another one. The audit log has both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impersonator {
    /// The authenticated user.
    pub identity: Identity,
    /// The verb that allows it: `impersonate` for everything, or `impersonate:<mode>`, which is
    /// limited to some verbs and resources.
    pub verb: Verb,
}
