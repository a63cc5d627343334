//! A cheap look at an encoded object: its metadata, without building a tree.
use std::borrow::Cow;

/// What a skim sees. One pass over the bytes; strings borrow from them unless they hold escapes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct Skim<'a> {
    pub api_version: Cow<'a, str>,
    pub kind: Cow<'a, str>,
    pub name: Cow<'a, str>,
    pub namespace: Cow<'a, str>,
    pub uid: Cow<'a, str>,
    pub resource_version: Cow<'a, str>,
    pub generation: i64,
    pub creation_timestamp: Cow<'a, str>,
    pub deletion_timestamp: Cow<'a, str>,
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub annotations: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub owner_references: Vec<OwnerReference<'a>>,
    pub finalizers: Vec<Cow<'a, str>>,
    /// Byte range of the whole `managedFields` member value, so that it can be cut without a tree.
    pub managed_fields: Option<std::ops::Range<usize>>,
}
/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct OwnerReference<'a> {
    pub api_version: Cow<'a, str>,
    pub kind: Cow<'a, str>,
    pub name: Cow<'a, str>,
    pub uid: Cow<'a, str>,
    pub controller: bool,
    pub block_owner_deletion: bool,
}
/// Why bytes cannot be skimmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed JSON at byte {at}: {what}")]
#[allow(missing_docs)]
pub struct SkimError {
    pub at: usize,
    pub what: &'static str,
}
impl<'a> Skim<'a> {
    /// Skims one encoded object.
    pub fn of(_bytes: &'a [u8]) -> Result<Self, SkimError> {
        todo!()
    }
}
/// Looks up one scalar member by path (`["status","phase"]`) without a tree; `None` when absent. For field selectors.
pub fn scalar<'a>(_bytes: &'a [u8], _path: &[&str]) -> Option<Cow<'a, str>> {
    todo!()
}
