//! Authentication reviews: requests that are answered and not stored.

use crate::kind::Kind;

/// SelfSubjectReview: no rules of its own.
pub(super) static SELF_SUBJECT_REVIEW: Kind =
    Kind::plain("authentication.k8s.io", "SelfSubjectReview");

/// TokenReview: no rules of its own.
pub(super) static TOKEN_REVIEW: Kind = Kind::plain("authentication.k8s.io", "TokenReview");
