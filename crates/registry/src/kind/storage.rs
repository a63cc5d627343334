//! Kinds of `storage.k8s.io`.
pub(super) mod csi_driver;
pub(super) mod csi_node;
pub(super) mod storage_class;
pub(super) mod volume_attachment;
pub(super) mod volume_attributes_class;

use crate::kind::Kind;

/// CSIStorageCapacity: no rules of its own.
pub(super) static CSI_STORAGE_CAPACITY: Kind =
    Kind { unconditional_update: false, ..Kind::plain("storage.k8s.io", "CSIStorageCapacity") };
