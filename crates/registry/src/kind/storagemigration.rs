//! Kinds of `storagemigration.k8s.io`.
pub(super) mod storage_version_migration;
