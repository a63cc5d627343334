//! Authorization reviews: requests that are answered and not stored.

use crate::kind::Kind;

/// LocalSubjectAccessReview: no rules of its own.
pub(super) static LOCAL_SUBJECT_ACCESS_REVIEW: Kind =
    Kind::plain("authorization.k8s.io", "LocalSubjectAccessReview");

/// SelfSubjectAccessReview: no rules of its own.
pub(super) static SELF_SUBJECT_ACCESS_REVIEW: Kind =
    Kind::plain("authorization.k8s.io", "SelfSubjectAccessReview");

/// SelfSubjectRulesReview: no rules of its own.
pub(super) static SELF_SUBJECT_RULES_REVIEW: Kind =
    Kind::plain("authorization.k8s.io", "SelfSubjectRulesReview");

/// SubjectAccessReview: no rules of its own.
pub(super) static SUBJECT_ACCESS_REVIEW: Kind =
    Kind::plain("authorization.k8s.io", "SubjectAccessReview");
