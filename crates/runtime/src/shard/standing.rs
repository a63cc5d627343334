//! Which keys a member may run: the three conditions, as a value.

use std::sync::Arc;

use super::{claim::Claim, promise::Members};

/// What a member may run as far as the Leases say; the deadline is asked beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Standing {
    pub(super) me: Arc<str>,
    /// Its own promises that may be in force, and the one that it prepares: it runs what it wins
    /// under each. None: it runs nothing.
    pub(super) own: Vec<Members>,
    /// What others say; without those that cannot touch what it wins anyway.
    pub(super) claims: Vec<Claim>,
}

impl Standing {
    pub(super) fn new(me: Arc<str>, mut own: Vec<Members>, claims: Vec<Claim>) -> Self {
        own.dedup();
        let is_heard = |claim: &Claim| !own.iter().any(|mine| claim.is_apart_from(&me, mine));
        let claims =
            if own.is_empty() { Vec::new() } else { claims.into_iter().filter(is_heard).collect() };
        Self { me, own, claims }
    }

    /// Whether it may run a key.
    pub(super) fn owns(&self, key: &str) -> bool {
        !self.own.is_empty() && self.wins(key) && !self.claims.iter().any(|claim| claim.takes(key))
    }

    /// Whether the key is its own by its promises, if perhaps not yet by others'.
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
        /// The third condition, at a moment when each sees the other's promise: whatever the two
        /// believe, not both run a key.
        #[test]
        fn two_that_see_each_others_promises_never_both_own(a in set(), b in set(), key in "[a-z]{1,8}") {
            let stands = |me: &str, mine: &[u8], claim| {
                Standing::new(me.into(), vec![members(mine)], vec![claim]).owns(&key)
            };
            let (of_a, of_b) = (stands("m0", &a, claim("m1", &b)), stands("m1", &b, claim("m0", &a)));
            prop_assert!(!(of_a && of_b));
        }

        /// Claims that are left out change nothing, and a promise more only takes away.
        #[test]
        fn what_is_left_out_does_not_count(own in set(), next in set(), others in proptest::collection::vec((0..6_u8, set()), 0..4), key in "[a-z]{1,8}") {
            let claims: Vec<_> = others.iter().map(|(holder, of)| claim(&format!("m{holder}"), of)).collect();
            let by_all = members(&own).winner(&key).is_some_and(|winner| **winner == *"m0")
                && !claims.iter().any(|claim| claim.takes(&key));
            let one = Standing::new("m0".into(), vec![members(&own)], claims.clone());
            prop_assert_eq!(one.owns(&key), by_all);
            let two = Standing::new("m0".into(), vec![members(&own), members(&next)], claims);
            prop_assert!(!two.owns(&key) || (one.owns(&key) && two.wins(&key)));
            prop_assert!(!two.owns(&key) || one.owns(&key) || two.may_gain_on(&one));
        }

        /// Where nobody's view differs, each key is exactly one's.
        #[test]
        fn members_that_agree_share_all_keys(all in proptest::collection::vec(0..6_u8, 1..6), key in "[a-z]{1,8}") {
            let names: std::collections::BTreeSet<u8> = all.iter().copied().collect();
            let owners = names.iter().filter(|me| {
                let others = names.iter().filter(|other| other != me);
                let claims = others.map(|other| claim(&format!("m{other}"), &all)).collect();
                Standing::new(format!("m{me}").into(), vec![members(&all)], claims).owns(&key)
            });
            prop_assert_eq!(owners.count(), 1);
        }
    }

    #[test]
    fn promise_that_cannot_be_read_takes_everything() {
        let standing = Standing::new("m0".into(), vec![members(&[0])], vec![Claim::All]);
        assert!(standing.wins("a") && !standing.owns("a"));
        assert!(!Standing::default().owns("a"), "without a promise of its own, nothing");
    }
}
