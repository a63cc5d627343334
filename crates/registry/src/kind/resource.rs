//! Kinds of `resource.k8s.io`.
pub(super) mod resource_claim;
pub(super) mod resource_slice;

use crate::kind::Kind;
use crate::table::cell;

/// DeviceClass: no rules of its own.
pub(super) static DEVICE_CLASS: Kind = Kind {
    returns_deleted: true,
    cells: Some(cell::name_and_age),
    ..Kind::plain("resource.k8s.io", "DeviceClass")
};
