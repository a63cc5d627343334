//! Versions that are read from a store but not served.
use crate::features::Release;
use serde_json::Value;

/// A version that is read from a store but not served.
#[derive(Debug, Clone, Copy)]
pub struct FormerVersion {
    /// Its name, such as `v1beta1`.
    pub version: &'static str,
    /// Its protobuf messages are those of the stored version.
    pub same_messages: bool,
    /// Kubernetes still stores it, so shared stores have it, and discovery its hash: converts an
    /// object of the stored version to it, besides its `apiVersion`.
    pub restore: Option<fn(&mut Value)>,
    /// The first release whose servers all read the stored version, so that
    /// [`restore`](Self::restore) is not needed. `None`: it always is.
    pub until: Option<Release>,
    /// Converts a stored object to the stored version, besides its `apiVersion`.
    pub convert: fn(&mut Value),
}
impl FormerVersion {
    /// A version that Kubernetes stored once and no longer serves, whose messages and members are
    /// those of the stored version (by `staging/src/k8s.io/api/*/*/generated.proto`).
    ///
    /// A kube-apiserver stores an object in the present version with the object's next change.
    /// Objects that nobody changes keep the version that they were stored in, however often the
    /// cluster is upgraded, and kube-apiservers still read it. Rows lack those of Ingresses and
    /// EndpointSlices, which need more of a conversion, and of what controllers write all the time,
    /// such as Leases.
    pub const fn retired(version: &'static str) -> Self {
        Self { version, same_messages: true, restore: None, until: None, convert: |_| {} }
    }
    /// A version with the same members as the stored one, which a kube-apiserver stores as long as
    /// it shares its store with releases before this minor one, because they have no other.
    pub(crate) const fn stored_until(minor: u8, version: &'static str) -> Self {
        let until = Some(Release::of_minor(minor));
        Self { restore: Some(|_| {}), until, ..Self::retired(version) }
    }
    /// Whether Kubernetes stores it where the oldest of the servers is of this release.
    pub(crate) fn is_stored(&self, oldest: Release) -> bool {
        self.restore.is_some() && self.until.is_none_or(|until| oldest < until)
    }
}
