//! Group, version, kind and resource.
use std::fmt;
use std::sync::Arc;

/// The kinds that Kubernetes' decoders know in every group version.
pub const UNVERSIONED_KINDS: [&str; 5] =
    ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

/// An API group and version, such as `apps/v1`; the core group is the empty string.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The version.
    pub version: Arc<str>,
}
impl GroupVersion {
    /// Creates one.
    pub fn new(group: impl Into<Arc<str>>, version: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), version: version.into() }
    }
    /// Parses an `apiVersion`: `v1` or `group/version`.
    ///
    /// `None` if it is empty, has no version, or has more than one slash.
    pub fn parse(api_version: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        (!version.is_empty() && !version.contains('/')).then(|| Self::new(group, version))
    }
    /// The kind in this group version.
    pub fn kind(&self, kind: impl Into<Arc<str>>) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: kind.into(),
        }
    }
    /// The resource in this group version.
    pub fn resource(&self, resource: impl Into<Arc<str>>) -> GroupVersionResource {
        GroupVersionResource {
            group: self.group.clone(),
            version: self.version.clone(),
            resource: resource.into(),
        }
    }
}
/// Displays as an `apiVersion`: `v1`, `apps/v1`.
impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}", self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// A kind in a group and version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// Group.
    pub group: Arc<str>,
    /// Version.
    pub version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
}
impl GroupVersionKind {
    /// Creates one.
    pub fn new(
        group: impl Into<Arc<str>>,
        version: impl Into<Arc<str>>,
        kind: impl Into<Arc<str>>,
    ) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }
    /// The group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }
    /// The kind without the version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }
}
/// Displays as `apps/v1, Kind=Deployment` (the core group as `/v1, Kind=Pod`), as in the API's
/// messages.
impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// A resource in a group and version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    /// Group.
    pub group: Arc<str>,
    /// Version.
    pub version: Arc<str>,
    /// Plural resource name.
    pub resource: Arc<str>,
}
impl GroupVersionResource {
    /// Creates one.
    pub fn new(
        group: impl Into<Arc<str>>,
        version: impl Into<Arc<str>>,
        resource: impl Into<Arc<str>>,
    ) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }
    /// The resource without the version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }
    /// The group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }
}

/// A kind in a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    /// Group.
    pub group: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
}
/// Displays as `Deployment.apps`, or `Pod` for the core group.
impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}", self.kind)
        } else {
            write!(f, "{}.{}", self.kind, self.group)
        }
    }
}

/// A resource in a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// Group.
    pub group: Arc<str>,
    /// Plural resource name.
    pub resource: Arc<str>,
}
/// Displays as `deployments.apps`, or `pods` for the core group.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}", self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions_parse_and_display() {
        for text in ["v1", "apps/v1", "ex.io/v1alpha1"] {
            assert_eq!(GroupVersion::parse(text).map(|gv| gv.to_string()).as_deref(), Some(text));
        }
        for text in ["", "apps/", "a/b/c"] {
            assert_eq!(GroupVersion::parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_display_as_messages_have_them() {
        let core = GroupVersion::new("", "v1");
        let apps = GroupVersion::new("apps", "v1");
        assert_eq!(core.kind("Pod").to_string(), "/v1, Kind=Pod");
        assert_eq!(apps.kind("Deployment").to_string(), "apps/v1, Kind=Deployment");
        assert_eq!(apps.kind("Deployment").group_kind().to_string(), "Deployment.apps");
        assert_eq!(core.resource("pods").group_resource().to_string(), "pods");
        assert_eq!(apps.resource("deployments").group_resource().to_string(), "deployments.apps");
    }
}
