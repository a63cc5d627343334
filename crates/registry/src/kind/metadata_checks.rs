//! Checks of the metadata of an update.

/// How the metadata of an update is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataCheck {
    /// Against the stored metadata.
    Change,
    /// As the metadata of a new object.
    Whole,
}

/// Checks of the metadata of an update, in their order around the rules of the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataChecks {
    /// Those that come before the rules.
    pub before: &'static [MetadataCheck],
    /// Those that follow the rules.
    pub after: &'static [MetadataCheck],
}
impl MetadataChecks {
    /// The rules of the kind leave out metadata.
    pub const NONE: Self = Self::before(&[]);
    /// A check of the whole before the rules, a check of the change after them.
    pub const WHOLE_THEN_CHANGE: Self =
        Self { before: &[MetadataCheck::Whole], after: &[MetadataCheck::Change] };

    /// Checks before the rules only.
    pub const fn before(checks: &'static [MetadataCheck]) -> Self {
        Self { before: checks, after: &[] }
    }
}
