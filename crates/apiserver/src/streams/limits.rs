//! How many streams of pods, and proxied requests, are open at the same time.

use crate::node_agent::{PodRef, StreamLimits};
use parking_lot::Mutex;
use setpoint_object::ApiError;
use setpoint_registry::{Identity, MASTERS};
use std::collections::HashMap;
use std::sync::Arc;

/// When a refused client may retry.
const RETRY_SECONDS: u32 = 1;

/// The open streams of a server.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    limits: StreamLimits,
    /// Numbers of streams, without zeros.
    open: Mutex<HashMap<Owner, usize>>,
}

/// Whom a stream counts for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Owner {
    /// By its uid.
    Pod(String),
    Node(String),
    User(Arc<str>),
    /// All users.
    All,
}

/// An open stream. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    of: Arc<Slots>,
    owners: Vec<Owner>,
}

impl Slots {
    pub(crate) fn new(limits: StreamLimits) -> Self {
        Self { limits, open: Mutex::default() }
    }

    /// Counts a stream of a pod, for a user. For those of `system:masters`, only the limits of pods
    /// and nodes hold.
    ///
    /// # Errors
    ///
    /// 429 if the pod, its node, the user, or all users together have as many as they may have.
    pub(super) fn take(self: &Arc<Self>, pod: &PodRef, user: &Identity) -> Result<Slot, ApiError> {
        let StreamLimits { per_pod, per_node, .. } = self.limits;
        let (of_pod, of_node) = (Owner::Pod(pod.uid.clone()), Owner::Node(pod.node.clone()));
        let mut open = self.open.lock();
        if count(&open, &of_pod) >= per_pod {
            return Err(too_many(&format!("pod \"{}\" has", pod.name), per_pod));
        }
        if count(&open, &of_node) >= per_node {
            return Err(too_many(&format!("the pods of node \"{}\" have", pod.node), per_node));
        }
        let mut owners = self.of_users(&open, user)?;
        owners.extend([of_pod, of_node]);
        Ok(self.slot(&mut open, owners))
    }

    /// Counts a proxied request of a user. Those of `system:masters` are not limited.
    ///
    /// # Errors
    ///
    /// 429 if the user, or all users together, have as many as they may have.
    pub(crate) fn take_for(self: &Arc<Self>, user: &Identity) -> Result<Slot, ApiError> {
        let mut open = self.open.lock();
        let owners = self.of_users(&open, user)?;
        Ok(self.slot(&mut open, owners))
    }

    /// Whom a stream of a user counts for, besides its pod.
    fn of_users(
        &self,
        open: &HashMap<Owner, usize>,
        user: &Identity,
    ) -> Result<Vec<Owner>, ApiError> {
        let StreamLimits { per_user, all, .. } = self.limits;
        if user.is_in(MASTERS) {
            return Ok(Vec::new());
        }
        let of_user = Owner::User(user.user.clone());
        if count(open, &of_user) >= per_user {
            return Err(too_many(&format!("user \"{}\" has", user.user), per_user));
        }
        if count(open, &Owner::All) >= all {
            return Err(too_many("the server has", all));
        }
        Ok(vec![of_user, Owner::All])
    }

    fn slot(self: &Arc<Self>, open: &mut HashMap<Owner, usize>, owners: Vec<Owner>) -> Slot {
        for owner in &owners {
            *open.entry(owner.clone()).or_default() += 1;
        }
        Slot { of: self.clone(), owners }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        for owner in &self.owners {
            if let Some(n) = open.get_mut(owner) {
                *n -= 1;
                if *n == 0 {
                    open.remove(owner);
                }
            }
        }
    }
}

fn count(open: &HashMap<Owner, usize>, owner: &Owner) -> usize {
    open.get(owner).copied().unwrap_or_default()
}

fn too_many(of: &str, limit: usize) -> ApiError {
    let message = format!(
        "{of} {limit} open streams (logs, commands, forwarded connections and proxied requests), which is the limit"
    );
    ApiError::too_many_requests(message, RETRY_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str) -> PodRef {
        let [name, node] = [name, node].map(str::to_owned);
        PodRef { namespace: "default".to_owned(), uid: format!("{name}-uid"), name, node }
    }

    #[test]
    fn streams_are_counted_by_pod_and_by_node() {
        let slots = Arc::new(Slots::new(StreamLimits::default().per_pod(2).per_node(3)));
        let take = |pod: &PodRef| slots.take(pod, &Identity::admin());
        let first = take(&pod("a", "n")).unwrap();
        let second = take(&pod("a", "n")).unwrap();
        let refused = take(&pod("a", "n")).unwrap_err();
        assert_eq!((refused.code(), refused.0.reason.as_str()), (429, "TooManyRequests"));
        assert_eq!(
            refused.0.message,
            "pod \"a\" has 2 open streams (logs, commands, forwarded connections and proxied requests), which is the limit"
        );
        let third = take(&pod("b", "n")).unwrap();
        let refused = take(&pod("c", "n")).unwrap_err();
        assert!(refused.0.message.starts_with("the pods of node \"n\" have 3 open streams"));
        let elsewhere = take(&pod("c", "m")).unwrap();
        drop(first);
        take(&pod("a", "n")).unwrap();
        drop((second, third, elsewhere));
        let open = slots.open.lock();
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn streams_and_proxied_requests_are_counted_by_user_and_in_all() {
        let slots = Arc::new(Slots::new(StreamLimits::default().per_user(2).all(3)));
        let (bob, eve) = (Identity::new("bob", []), Identity::new("eve", []));
        let of_bob = [slots.take_for(&bob).unwrap(), slots.take(&pod("a", "n"), &bob).unwrap()];
        for refused in [slots.take_for(&bob), slots.take(&pod("b", "m"), &bob)] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), 429);
            assert!(
                refused.0.message.starts_with("user \"bob\" has 2 open streams"),
                "{refused:?}"
            );
        }
        let of_eve = slots.take_for(&eve).unwrap();
        for refused in [slots.take_for(&eve), slots.take(&pod("b", "m"), &eve)] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), 429);
            assert!(refused.0.message.starts_with("the server has 3 open streams"), "{refused:?}");
        }
        let admin = Identity::admin();
        let others = [slots.take_for(&admin).unwrap(), slots.take(&pod("b", "m"), &admin).unwrap()];
        drop((of_bob, others));
        drop([slots.take_for(&bob).unwrap(), slots.take_for(&eve).unwrap(), of_eve]);
        assert!(slots.open.lock().is_empty());
    }
}
