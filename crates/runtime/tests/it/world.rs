//! A manager over the in-memory server, on paused time.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_runtime::{
    Clock, Controller, ControllerHandle, Manager, ManagerBuilder, ManagerError,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::server::Server;

pub(crate) const CONFIG_MAPS: &str = "/api/v1/configmaps";
pub(crate) const EVENTS: &str = "/api/v1/events";
pub(crate) const PODS: &str = "/api/v1/pods";

/// A log of what happened, in order.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    pub(crate) fn record(&self, text: impl Into<String>) {
        self.0.lock().push(text.into());
    }

    /// Takes the entries since the last call.
    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock()).join(" · ")
    }
}

/// A running manager. Dropping it ends all its tasks.
pub(crate) struct Running {
    pub(crate) stop: CancellationToken,
    tasks: JoinSet<Result<(), ManagerError>>,
}

impl Running {
    pub(crate) fn start(manager: Manager) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(manager.run(stop.clone()));
        Self { stop, tasks }
    }

    /// Stops it; returns how it ended.
    pub(crate) async fn stop(mut self) -> Result<(), ManagerError> {
        self.stop.cancel();
        self.ended().await
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(&mut self) -> Result<(), ManagerError> {
        self.tasks.join_next().await.unwrap().unwrap()
    }
}

pub(crate) fn builder(server: &Server) -> ManagerBuilder {
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    Manager::builder(server.client()).clock(clock).seed(1)
}

/// A manager that runs one controller.
pub(crate) fn run(server: &Server, controller: Controller) -> (Running, ControllerHandle) {
    let mut manager = builder(server).build();
    let handle = manager.add(controller).unwrap();
    (Running::start(manager), handle)
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// Lets this time pass: everything that can happen within it happens. Paused time advances when all
/// tasks are idle.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// [`pass`] for less than any back-off.
pub(crate) async fn settle() {
    pass(Duration::from_millis(1)).await;
}
