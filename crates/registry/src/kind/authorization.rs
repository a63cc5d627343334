//! Authorization reviews: requests that are answered and not stored.

use crate::kind::{Action, Kind, Reviewed};

/// LocalSubjectAccessReview.
pub(super) static LOCAL_SUBJECT_ACCESS_REVIEW: Kind = Kind {
    actions: &[("", Action::Review(Reviewed::LocalAccess))],
    ..Kind::plain("authorization.k8s.io", "LocalSubjectAccessReview")
};

/// SelfSubjectAccessReview.
pub(super) static SELF_SUBJECT_ACCESS_REVIEW: Kind = Kind {
    actions: &[("", Action::Review(Reviewed::OwnAccess))],
    ..Kind::plain("authorization.k8s.io", "SelfSubjectAccessReview")
};

/// SelfSubjectRulesReview.
pub(super) static SELF_SUBJECT_RULES_REVIEW: Kind = Kind {
    actions: &[("", Action::Review(Reviewed::OwnRules))],
    ..Kind::plain("authorization.k8s.io", "SelfSubjectRulesReview")
};

/// SubjectAccessReview.
pub(super) static SUBJECT_ACCESS_REVIEW: Kind = Kind {
    actions: &[("", Action::Review(Reviewed::Access))],
    ..Kind::plain("authorization.k8s.io", "SubjectAccessReview")
};
