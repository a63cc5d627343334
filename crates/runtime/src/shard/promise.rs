//! Promises of members: the set of members among which a member wins its keys.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::{MEMBERS_MAX, options::IDENTITY_BYTES_MAX};

/// The annotation of a Lease with its holder's promise.
const ANNOTATION: &str = "shard.setpoint.dev/acknowledged";

/// A sorted set of members. Cheap to compare with a clone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Members(Arc<[(Arc<str>, u64)]>);

impl Members {
    /// The first [`MEMBERS_MAX`] of these names; later members own nothing.
    pub(super) fn of(names: impl IntoIterator<Item = Arc<str>>) -> Self {
        let mut names: Vec<Arc<str>> = names.into_iter().filter(|name| !name.is_empty()).collect();
        names.sort();
        names.dedup();
        names.truncate(MEMBERS_MAX);
        Self(names.into_iter().map(|name| (name.clone(), seed_of(&name))).collect())
    }

    /// The member that wins a key.
    pub(super) fn winner(&self, key: &str) -> Option<&Arc<str>> {
        let weighed = self.0.iter().map(|(name, seed)| (weight_of(*seed, key), name));
        weighed.max().map(|(_, name)| name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|(name, _)| name)
    }
}

/// A published set, with its number among the member's publications.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Promise {
    pub(super) number: u64,
    pub(super) members: Members,
}

#[derive(Serialize, Deserialize)]
struct Text {
    number: u64,
    members: Vec<String>,
}

impl Promise {
    /// The promise in a Lease; `None` if there is none that can be parsed.
    pub(super) fn of(lease: &Lease) -> Option<Self> {
        let text = lease.metadata.annotations.as_ref()?.get(ANNOTATION)?;
        let text: Text = serde_json::from_str(text).ok()?;
        let fits = text.members.len() <= MEMBERS_MAX
            && text.members.iter().all(|name| name.len() <= IDENTITY_BYTES_MAX);
        fits.then(|| Self {
            number: text.number,
            members: Members::of(text.members.into_iter().map(Arc::from)),
        })
    }

    /// Sets it in a Lease.
    pub(super) fn put(&self, lease: &mut Lease) {
        let text = Text {
            number: self.number,
            members: self.members.names().map(ToString::to_string).collect(),
        };
        let text = serde_json::to_value(text).unwrap_or_default().to_string();
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(ANNOTATION.to_owned(), text);
    }
}

/// The weight of a member for a key: `XXH3-64(key, seed = XXH3-64(member))`, over the bytes of the
/// texts.
///
/// A published function, so that every process and later version computes the same.
pub fn weight(member: &str, key: &str) -> u64 {
    XxHash3_64::oneshot_with_seed(seed_of(member), key.as_bytes())
}

/// The owner of a key among these members: the one with the highest weight; if equal, the last
/// name. `None` without members.
///
/// When a member joins, only the keys that it wins move; when one leaves, only those that it had.
pub fn owner<'a>(members: impl IntoIterator<Item = &'a str>, key: &str) -> Option<&'a str> {
    members.into_iter().max_by_key(|member| (weight(member, key), *member))
}

pub(super) fn seed_of(member: &str) -> u64 {
    XxHash3_64::oneshot(member.as_bytes())
}

/// [`weight`] of a member, by its seed.
pub(super) fn weight_of(seed: u64, key: &str) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_survives_the_round_trip_through_a_lease() {
        let members = Members::of(["b".into(), "a".into(), "b".into()]);
        let promise = Promise { number: 7, members };
        let mut lease = Lease::default();
        assert_eq!(Promise::of(&lease), None);
        promise.put(&mut lease);
        let text = &lease.metadata.annotations.as_ref().unwrap()[ANNOTATION];
        assert_eq!(text, r#"{"members":["a","b"],"number":7}"#);
        assert_eq!(Promise::of(&lease), Some(promise));
    }

    #[test]
    fn promise_beyond_its_limits_is_ignored() {
        let text = |members: Vec<String>| {
            let text = serde_json::json!({"number": 1, "members": members}).to_string();
            let mut lease = Lease::default();
            lease.metadata.annotations = Some([(ANNOTATION.to_owned(), text)].into());
            Promise::of(&lease)
        };
        assert!(text((0..MEMBERS_MAX).map(|n| n.to_string()).collect()).is_some());
        assert_eq!(text((0..=MEMBERS_MAX).map(|n| n.to_string()).collect()), None);
        assert_eq!(text(vec!["x".repeat(IDENTITY_BYTES_MAX + 1)]), None);
    }

    #[test]
    fn weights_are_the_published_functions() {
        // From the reference implementation: another value moves every key of a running group at an
        // upgrade.
        assert_eq!(seed_of(""), 0x2d06_8005_38d3_94c2);
        assert_eq!(weight("", ""), XxHash3_64::oneshot_with_seed(0x2d06_8005_38d3_94c2, b""));
    }

    #[test]
    fn members_that_join_or_leave_move_only_their_keys() {
        let names: Vec<String> = (0..7).map(|n| format!("replica-{n}")).collect();
        let keys: Vec<String> = (0..2000).map(|n| format!("default/object-{n}")).collect();
        let owner_among =
            |n: usize, key: &str| owner(names[..n].iter().map(String::as_str), key).unwrap();
        for (n, newcomer) in names.iter().enumerate().skip(1) {
            let mut n_moved = 0;
            for key in &keys {
                let (before, after) = (owner_among(n, key), owner_among(n + 1, key));
                if before != after {
                    assert_eq!(after, newcomer);
                    n_moved += 1;
                }
            }
            let share = keys.len() / (n + 1);
            assert!(n_moved > share / 2 && n_moved < share * 3 / 2, "{n_moved} of {share}");
        }
        assert_eq!(owner([], "a"), None);
    }
}
