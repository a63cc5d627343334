//! The paths of webhooks.

use kube_core::Resource;
use setpoint_object::GroupVersionKind;

/// The path of conversion webhooks.
pub const CONVERT: &str = "/convert";

/// The kind of a type.
pub fn kind_of<K: Resource<DynamicType = ()>>() -> GroupVersionKind {
    GroupVersionKind::new(K::group(&()), K::version(&()), K::kind(&()))
}

/// The path of the mutating webhook of a kind: `/mutate-<group>-<version>-<kind>`, with the group's
/// dots as dashes and the kind in lower case (WHK-5).
///
/// ```
/// use setpoint_object::GroupVersionKind;
/// use setpoint_webhook::path;
///
/// let job = GroupVersionKind::new("batch.tutorial.kubebuilder.io", "v1", "CronJob");
/// assert_eq!(path::mutate(&job), "/mutate-batch-tutorial-kubebuilder-io-v1-cronjob");
/// assert_eq!(path::validate(&GroupVersionKind::new("", "v1", "Pod")), "/validate--v1-pod");
/// ```
pub fn mutate(kind: &GroupVersionKind) -> String {
    path("mutate", kind)
}

/// The path of the validating webhook of a kind: as [`mutate`], with `/validate-`.
pub fn validate(kind: &GroupVersionKind) -> String {
    path("validate", kind)
}

fn path(verb: &str, kind: &GroupVersionKind) -> String {
    let group = kind.group.replace('.', "-");
    format!("/{verb}-{group}-{}-{}", kind.version, kind.kind.to_lowercase())
}

/// Whether a webhook path is valid (WHK-5): `/` alone, or one or more `/segment` of letters,
/// digits, `-` and `_`.
pub fn is_valid(path: &str) -> bool {
    let is_segment = |segment: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !segment.is_empty() && segment.bytes().all(is_allowed)
    };
    path == "/" || path.strip_prefix('/').is_some_and(|path| path.split('/').all(is_segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_paths_consist_of_segments_whk_5() {
        for path in ["/", "/a", "/a/b-c/D_9", "/mutate--v1-pod"] {
            assert!(is_valid(path), "{path}");
        }
        for path in ["", "a", "//", "/a/", "/a//b", "/a.b", "/a?b", "/ä", "/a b", "/a\n"] {
            assert!(!is_valid(path), "{path}");
        }
    }

    #[test]
    fn kind_is_read_from_the_type() {
        let kind = kind_of::<k8s_openapi::api::apps::v1::Deployment>();
        assert_eq!(mutate(&kind), "/mutate-apps-v1-deployment");
        assert_eq!(validate(&kind), "/validate-apps-v1-deployment");
    }
}
