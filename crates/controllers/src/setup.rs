//! What every built-in controller starts from.

use crate::api::Api;
use kube_client::Client;
use setpoint_object::seed;
use setpoint_object::time::Clock;
use setpoint_runtime::{Manager, ManagerBuilder};

/// The client, the clock and the randomness of controllers. Cheap to clone; controllers with one
/// client share its connection.
#[derive(Clone)]
#[must_use]
pub struct Setup {
    client: Client,
    clock: Clock,
    seed: u64,
}

impl Setup {
    /// Controllers send requests with `client`, and date conditions and compute ages by `clock`.
    pub fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock, seed: seed::from_entropy() }
    }

    /// The seed for all randomness, for simulations. Default: the operating system's randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The manager of a controller.
    pub(crate) fn manager(&self) -> ManagerBuilder {
        Manager::builder(self.client.clone()).clock(self.clock.clone()).seed(self.seed)
    }

    /// The client of a controller.
    pub(crate) fn api(&self, controller: &str) -> Api {
        Api::new(self.client.clone(), controller)
    }

    /// A client that writes as the server itself.
    pub(crate) fn api_of_server(&self, part: &str) -> Api {
        Api::of_server(self.client.clone(), part)
    }

    /// The clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}
