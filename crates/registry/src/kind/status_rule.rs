//! The rule of a status subresource.
use super::counted::{Counts, nothing};
use super::{MetadataCheck, MetadataChecks};
use crate::features::Feature;

/// The parts of a request that a write through `/status` changes besides `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatusMeta {
    /// Everything but `spec`.
    All,
    /// All metadata but the labels.
    ButLabels,
    /// All metadata except owner references and the deletion timestamp.
    Pod,
    /// All metadata except labels, annotations, finalizers, owner references, the generation and
    /// the deletion timestamp.
    Identity,
    /// Nothing: metadata stays as stored, except managedFields.
    Nothing,
}

/// A kind with a status subresource.
#[derive(Debug, Clone, Copy)]
pub struct StatusRule {
    /// What `/status` changes besides `status`.
    pub meta: StatusMeta,
    /// `status` of a new object, as JSON; empty: the client's status is removed.
    pub initial: &'static str,
    /// `initial` comes when the object is stored: what validates it sees an empty status.
    pub comes_late: bool,
    /// A new object keeps the status that the client sent; only what it lacks is initial.
    pub keeps_new: bool,
    /// The feature without which the main endpoint writes `status`, too. `None`: it never does.
    pub reset_with: Option<Feature>,
    /// Members that are not owned through `/status`: `spec`, `metadata/labels`.
    pub resets: &'static [&'static str],
    /// How the metadata is checked, besides once as that of any object. Each check reports.
    pub checks: MetadataChecks,
    /// A client that sends `status` through the main endpoint owns it, although it is not stored.
    pub owned_through_main: bool,
    /// The answers of `/status` may be Tables.
    pub has_tables: bool,
    /// What a stored change counts.
    pub counts: Counts,
}
impl StatusRule {
    /// Custom resources: `/status` does not change metadata, and a new object has no status.
    pub const CUSTOM: Self = Self::new(StatusMeta::Nothing, "");
    /// A rule of a built-in kind.
    pub const fn new(meta: StatusMeta, initial: &'static str) -> Self {
        let resets: &[&str] = match meta {
            StatusMeta::Identity | StatusMeta::Nothing => &["metadata", "spec"],
            StatusMeta::All => &["spec"],
            StatusMeta::ButLabels => &["spec", "metadata/labels"],
            StatusMeta::Pod => &["spec", "metadata/deletionTimestamp", "metadata/ownerReferences"],
        };
        let checks = MetadataChecks::before(&[MetadataCheck::Change]);
        Self {
            meta,
            initial,
            comes_late: false,
            keeps_new: false,
            reset_with: None,
            resets,
            checks,
            owned_through_main: false,
            has_tables: true,
            counts: nothing,
        }
    }
}
