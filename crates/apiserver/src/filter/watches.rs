//! Limits the number of open watches, of each user and in all. `system:masters` has no limit, and
//! does not count: it must get in when the server is overloaded.

use crate::filter::in_flight::RequestLimits;
use parking_lot::Mutex;
use setpoint_object::ApiError;
use setpoint_registry::{Attributes, MASTERS, Verb};
use std::collections::HashMap;
use std::sync::Arc;

/// When a refused client may retry.
const RETRY_SECONDS: u32 = 1;

/// The open watches of a server.
#[derive(Debug)]
pub(crate) struct Watches {
    max: usize,
    per_user_max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    /// Without zeros.
    users: HashMap<Arc<str>, usize>,
}

/// An open watch. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    of: Arc<Watches>,
    user: Arc<str>,
}

impl Watches {
    /// Without any watch.
    pub(crate) fn new(limits: &RequestLimits) -> Arc<Self> {
        let (max, per_user_max) = (limits.watches, limits.watches_per_user);
        Arc::new(Self { max, per_user_max, open: Mutex::default() })
    }

    /// Counts a request; `None`: it is no watch, or needs not be counted.
    ///
    /// # Errors
    ///
    /// 429 if its user, or all users together, have as many as they may have.
    pub(crate) fn enter(
        self: &Arc<Self>,
        request: &Attributes,
    ) -> Result<Option<OpenWatch>, ApiError> {
        if request.verb != Verb::Watch || request.identity.is_in(MASTERS) {
            return Ok(None);
        }
        let user = &request.identity.user;
        let mut open = self.open.lock();
        let of_user = open.users.get(user).copied().unwrap_or_default();
        if of_user >= self.per_user_max {
            return Err(too_many(&format!("user {user:?} has"), self.per_user_max));
        }
        if open.all >= self.max {
            return Err(too_many("the server has", self.max));
        }
        open.all += 1;
        open.users.insert(user.clone(), of_user + 1);
        Ok(Some(OpenWatch { of: self.clone(), user: user.clone() }))
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        open.all -= 1;
        if let Some(n) = open.users.get_mut(&self.user) {
            *n -= 1;
            if *n == 0 {
                open.users.remove(&self.user);
            }
        }
    }
}

fn too_many(who: &str, limit: usize) -> ApiError {
    let message = format!("{who} {limit} open watches, which is the limit");
    ApiError::too_many_requests(message, RETRY_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_registry::{Identity, Requested};

    fn watch(identity: Identity) -> Attributes {
        Attributes::new(identity, Verb::Watch, Requested::Path("/x".to_owned()))
    }

    #[test]
    fn watches_are_counted_by_user_and_in_all() {
        let watches = Watches::new(&RequestLimits::default().watches(3).watches_per_user(2));
        let of = |user: &str| watch(Identity::new(user, []));
        let first = watches.enter(&of("a")).unwrap();
        let second = watches.enter(&of("a")).unwrap();
        let refused = watches.enter(&of("a")).unwrap_err();
        assert_eq!((refused.code(), refused.0.reason.as_str()), (429, "TooManyRequests"));
        assert_eq!(refused.0.message, r#"user "a" has 2 open watches, which is the limit"#);
        let third = watches.enter(&of("b")).unwrap();
        let refused = watches.enter(&of("c")).unwrap_err();
        assert_eq!(refused.0.message, "the server has 3 open watches, which is the limit");
        assert!(watches.enter(&watch(Identity::new("m", [MASTERS]))).unwrap().is_none());
        let read = Attributes { verb: Verb::Get, ..of("a") };
        assert!(watches.enter(&read).unwrap().is_none());
        drop(first);
        drop(watches.enter(&of("c")).unwrap().unwrap());
        drop((second, third));
        let open = watches.open.lock();
        assert!(open.users.is_empty() && open.all == 0, "{open:?}");
    }
}
