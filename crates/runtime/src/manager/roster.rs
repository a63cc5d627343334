//! Who is a member of a manager, while it is built and while it runs.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::AddError;
use crate::controller::ControllerHandle;
use crate::runnable::{Group, Run};

/// How many members a manager has at once: controllers and runnables together.
///
/// Each is a task and a set of labels. 4096 is far more than a program has, and little enough to
/// notice one that adds without end.
pub const MEMBERS_MAX: usize = 4096;

/// A controller or another task that has not started.
pub(super) struct Member {
    pub(super) name: Arc<str>,
    pub(super) group: Group,
    /// It waits by itself for the caches it reads: it may start before they have synced.
    pub(super) awaits_its_caches: bool,
    pub(super) run: Run,
    /// Its own end, for it alone.
    pub(super) stop: CancellationToken,
}

/// The members of one manager, shared by those who add and by the one who runs.
#[derive(Default)]
pub(super) struct Roster {
    state: Mutex<State>,
    /// There are new members.
    pub(super) added: Notify,
}

#[derive(Default)]
struct State {
    /// Added, and not taken up by `run`.
    new: Vec<Member>,
    /// Of every member that has not ended.
    stops: HashMap<Arc<str>, CancellationToken>,
    /// Of every controller that was added and not removed, in that order.
    controllers: Vec<ControllerHandle>,
    is_stopping: bool,
}

impl Roster {
    /// Takes a name, for [`add`](Self::add) or [`release`](Self::ended).
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

    /// Adds a member whose name was reserved. One that comes after the stop began is dropped
    /// (MGR-9).
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
            // A later controller of that name takes the place of the one that has ended.
            state.controllers.retain(|known| known.name() != controller.name());
            state.controllers.push(controller);
        }
        state.new.push(member);
        drop(state);
        self.added.notify_one();
        Ok(())
    }

    /// Stops one member. Says whether there was one.
    pub(super) fn remove(&self, name: &str) -> bool {
        let mut state = self.state.lock();
        let Some(stop) = state.stops.get(name).cloned() else { return false };
        state.controllers.retain(|controller| controller.name() != name);
        // One that was never started has nothing to end.
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

    /// A member has ended: its name is free.
    pub(super) fn ended(&self, name: &str) {
        self.state.lock().stops.remove(name);
    }

    /// The members added since this was last asked.
    pub(super) fn take(&self) -> Vec<Member> {
        std::mem::take(&mut self.state.lock().new)
    }

    /// Refuses new members from now on, and drops those that were not taken up.
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
