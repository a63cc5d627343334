//! Authentication reviews: requests that are answered and not stored.

use crate::kind::{Action, Kind, Reviewed};

/// SelfSubjectReview.
pub(super) static SELF_SUBJECT_REVIEW: Kind = Kind {
    actions: &[("", Action::Review(Reviewed::User))],
    ..Kind::plain("authentication.k8s.io", "SelfSubjectReview")
};

/// TokenReview: not served yet.
pub(super) static TOKEN_REVIEW: Kind = Kind::plain("authentication.k8s.io", "TokenReview");
