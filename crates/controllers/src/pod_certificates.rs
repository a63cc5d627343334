//! PodCertificateRequests: deleted a quarter of an hour after their creation. Agents read them at
//! once, and ask again for another certificate.
//!
//! The rules are those of kube-controller-manager's `podcertificaterequest-cleaner-controller`. A
//! request is deleted when its time comes, not at the next of its looks every five minutes.

use crate::api::{Api, ignore_not_found, of_uid};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_runtime::{Action, BoxError, Context, Controller, Manager, Request, Watch};
use std::time::Duration;

/// The controller's name.
const NAME: &str = "podcertificaterequest-cleaner-controller";
/// How long a request stays: 15 min, as in kube-controller-manager.
pub const AGE_MAX: Duration = Duration::from_secs(15 * 60);
/// Number of requests that are looked at at the same time. Nodes create them.
const WORKERS: usize = 5;

/// The controller that deletes PodCertificateRequests. It does nothing until a manager runs it.
#[derive(Debug)]
#[must_use]
pub struct PodCertificateCleaner {
    setup: Setup,
}

impl PodCertificateCleaner {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let pass = Pass { api: self.setup.api(NAME), clock: self.setup.clock().clone() };
        let controller = Controller::builder(NAME)
            .for_(Watch::<PodCertificateRequest>::metadata())
            .sync_timeout(None)
            .concurrency(WORKERS)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

struct Pass {
    api: Api,
    clock: Clock,
}

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, _: &Context) -> Result<Action, BoxError> {
        let path = format!(
            "/apis/certificates.k8s.io/v1beta1/namespaces/{}/podcertificaterequests/{}",
            request.namespace, request.name
        );
        let Some(found) = self.api.get_opt(&path).await? else {
            return Ok(Action::await_change());
        };
        let created = found["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        let end = Timestamp::parse(created).unwrap_or_default() + AGE_MAX;
        let left = end.since(self.clock.now());
        if !left.is_zero() {
            return Ok(Action::requeue_after(left));
        }
        ignore_not_found(self.api.delete(&path, &of_uid(found.uid())).await)?;
        Ok(Action::await_change())
    }
}
