//! The additional clusters of a manager, before and while it runs.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use setpoint_informer::factory::FactoryWorker;
use tokio_util::sync::CancellationToken;

use super::AddError;
use crate::{
    cluster::{CLUSTERS_MAX, Cluster},
    events::EventWorker,
};

/// The clusters of one manager, shared by its handles and `run`.
#[derive(Default)]
pub(super) struct Fleet(Mutex<State>);

#[derive(Default)]
struct State {
    joined: Vec<Joined>,
    /// Not yet taken by `run`.
    new: Vec<ClusterWorkers>,
    is_stopping: bool,
}

struct Joined {
    cluster: Cluster,
    /// Stops its workers alone.
    stop: CancellationToken,
    /// It was removed, and its workers have not ended.
    is_leaving: bool,
}

/// The workers of a cluster that have not started.
pub(super) struct ClusterWorkers {
    pub(super) stop: CancellationToken,
    pub(super) cache: FactoryWorker,
    pub(super) events: EventWorker,
    /// Each task of the cluster holds it to its end.
    pub(super) member: Arc<Membership>,
}

/// Frees the name of a cluster when the last of its workers has ended, however it ends.
pub(super) struct Membership {
    pub(super) name: Arc<str>,
    fleet: Weak<Fleet>,
    ended: CancellationToken,
}

impl Drop for Membership {
    fn drop(&mut self) {
        let fleet = self.fleet.upgrade();
        drop(fleet.map(|fleet| fleet.forget(&self.name)));
        self.ended.cancel();
    }
}

impl Fleet {
    /// Adds a cluster, which `build` makes if it may be added.
    pub(super) fn add(
        self: &Arc<Self>,
        name: &Arc<str>,
        build: impl FnOnce() -> (Cluster, FactoryWorker, EventWorker),
    ) -> Result<Cluster, AddError> {
        let mut state = self.0.lock();
        if state.is_stopping {
            return Err(AddError::Stopping { name: name.clone() });
        }
        if state.joined.iter().any(|joined| joined.cluster.name() == &**name) {
            return Err(AddError::DuplicateCluster { name: name.clone() });
        }
        if state.joined.len() >= CLUSTERS_MAX {
            return Err(AddError::TooMany { name: name.clone() });
        }
        let (cluster, cache, events) = build();
        let (stop, ended) = (CancellationToken::new(), cluster.end().clone());
        let member =
            Arc::new(Membership { name: name.clone(), fleet: Arc::downgrade(self), ended });
        state.new.push(ClusterWorkers { stop: stop.clone(), cache, events, member });
        state.joined.push(Joined { cluster: cluster.clone(), stop, is_leaving: false });
        Ok(cluster)
    }

    /// Begins the removal of a cluster. Returns it, the token that stops its workers, and these if
    /// they have not started. Drop them without a lock.
    pub(super) fn remove(
        &self,
        name: &str,
    ) -> Option<(Cluster, CancellationToken, Vec<ClusterWorkers>)> {
        let mut state = self.0.lock();
        let State { joined, new, .. } = &mut *state;
        let of_name = |joined: &&mut Joined| joined.cluster.name() == name && !joined.is_leaving;
        let leaving = joined.iter_mut().find(of_name)?;
        leaving.is_leaving = true;
        let never_run = new.extract_if(.., |workers| &*workers.member.name == name).collect();
        Some((leaving.cluster.clone(), leaving.stop.clone(), never_run))
    }

    fn forget(&self, name: &str) -> Vec<Cluster> {
        let mut state = self.0.lock();
        let ended = state.joined.extract_if(.., |joined| joined.cluster.name() == name);
        ended.map(|joined| joined.cluster).collect()
    }

    /// Takes the workers of clusters that were added since the last call.
    pub(super) fn take(&self) -> Vec<ClusterWorkers> {
        std::mem::take(&mut self.0.lock().new)
    }

    /// Refuses new clusters from now on, and drops the workers of those that have not started.
    pub(super) fn begin_stop(&self) {
        let mut state = self.0.lock();
        state.is_stopping = true;
        let never_run = std::mem::take(&mut state.new);
        drop(state);
        drop(never_run);
    }

    /// The clusters that were not removed, in the order in which they were added.
    pub(super) fn clusters(&self) -> Vec<Cluster> {
        let state = self.0.lock();
        let present = state.joined.iter().filter(|joined| !joined.is_leaving);
        present.map(|joined| joined.cluster.clone()).collect()
    }
}
