//! The members of a manager, before and while it runs.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::AddError;
use crate::controller::ControllerHandle;
use crate::runnable::{Group, Run};

/// How many members a manager may have at once: controllers and runnables together.
///
/// Each is a task and a set of labels. 4096 is far more than a program needs, and catches one that
/// adds members without end.
pub const MEMBERS_MAX: usize = 4096;

/// A controller or another task that has not started.
pub(super) struct Member {
    pub(super) name: Arc<str>,
    pub(super) group: Group,
    /// It waits for its own caches, so it may start before they have synced.
    pub(super) awaits_its_caches: bool,
    pub(super) run: Run,
    /// Stops this member alone.
    pub(super) stop: CancellationToken,
}

/// The members of one manager, shared by its handles and `run`.
#[derive(Default)]
pub(super) struct Roster {
    state: Mutex<State>,
    /// Notified when members were added.
    pub(super) added: Notify,
}

#[derive(Default)]
struct State {
    /// Added, and not yet taken by `run`.
    new: Vec<Member>,
    /// The stop tokens of all members that have not ended.
    stops: HashMap<Arc<str>, CancellationToken>,
    /// Every controller that was added and not removed, in that order.
    controllers: Vec<ControllerHandle>,
    is_stopping: bool,
}

impl Roster {
    /// Reserves a name for [`add`](Self::add); [`ended`](Self::ended) frees it.
    pub(super) fn reserve(&self, name: &Arc<str>) -> Result<CancellationToken, AddError> {
        let mut state = self.state.lock();
        if state.is_stopping {
            return Err(AddError::Stopping { name: name.clone() });
        }
        if state.stops.contains_key(name) {
            return Err(AddError::DuplicateName { name: name.clone() });
        }
        if state.stops.len() >= MEMBERS_MAX {
            return Err(AddError::TooMany { name: name.clone() });
        }
        let stop = CancellationToken::new();
        state.stops.insert(name.clone(), stop.clone());
        Ok(stop)
    }

    /// Adds a member whose name was reserved. Dropped if the stop has begun (MGR-9).
    pub(super) fn add(
        &self,
        member: Member,
        controller: Option<ControllerHandle>,
    ) -> Result<(), AddError> {
        let mut state = self.state.lock();
        if state.is_stopping {
            let name = member.name.clone();
            drop(state);
            return Err(AddError::Stopping { name });
        }
        if let Some(controller) = controller {
            // Replaces an ended controller of the same name.
            state.controllers.retain(|existing| existing.name() != controller.name());
            state.controllers.push(controller);
        }
        state.new.push(member);
        drop(state);
        self.added.notify_one();
        Ok(())
    }

    /// Stops one member; returns whether it existed.
    pub(super) fn remove(&self, name: &str) -> bool {
        let mut state = self.state.lock();
        let Some(stop) = state.stops.get(name).cloned() else { return false };
        state.controllers.retain(|controller| controller.name() != name);
        // A member that has not started can be dropped.
        let never_run: Vec<Member> =
            state.new.extract_if(.., |member| &*member.name == name).collect();
        if !never_run.is_empty() {
            state.stops.remove(name);
        }
        drop(state);
        stop.cancel();
        drop(never_run);
        self.added.notify_one();
        true
    }

    /// Frees the name of a member that has ended.
    pub(super) fn ended(&self, name: &str) {
        self.state.lock().stops.remove(name);
    }

    /// Takes the members that were added since the last call.
    pub(super) fn take(&self) -> Vec<Member> {
        std::mem::take(&mut self.state.lock().new)
    }

    /// Refuses new members from now on, and drops those that have not started.
    pub(super) fn begin_stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        let never_run = std::mem::take(&mut state.new);
        drop(state);
        drop(never_run);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state.lock().is_stopping
    }

    pub(super) fn controllers(&self) -> Vec<ControllerHandle> {
        self.state.lock().controllers.clone()
    }
}
