//! Another server that knows the users: it reviews tokens ([`TokenWebhook`]), decides who may do
//! what ([`AccessWebhook`]) and which images run ([`ImagePolicyWebhook`]). A kubeconfig says where
//! it is and how to reach it, as for kube-apiserver.

mod access;
mod cache;
mod conditions;
mod figures;
mod images;
mod token;

pub use access::{AccessWebhook, AccessWebhookOptions, ReviewVersion};
pub use cache::{ANSWERS_MAX, KEPT_BYTES_MAX, QUESTION_BYTES_MAX};
pub use conditions::{CONDITIONS_MAX, MatchConditions};
pub use figures::AccessFigures;
pub use images::{ImagePolicyError, ImagePolicyWebhook};
pub use setpoint_remote::{
    ANSWER_BYTES_MAX, AttemptObserver, Remote, RemoteError, RequestError, Retry,
};
pub use token::{TOKEN_TTL, TokenWebhook};

use setpoint_remote::{ATTEMPT_MAX, CONNECTION_MAX};
