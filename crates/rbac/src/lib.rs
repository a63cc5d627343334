//! Role-based access control, as Kubernetes evaluates it.
//!
//! # Theory
//!
//! A [`Rule`] allows verbs on resources or on paths. Roles are lists of rules; bindings give a role
//! to subjects, in all namespaces (ClusterRoleBinding) or in one (RoleBinding). There are no rules
//! that deny: a request is allowed by the first rule that allows it, or not at all.
//!
//! | module | what it does | cost |
//! |---|---|---|
//! | [`rule`] | whether a rule allows a request | linear in the rule |
//! | [`index`] | roles and bindings; the bindings of a subject are found by hash | one look-up for the user and each group, plus the rules that are bound to them |
//! | [`grant`] | which rights of a new role its writer does not hold | linear in the rules for whole rules, bounded beyond ([`grant::STEPS_MAX`]) |
//!
//! ```
//! use serde_json::json;
//! use setpoint_rbac::{Index, Request, Subject};
//!
//! let mut index = Index::default();
//! index.put_role("shop", "reader", &json!({"rules": [
//!     {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
//! ]}));
//! index.put_binding("shop", "readers", &json!({
//!     "roleRef": {"kind": "Role", "name": "reader"},
//!     "subjects": [{"kind": "Group", "name": "team"}],
//! }));
//! let request = Request { verb: "get", resource: "pods", ..Request::default() };
//! let user = Subject { user: "jane", groups: &["team"] };
//! assert!(index.decide(&user, "shop", &request).allowed.is_some());
//! assert!(index.decide(&user, "other", &request).allowed.is_none());
//! ```
//!
//! This crate knows nothing of HTTP and storage, and of objects only the names of users. Rules and
//! messages are those of Kubernetes' RBAC authorizer.

pub mod grant;
pub mod index;
pub mod rule;

pub use grant::{missing, missing_rules};
pub use index::{Index, MissingRole, Subject, Verdict};
pub use rule::{Request, Rule, rules_of};
