//! Decides which keys a member may run: conditions 2 and 3, as a value.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;

use super::promise::{Members, Promise};
use crate::election::holder;

/// The keys that a member may run according to the Leases; the deadline is checked separately.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ownership {
    pub(super) me: Arc<str>,
    /// Its own promises that may be in force, and the one that it prepares: it may run the keys
    /// that it wins under all of them. If empty, it runs nothing.
    pub(super) own: Vec<Members>,
    /// Claims of other members, without those that cannot affect the keys it wins.
    pub(super) claims: Vec<Claim>,
}

impl Ownership {
    pub(super) fn new(me: Arc<str>, mut own: Vec<Members>, claims: Vec<Claim>) -> Self {
        own.dedup();
        let may_overlap = |claim: &Claim| !own.iter().any(|mine| claim.is_apart_from(&me, mine));
        let claims = if own.is_empty() {
            Vec::new()
        } else {
            claims.into_iter().filter(may_overlap).collect()
        };
        Self { me, own, claims }
    }

    /// Whether it may run a key.
    pub(super) fn owns(&self, key: &str) -> bool {
        !self.own.is_empty() && self.wins(key) && !self.claims.iter().any(|claim| claim.takes(key))
    }

    /// Whether its own promises give it the key; another member's promise may still do too.
    pub(super) fn wins(&self, key: &str) -> bool {
        self.own.iter().all(|members| members.winner(key) == Some(&self.me))
    }

    /// Whether it may own a key that `before` did not.
    pub(super) fn may_gain_on(&self, before: &Self) -> bool {
        let is_bound = |of: &Self| !of.own.is_empty();
        let keeps_all = before.own.iter().all(|members| self.own.contains(members))
            && before.claims.iter().all(|claim| self.claims.contains(claim));
        is_bound(self) && !(is_bound(before) && keeps_all)
    }
}

/// The claim of another member's Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claim {
    /// The keys that its holder wins among these members.
    Among { holder: Arc<str>, members: Members },
    /// Every key: its promise cannot be parsed.
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

    /// Whether it claims none of the keys that `me` wins among `mine`, so that it can be ignored.
    pub(super) fn is_apart_from(&self, me: &Arc<str>, mine: &Members) -> bool {
        match self {
            Self::Among { holder, members } => {
                holder != me && (members == mine || members.names().all(|name| name != holder))
            }
            Self::All => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(names: &[u8]) -> Members {
        Members::of(names.iter().map(|name| format!("m{name}").into()))
    }

    fn claim(holder: &str, of: &[u8]) -> Claim {
        Claim::Among { holder: holder.into(), members: members(of) }
    }

    fn set() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0..6_u8, 0..6)
    }

    proptest! {
        /// The third condition: if each sees the other's promise, at most one of two runs a key,
        /// whatever they promised.
        #[test]
        fn two_that_see_each_others_promises_never_both_own(a in set(), b in set(), key in "[a-z]{1,8}") {
            let stands = |me: &str, mine: &[u8], claim| {
                Ownership::new(me.into(), vec![members(mine)], vec![claim]).owns(&key)
            };
            let (of_a, of_b) = (stands("m0", &a, claim("m1", &b)), stands("m1", &b, claim("m0", &a)));
            prop_assert!(!(of_a && of_b));
        }

        /// Ignored claims make no difference, and an additional promise only removes keys.
        #[test]
        fn ignored_claims_make_no_difference(own in set(), next in set(), others in proptest::collection::vec((0..6_u8, set()), 0..4), key in "[a-z]{1,8}") {
            let claims: Vec<_> = others.iter().map(|(holder, of)| claim(&format!("m{holder}"), of)).collect();
            let by_all = members(&own).winner(&key).is_some_and(|winner| **winner == *"m0")
                && !claims.iter().any(|claim| claim.takes(&key));
            let one = Ownership::new("m0".into(), vec![members(&own)], claims.clone());
            prop_assert_eq!(one.owns(&key), by_all);
            let two = Ownership::new("m0".into(), vec![members(&own), members(&next)], claims);
            prop_assert!(!two.owns(&key) || (one.owns(&key) && two.wins(&key)));
            prop_assert!(!two.owns(&key) || one.owns(&key) || two.may_gain_on(&one));
        }

        /// If all have the same view, each key has exactly one owner.
        #[test]
        fn members_that_agree_share_all_keys(all in proptest::collection::vec(0..6_u8, 1..6), key in "[a-z]{1,8}") {
            let names: std::collections::BTreeSet<u8> = all.iter().copied().collect();
            let owners = names.iter().filter(|me| {
                let others = names.iter().filter(|other| other != me);
                let claims = others.map(|other| claim(&format!("m{other}"), &all)).collect();
                Ownership::new(format!("m{me}").into(), vec![members(&all)], claims).owns(&key)
            });
            prop_assert_eq!(owners.count(), 1);
        }
    }

    #[test]
    fn unparsable_promise_claims_every_key() {
        let ownership = Ownership::new("m0".into(), vec![members(&[0])], vec![Claim::All]);
        assert!(ownership.wins("a") && !ownership.owns("a"));
        assert!(!Ownership::default().owns("a"), "without a promise of its own, nothing");
    }
}
