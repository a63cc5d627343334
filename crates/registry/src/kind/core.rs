//! The core group.
pub(super) mod component_status;
pub(super) mod config_map;
pub(crate) mod endpoints;
pub(crate) mod event;
pub(super) mod limit_range;
pub(crate) mod namespace;
pub(super) mod node;
pub(super) mod persistent_volume;
pub(super) mod persistent_volume_claim;
pub(crate) mod pod;
pub(super) mod pod_template;
pub(super) mod replication_controller;
pub(super) mod resource_quota;
pub(super) mod secret;
pub(crate) mod service;

use crate::kind::{Action, Context, Kind, MetadataCheck, MetadataChecks};
use crate::table::cell;
use serde_json::Value;

/// The name of accounts' kind, and of the admission plugin that gives pods theirs.
pub(crate) const ACCOUNT: &str = "ServiceAccount";
/// ServiceAccount: a warning, but no rules of its own.
pub(super) static SERVICE_ACCOUNT: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Change, MetadataCheck::Whole]),
    returns_deleted: true,
    actions: &[("token", Action::IssueToken)],
    prepare: prepare_account,
    warnings: account_warnings,
    update_warnings: |account, old| match is_restricted(old) {
        true => Vec::new(),
        false => account_warnings(account),
    },
    cells: Some(cell::name_and_age),
    ..Kind::plain("", ACCOUNT)
};

/// The annotation of an account whose pods use only the Secrets that it names.
pub(crate) const ENFORCE_MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
fn is_restricted(account: &Value) -> bool {
    account["metadata"]["annotations"].get(ENFORCE_MOUNTABLE_SECRETS).is_some()
}
/// Warns of the annotation, which is deprecated.
fn account_warnings(account: &Value) -> Vec<String> {
    let warning = || {
        format!(
            "metadata.annotations[{ENFORCE_MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        )
    };
    is_restricted(account).then(warning).into_iter().collect()
}

/// Of the references to Secrets, only names are kept.
fn prepare_account(_: &Context<'_>, account: &mut Value, _: Option<&Value>) {
    for secret in account.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(members) = secret.as_object_mut() {
            members.retain(|name, _| name == "name");
        }
    }
}

/// Binding: not stored; it assigns a pod to a node.
pub(super) static BINDING: Kind =
    Kind { actions: &[("", Action::Bind)], ..Kind::plain("", "Binding") };
