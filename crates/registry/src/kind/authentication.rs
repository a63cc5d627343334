//! Authentication reviews: requests that are answered and not stored.

pub(crate) mod token_request;

use crate::kind::{Action, Kind, Reviewed};

/// SelfSubjectReview.
pub(super) static SELF_SUBJECT_REVIEW: Kind = Kind {
    actions: &[("", Action::Review(Reviewed::User))],
    ..Kind::plain("authentication.k8s.io", "SelfSubjectReview")
};

/// TokenReview.
pub(super) static TOKEN_REVIEW: Kind = Kind {
    actions: &[("", Action::Review(Reviewed::Token))],
    ..Kind::plain("authentication.k8s.io", "TokenReview")
};
