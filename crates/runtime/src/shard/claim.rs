//! What another member's Lease says that it may be running.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;

use super::promise::{Members, Promise};
use crate::election::holder;

/// What another Lease claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claim {
    /// The keys that its holder wins among these.
    Among { holder: Arc<str>, members: Members },
    /// Everything: its promise cannot be read.
    All,
}

impl Claim {
    pub(super) fn of(lease: &Lease) -> Self {
        match Promise::of(lease) {
            Some(promise) => Self::Among { holder: holder(lease).into(), members: promise.members },
            None => Self::All,
        }
    }

    pub(super) fn takes(&self, key: &str) -> bool {
        match self {
            Self::Among { holder, members } => members.winner(key) == Some(holder),
            Self::All => true,
        }
    }

    /// Whether it takes nothing that `me`, who wins among `mine`, wins: then it need not be asked.
    pub(super) fn is_apart_from(&self, me: &Arc<str>, mine: &Members) -> bool {
        match self {
            Self::Among { holder, members } => {
                holder != me && (members == mine || members.names().all(|name| name != holder))
            }
            Self::All => false,
        }
    }
}
