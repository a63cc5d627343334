//! What a member says about itself: the members among which it wins the keys that it may run.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use serde::{Deserialize, Serialize};

use super::{
    MEMBERS_MAX,
    options::IDENTITY_BYTES_MAX,
    weight::{seed_of, weight_of},
};

/// Where a Lease carries its holder's promise.
const ANNOTATION: &str = "shard.setpoint.dev/acknowledged";

/// A set of members, sorted. Cheap to compare with itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Members(Arc<[(Arc<str>, u64)]>);

impl Members {
    /// Of these names, the first [`MEMBERS_MAX`]: beyond that a member owns nothing.
    pub(super) fn of(names: impl IntoIterator<Item = Arc<str>>) -> Self {
        let mut names: Vec<Arc<str>> = names.into_iter().filter(|name| !name.is_empty()).collect();
        names.sort();
        names.dedup();
        names.truncate(MEMBERS_MAX);
        Self(names.into_iter().map(|name| (name.clone(), seed_of(&name))).collect())
    }

    /// Who wins a key among them.
    pub(super) fn winner(&self, key: &str) -> Option<&Arc<str>> {
        let weighed = self.0.iter().map(|(name, seed)| (weight_of(*seed, key), name));
        weighed.max().map(|(_, name)| name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|(name, _)| name)
    }
}

/// A published set, and its place among its member's publications.
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
    /// The promise that a Lease carries; `None` if it is none that can be read.
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

    /// Puts it on a Lease.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_comes_off_a_lease_as_it_was_put_there() {
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
    fn promise_beyond_its_bounds_is_none() {
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
}
